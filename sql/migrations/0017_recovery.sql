-- breaking: no
-- Locks: timer_meta and timer_node for an instant; creates functions.
--
-- After a fault: whose database this is, a clock that has jumped, and what the audits have found.

-- instance: whose processes may run on this database; null: migrated by a version without it.
-- restored_at: it was taken from a backup by then, as far as is known: what was due before may have
-- been called already. jumps_accepted: how often somebody has said that the clock is right though
-- it has jumped; jump_ahead: by how many ms it was ahead of the machine's then.
ALTER TABLE timer_meta
    ADD COLUMN instance       text COLLATE "C",
    ADD COLUMN restored_at    bigint,
    ADD COLUMN jumps_accepted bigint NOT NULL DEFAULT 0,
    ADD COLUMN jump_ahead     bigint NOT NULL DEFAULT 0;

-- clock_jump: ms by which it finds the database's clock ahead, while it holds back for that.
ALTER TABLE timer_node ADD COLUMN clock_jump bigint;

-- What each audit found when it was last run to its end, and since when it runs now (begun, ms;
-- null: it does not; an hour later whoever began it is taken for dead). took: ms. found: rows, of
-- which sample holds the first ones, a JSON list each, in the order of columns; error: why it was
-- given up.
CREATE TABLE timer_audit_run (
    audit   text    COLLATE "C" PRIMARY KEY,
    begun   bigint,
    ended   bigint,
    took    bigint,
    found   integer,
    columns text[],
    sample  jsonb,
    error   text
);

-- Take over the database for p_instance, with the brake on where there is a reason for it: in one
-- transaction, so that no process finds it adopted and not held. A brake that is on stays as it is.
-- What processes there were when it was copied are not here. Out: whose it was, or null.
CREATE FUNCTION wheel_adopt_v1(p_instance text, p_reason text, p_actor text) RETURNS text
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
    v_before text;
BEGIN
    PERFORM wheel_configuration_turn_v1();
    IF p_reason IS NOT NULL AND NOT EXISTS (
        SELECT FROM timer_brake AS b WHERE b.reason IS NOT NULL
    ) THEN
        PERFORM wheel_brake_v1(p_actor, p_reason);
    END IF;
    SELECT m.instance INTO v_before FROM timer_meta AS m FOR UPDATE;
    UPDATE timer_meta SET instance = p_instance, restored_at = wheel_now_ms();
    DELETE FROM timer_node;
    INSERT INTO timer_change (time, actor, action, object, old, new)
    VALUES (
        wheel_now_ms(), p_actor, 'wheel.adopt', 'wheel',
        jsonb_build_object('instance', v_before), jsonb_build_object('instance', p_instance)
    );
    RETURN v_before;
END
$$;

-- Cover tasks of one shard that nothing would look at again: each that is still pending at its
-- place, and still behind the sweep hand without a requeue row ahead of the due hand, gets one.
-- At most 1,000 a call. Out: those that were covered here.
-- Locks: fence shared, task rows by place, requeue rows by task_id.
CREATE FUNCTION wheel_repair_lost_v1(
    p_shard smallint, p_task_ids uuid[], p_start_times bigint[], p_actor text
) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '5s'
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    v_closed   bigint;
    v_repaired uuid[];
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    WITH pending AS MATERIALIZED (
        SELECT k.*
        FROM (
            SELECT u.task_id, u.start_time
            FROM unnest(p_task_ids, p_start_times) AS u(task_id, start_time)
            ORDER BY u.start_time, u.task_id
        ) AS r
        CROSS JOIN LATERAL (
            SELECT t.task_id, t.start_time, t.biz_type, t.lease_until, t.next_at
            FROM timer_task AS t
            WHERE t.slot = CAST((r.start_time / 1000) % 10000000 AS integer)
                AND t.shard = p_shard
                AND t.start_time = r.start_time
                AND t.task_id = r.task_id
                AND t.status = 0
            LIMIT 1
            FOR SHARE
        ) AS k
    ), covered AS (
        INSERT INTO timer_requeue AS q (task_id, shard, start_time, due_at, biz_type, reason)
        SELECT g.task_id, p_shard, g.start_time,
            greatest(v_closed + 1, g.lease_until, g.next_at), g.biz_type, 'sweep'
        FROM pending AS g
        JOIN timer_pointer AS p ON p.shard = p_shard
        WHERE g.start_time <= p.sweep_time
        ORDER BY g.task_id
        ON CONFLICT (task_id) DO UPDATE
        SET due_at = excluded.due_at, start_time = excluded.start_time, shard = excluded.shard,
            reason = excluded.reason
        WHERE q.due_at <= (SELECT p."current_time" FROM timer_pointer AS p WHERE p.shard = p_shard)
        RETURNING q.task_id
    )
    SELECT coalesce(array_agg(c.task_id), '{}') INTO v_repaired FROM covered AS c;

    INSERT INTO timer_change (time, actor, action, object, new)
    SELECT wheel_now_ms(), p_actor, 'audit.repair', CAST(i.task_id AS text),
        jsonb_build_object('audit', 'lost', 'did', 'given a requeue row')
    FROM unnest(v_repaired) AS i(task_id);
    RETURN v_repaired;
END
$$;

-- Drop requeue rows that lead to no task, and put those that the due hand has passed ahead of it.
-- At most 1,000 a call, all of one shard. Out: those that were changed here.
-- Locks: fence shared, requeue rows by task_id. They are locked before the tasks are looked for,
-- in a statement of its own: whoever moves a task there meanwhile has to change its row, too.
CREATE FUNCTION wheel_repair_orphans_v1(p_shard smallint, p_task_ids uuid[], p_actor text)
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '5s'
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    v_closed   bigint;
    v_locked   uuid[];
    v_present  uuid[];
    v_repaired uuid[];
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    SELECT coalesce(array_agg(l.task_id), '{}') INTO v_locked
    FROM (
        SELECT q.task_id
        FROM timer_requeue AS q
        WHERE q.task_id = ANY (p_task_ids) AND q.shard = p_shard
        ORDER BY q.task_id
        FOR UPDATE
    ) AS l;
    -- Of a task that stands elsewhere the row is of no use either: `lost` sees to that task.
    SELECT coalesce(array_agg(q.task_id), '{}') INTO v_present
    FROM timer_requeue AS q
    CROSS JOIN LATERAL (
        SELECT
        FROM timer_task AS t
        WHERE t.slot = CAST((q.start_time / 1000) % 10000000 AS integer)
            AND t.shard = p_shard
            AND t.start_time = q.start_time
            AND t.task_id = q.task_id
            AND t.status <> 4
        LIMIT 1
    ) AS k
    WHERE q.task_id = ANY (v_locked);

    WITH dropped AS (
        DELETE FROM timer_requeue AS q
        WHERE q.task_id = ANY (v_locked) AND q.task_id <> ALL (v_present)
        RETURNING q.task_id
    ), passed AS (
        UPDATE timer_requeue AS q
        SET due_at = v_closed + 1
        WHERE q.task_id = ANY (v_present)
            AND q.due_at <= (
                SELECT p."current_time" FROM timer_pointer AS p WHERE p.shard = p_shard
            )
        RETURNING q.task_id
    ), repaired AS (
        SELECT d.task_id, 'dropped' AS did FROM dropped AS d
        UNION ALL
        SELECT a.task_id, 'put ahead of the due hand' FROM passed AS a
    ), recorded AS (
        INSERT INTO timer_change (time, actor, action, object, new)
        SELECT wheel_now_ms(), p_actor, 'audit.repair', CAST(r.task_id AS text),
            jsonb_build_object('audit', 'orphaned_requeue', 'did', r.did)
        FROM repaired AS r
    )
    SELECT coalesce(array_agg(r.task_id), '{}') INTO v_repaired FROM repaired AS r;
    RETURN v_repaired;
END
$$;

-- Drop what stands beside the wheel and leads nowhere, as `misplaced` calls it: `key`, a biz_id
-- whose task does not exist; `dead`, a dead letter whose task is not failed; `address`, a row that
-- forwards to where no task is. The row is locked before its task is looked for.
-- At most 1,000 a call. Out: the task_ids of what was dropped here.
-- Locks: keys, home rows or dead rows, by task_id.
CREATE FUNCTION wheel_repair_misplaced_v1(p_what text, p_task_ids uuid[], p_actor text)
RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '5s'
SET plan_cache_mode = force_custom_plan
SET jit = off
AS $$
DECLARE
    v_keep    uuid[];
    v_dropped uuid[];
BEGIN
    IF p_what = 'key' THEN
        PERFORM FROM timer_key AS k
        WHERE k.task_id = ANY (p_task_ids) ORDER BY k.task_id FOR UPDATE;
        SELECT array_agg(f.task_id) INTO v_keep FROM wheel_find_v1(p_task_ids) AS f;
        WITH dropped AS (
            DELETE FROM timer_key AS k
            WHERE k.task_id = ANY (p_task_ids) AND k.task_id <> ALL (coalesce(v_keep, '{}'))
            RETURNING k.task_id
        )
        SELECT array_agg(d.task_id) INTO v_dropped FROM dropped AS d;
    ELSIF p_what = 'dead' THEN
        PERFORM FROM timer_dead AS d
        WHERE d.task_id = ANY (p_task_ids) ORDER BY d.task_id FOR UPDATE;
        SELECT array_agg(f.task_id) INTO v_keep
        FROM wheel_find_v1(p_task_ids) AS f
        WHERE f.status = 2;
        WITH dropped AS (
            DELETE FROM timer_dead AS d
            WHERE d.task_id = ANY (p_task_ids) AND d.task_id <> ALL (coalesce(v_keep, '{}'))
            RETURNING d.task_id
        )
        SELECT array_agg(d.task_id) INTO v_dropped FROM dropped AS d;
    ELSE
        ASSERT p_what = 'address', p_what;
        PERFORM FROM unnest(p_task_ids) AS i(task_id)
        CROSS JOIN LATERAL (
            SELECT
            FROM timer_task AS h
            WHERE h.slot = CAST(wheel_home_v1(i.task_id) / 1000 % 10000000 AS integer)
                AND h.shard = wheel_home_shard_v1(i.task_id)
                AND h.start_time = wheel_home_v1(i.task_id)
                AND h.task_id = i.task_id
                AND h.status = 4
            FOR UPDATE
        ) AS l;
        SELECT array_agg(f.task_id) INTO v_keep FROM wheel_find_v1(p_task_ids) AS f;
        WITH dropped AS (
            DELETE FROM timer_task AS h
            USING unnest(p_task_ids) AS i(task_id)
            WHERE h.slot = CAST(wheel_home_v1(i.task_id) / 1000 % 10000000 AS integer)
                AND h.shard = wheel_home_shard_v1(i.task_id)
                AND h.start_time = wheel_home_v1(i.task_id)
                AND h.task_id = i.task_id
                AND h.status = 4
                AND h.task_id <> ALL (coalesce(v_keep, '{}'))
            RETURNING h.task_id
        )
        SELECT array_agg(d.task_id) INTO v_dropped FROM dropped AS d;
    END IF;

    INSERT INTO timer_change (time, actor, action, object, new)
    SELECT wheel_now_ms(), p_actor, 'audit.repair', CAST(i.task_id AS text),
        jsonb_build_object('audit', 'misplaced', 'did', 'dropped its ' || p_what)
    FROM unnest(v_dropped) AS i(task_id);
    RETURN coalesce(v_dropped, '{}');
END
$$;
