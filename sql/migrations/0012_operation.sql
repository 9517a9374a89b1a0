-- breaking: no
-- Locks: none; creates a table and functions.
--
-- Operations: one change for all tasks that fit a filter, made in chunks by the leader of shard 0.
-- A chunk's changes, its counts and the key to go on from are one transaction, and step says which
-- chunk comes next: after any crash, and under two leaders at once, each chunk counts once.

-- filter: as wheel_timer/store/filter.py writes it. shift_ms: of a shift. rate: tasks a second.
-- key: where the next chunk begins; null: at the beginning.
CREATE TABLE timer_operation (
    operation_id uuid    PRIMARY KEY,
    create_time  bigint  NOT NULL,
    finish_time  bigint,
    matched      bigint  NOT NULL DEFAULT 0,
    done         bigint  NOT NULL DEFAULT 0,
    skipped      bigint  NOT NULL DEFAULT 0,
    errors       bigint  NOT NULL DEFAULT 0,
    shift_ms     bigint,
    rate         double precision,
    over_ms      bigint,
    step         integer NOT NULL DEFAULT 0,
    action       text    COLLATE "C" NOT NULL CHECK (
        action IN ('cancel', 'shift', 'replay', 'run', 'purge')
    ),
    state        text    COLLATE "C" NOT NULL DEFAULT 'running' CHECK (
        state IN ('running', 'done', 'stopped', 'failed')
    ),
    actor        text    COLLATE "C" NOT NULL,
    error        text,
    filter       jsonb   NOT NULL,
    key          jsonb,
    CONSTRAINT timer_operation_end CHECK ((state = 'running') = (finish_time IS NULL))
);
CREATE INDEX timer_operation_running ON timer_operation (create_time) WHERE state = 'running';
CREATE INDEX timer_operation_time ON timer_operation (create_time, operation_id);

-- The end of a chunk: count it and go on, if it is the one that was to come.
-- p_key: null leaves the key where it is (another shard's part of the chunk is still to come).
-- p_is_done: nothing is left. Raises WT004 where the operation was stopped, or somebody else is at
-- it; what the caller has changed in this transaction is undone then.
CREATE FUNCTION wheel_operation_step_v1(
    p_operation_id uuid, p_step integer, p_matched bigint, p_done bigint, p_errors bigint,
    p_key jsonb, p_is_done boolean
) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
    UPDATE timer_operation AS o
    SET step = o.step + 1,
        matched = o.matched + p_matched,
        done = o.done + p_done,
        errors = o.errors + p_errors,
        skipped = o.skipped + p_matched - p_done - p_errors,
        key = coalesce(p_key, o.key),
        state = CASE WHEN p_is_done THEN 'done' ELSE o.state END,
        finish_time = CASE WHEN p_is_done THEN wheel_now_ms() END
    WHERE o.operation_id = p_operation_id AND o.step = p_step AND o.state = 'running';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the operation is not at this step' USING ERRCODE = 'WT004';
    END IF;
END
$$;

-- Cancel those of these tasks that wait: pending, not in a call, of this revision. Of one shard, at
-- most 1,000, each named once, in any order. Returns how many.
--
-- What wheel_change_v1 does for a cancel, without a verdict for each and without what only other
-- verbs need: an operation's cost for the others is its cost for the database. 250 take 2.9 ms in
-- place of 7.4.
-- A lease that had run out leaves an attempt row `lost`.
-- Edge:  pending -> cancelled. HOT.
-- Locks: fence shared, task rows by place, requeue rows by task_id.
CREATE FUNCTION wheel_cancel_pending_v1(
    p_shard smallint, p_task_ids uuid[], p_start_times bigint[], p_revisions integer[],
    p_retention_ms bigint
) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '5s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    v_now       bigint;
    v_slot      integer;
    v_tids      tid[];
    v_ids       uuid[];
    v_biz_types text[];
    v_places    bigint[];
    v_creates   bigint[];
    v_lost      uuid[];
    v_attempts  integer[];
    v_lives     smallint[];
    v_biz_type  text;
    v_part      tid[];
    v_expire_at bigint;
    v_erases    boolean;
    v_ended     uuid[] := '{}';
BEGIN
    PERFORM wheel_fence_v1(p_shard);
    v_now := wheel_now_ms();
    FOR v_slot IN
        SELECT DISTINCT CAST((s.start_time / 1000) % 10000000 / 100000 * 100000 AS integer)
        FROM unnest(p_start_times) AS s(start_time)
        ORDER BY 1
    LOOP
        EXECUTE format(
            'SELECT array_agg(k.tid), array_agg(k.task_id), array_agg(k.biz_type),
                array_agg(k.start_time), array_agg(k.create_time),
                array_agg(k.task_id) FILTER (WHERE k.lease_until IS NOT NULL),
                array_agg(k.attempts) FILTER (WHERE k.lease_until IS NOT NULL),
                array_agg(k.life) FILTER (WHERE k.lease_until IS NOT NULL)
            FROM (
                SELECT CAST((p.place / 1000) %% 10000000 AS integer) AS slot, p.*
                FROM unnest($1, $2, $3) AS p(task_id, place, revision)
                WHERE (p.place / 1000) %% 10000000 / 100000 * 100000 = $6
                ORDER BY 1, p.place, p.task_id
            ) AS r
            CROSS JOIN LATERAL (
                SELECT t.ctid AS tid, t.task_id, t.biz_type, t.start_time, t.create_time,
                    t.lease_until, t.attempts, t.life
                FROM %I AS t
                WHERE t.slot = r.slot
                    AND t.shard = $4
                    AND t.start_time = r.place
                    AND t.task_id = r.task_id
                    AND t.status = 0
                    AND t.revision = r.revision
                    AND (t.lease_until IS NULL OR t.lease_until <= $5)
                LIMIT 1
                FOR NO KEY UPDATE
            ) AS k',
            wheel_partition_v1(v_slot)
        )
        INTO v_tids, v_ids, v_biz_types, v_places, v_creates, v_lost, v_attempts, v_lives
        USING p_task_ids, p_start_times, p_revisions, p_shard, v_now, v_slot;
        CONTINUE WHEN v_ids IS NULL;
        v_ended := v_ended || v_ids;

        FOR v_biz_type, v_part IN
            SELECT g.biz_type, array_agg(g.tid)
            FROM unnest(v_biz_types, v_tids) AS g(biz_type, tid)
            GROUP BY 1
        LOOP
            SELECT CAST(b.config #>> '{retention,cancelled}' AS bigint) * 1000,
                CAST(b.config ->> 'erase_data' AS boolean)
            INTO v_expire_at, v_erases
            FROM timer_biz AS b
            WHERE b.biz_type = v_biz_type;
            EXECUTE format(
                'UPDATE %I AS t
                SET status = 3, finish_time = $2, expire_at = $3,
                    lease_until = NULL, next_at = NULL,
                    content_type = CASE
                        WHEN $4 AND t.biz_data IS NOT NULL THEN ''erased'' ELSE t.content_type
                    END,
                    biz_data = CASE WHEN NOT $4 THEN t.biz_data END
                WHERE t.ctid = ANY ($1)',
                wheel_partition_v1(v_slot)
            ) USING v_part, v_now, v_now + coalesce(v_expire_at, p_retention_ms),
                coalesce(v_erases, false);
        END LOOP;

        PERFORM wheel_ledger_v1(
            array_fill(128, ARRAY[cardinality(v_ids)]), v_biz_types, v_places, v_creates
        );
        IF v_lost IS NOT NULL THEN
            INSERT INTO timer_attempt (task_id, attempt, life, outcome, error_class, error)
            SELECT l.task_id, l.attempt, l.life, 'lost', 'lost',
                'who had it did not report before the lease ran out'
            FROM unnest(v_lost, v_attempts, v_lives) AS l(task_id, attempt, life)
            ON CONFLICT DO NOTHING;
        END IF;
    END LOOP;

    PERFORM FROM timer_requeue AS q WHERE q.task_id = ANY (v_ended) ORDER BY q.task_id FOR UPDATE;
    IF FOUND THEN
        DELETE FROM timer_requeue AS q WHERE q.task_id = ANY (v_ended);
    END IF;
    RETURN cardinality(v_ended);
END
$$;

-- One chunk, or one shard's part of it: change its tasks and count them. At most 1,000.
--
-- In:  p_verb: of wheel_change_v1, or purge; p_sets: as there, for cancel; p_shift_ms: of a shift,
--      which keeps within what timer_task takes; p_due, p_gap_ms: when the first of what becomes
--      due is published, and how long after it the next. A task with another revision than it was
--      found with is skipped.
-- Out: tasks changed.
-- Locks: those of wheel_cancel_pending_v1, wheel_change_v1 or wheel_purge_v1, then the operation's
-- row.
CREATE FUNCTION wheel_operate_v1(
    p_operation_id uuid, p_step integer, p_key jsonb, p_is_done boolean,
    p_shard smallint, p_verb text, p_sets integer, p_task_ids uuid[], p_start_times bigint[],
    p_revisions integer[], p_shift_ms bigint, p_due bigint, p_gap_ms double precision,
    p_retention_ms bigint, p_lookahead_ms bigint
) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
    v_to_times bigint[];
    v_dues     bigint[];
    v_verdicts text[];
    v_done     bigint;
BEGIN
    IF p_verb = 'purge' THEN
        v_done := wheel_purge_v1(p_shard, p_task_ids, p_start_times, p_revisions);
    ELSIF p_verb = 'cancel' AND p_sets = 0 THEN
        v_done := wheel_cancel_pending_v1(
            p_shard, p_task_ids, p_start_times, p_revisions, p_retention_ms
        );
    ELSE
        IF p_verb <> 'cancel' THEN
            SELECT
                array_agg(
                    CASE
                        WHEN p_shift_ms IS NOT NULL THEN
                            least(greatest(s.place + p_shift_ms, 946684800000), 253402300799999)
                    END ORDER BY s.position
                ),
                array_agg(
                    p_due + CAST(floor((s.position - 1) * p_gap_ms) AS bigint) ORDER BY s.position
                )
            INTO v_to_times, v_dues
            FROM unnest(p_start_times) WITH ORDINALITY AS s(place, position);
        END IF;
        SELECT c.verdicts INTO v_verdicts
        FROM wheel_change_v1(
            p_shard, p_task_ids, p_start_times,
            array_fill(p_verb, ARRAY[cardinality(p_task_ids)]), p_revisions, v_to_times, v_dues,
            array_fill(p_sets, ARRAY[cardinality(p_task_ids)]), NULL, NULL, NULL, NULL, NULL, NULL,
            NULL, p_retention_ms, p_lookahead_ms
        ) AS c;
        SELECT count(*) INTO v_done
        FROM unnest(v_verdicts) AS d(verdict)
        WHERE d.verdict IN ('done', 'revived', 'stopping');
    END IF;
    PERFORM wheel_operation_step_v1(
        p_operation_id, p_step, cardinality(p_task_ids), v_done, 0, p_key, p_is_done
    );
    RETURN v_done;
END
$$;

-- Delete tasks of one shard, with all that belongs to them: keys, requeue and dead rows, attempts,
-- the row at home that forwards. What somebody is calling right now stays, but where its biz_type
-- is deleted: nobody would look after it once the call has failed. What has another revision stays.
-- At most 1,000, each named once, in any order. Returns how many went.
-- Locks: fence shared, keys sorted, task rows by place, requeue rows by task_id, dead rows by
-- task_id.
CREATE FUNCTION wheel_purge_v1(
    p_shard smallint, p_task_ids uuid[], p_start_times bigint[], p_revisions integer[]
) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '5s'
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    v_now       bigint;
    v_biz_types text[];
    v_biz_ids   text[];
    v_tids      tid[];
    v_places    bigint[];
    v_ids       uuid[];
    v_slot      integer;
    v_edges     integer[];
    v_types     text[];
    v_from      bigint[];
    v_creates   bigint[];
BEGIN
    PERFORM wheel_fence_v1(p_shard);
    v_now := wheel_now_ms();

    -- A key is locked before its task; whether it is this task's, the key alone says.
    SELECT array_agg(l.biz_type), array_agg(l.biz_id) INTO v_biz_types, v_biz_ids
    FROM (
        SELECT t.biz_type, t.biz_id, t.task_id
        FROM wheel_find_v1(p_task_ids) AS t
        WHERE t.biz_id IS NOT NULL
        ORDER BY t.biz_type, t.biz_id
    ) AS w
    CROSS JOIN LATERAL (
        SELECT k.biz_type, k.biz_id
        FROM timer_key AS k
        WHERE k.biz_type = w.biz_type AND k.biz_id = w.biz_id AND k.task_id = w.task_id
        FOR UPDATE
    ) AS l;

    WITH asked AS MATERIALIZED (
        SELECT r.task_id, r.place, r.revision, wheel_home_v1(r.task_id) AS home
        FROM unnest(p_task_ids, p_start_times, p_revisions) AS r(task_id, place, revision)
    ), locked AS MATERIALIZED (
        SELECT l.*
        FROM (
            SELECT array_agg(p.task_id) AS task_ids, array_agg(p.place) AS places
            FROM (
                SELECT a.task_id, a.place FROM asked AS a
                UNION
                SELECT a.task_id, a.home FROM asked AS a
            ) AS p
        ) AS g
        CROSS JOIN LATERAL wheel_lock_v1(p_shard, g.task_ids, g.places) AS l
    ), gone AS MATERIALIZED (
        SELECT k.task_id
        FROM asked AS a
        JOIN locked AS k ON k.task_id = a.task_id AND k.start_time = a.place
        WHERE k.status <> 4
            AND k.revision = a.revision
            AND (
                k.status <> 0 OR k.lease_until IS NULL OR k.lease_until <= v_now
                OR NOT EXISTS (SELECT FROM timer_biz AS b WHERE b.biz_type = k.biz_type)
            )
    )
    SELECT array_agg(DISTINCT g.task_id), array_agg(l.tid), array_agg(l.start_time),
        array_agg(256 << l.status) FILTER (WHERE l.status <> 4),
        array_agg(l.biz_type) FILTER (WHERE l.status <> 4),
        array_agg(l.start_time) FILTER (WHERE l.status <> 4),
        array_agg(l.create_time) FILTER (WHERE l.status <> 4)
    INTO v_ids, v_tids, v_places, v_edges, v_types, v_from, v_creates
    FROM gone AS g
    JOIN locked AS l ON l.task_id = g.task_id;
    IF v_ids IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM wheel_ledger_v1(v_edges, v_types, v_from, v_creates);

    FOR v_slot IN
        SELECT DISTINCT CAST((p.place / 1000) % 10000000 AS integer) / 100000 * 100000
        FROM unnest(v_places) AS p(place)
    LOOP
        EXECUTE format(
            'DELETE FROM %I AS t
            USING unnest($1, $2) AS c(tid, place)
            WHERE t.ctid = c.tid
                AND CAST((c.place / 1000) %% 10000000 AS integer) / 100000 * 100000 = $3',
            wheel_partition_v1(v_slot)
        ) USING v_tids, v_places, v_slot;
    END LOOP;

    PERFORM FROM timer_requeue AS q WHERE q.task_id = ANY (v_ids) ORDER BY q.task_id FOR UPDATE;
    DELETE FROM timer_requeue AS q WHERE q.task_id = ANY (v_ids);
    PERFORM FROM timer_dead AS d WHERE d.task_id = ANY (v_ids) ORDER BY d.task_id FOR UPDATE;
    DELETE FROM timer_dead AS d WHERE d.task_id = ANY (v_ids);
    DELETE FROM timer_attempt AS a WHERE a.task_id = ANY (v_ids);
    DELETE FROM timer_key AS k
    USING unnest(v_biz_types, v_biz_ids) AS w(biz_type, biz_id)
    WHERE k.biz_type = w.biz_type AND k.biz_id = w.biz_id AND k.task_id = ANY (v_ids);
    RETURN cardinality(v_ids);
END
$$;
