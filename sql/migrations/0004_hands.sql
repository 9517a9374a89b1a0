-- breaking: no
-- Locks: none; creates functions.
--
-- What the hands do. The wheel is read second by second, each by equality on its slot, so the cost
-- does not depend on what lies behind the hand; the range of slots is named beside it as constants
-- and every plan is a custom one, so that planning touches the partitions of that range only.

-- Pending tasks with start_time in (p_after, p_to], in order of (start_time, task_id), from behind
-- p_after_id on within the millisecond p_after_time; at most p_limit. What is leased, or waits for
-- a later next_at, has a requeue row and is left out.
-- The range must not run over the ring's end (the caller splits it there).
CREATE FUNCTION wheel_due_v1(
    p_shard smallint, p_after bigint, p_to bigint,
    p_after_time bigint, p_after_id uuid, p_limit integer
) RETURNS TABLE (task_id uuid, start_time bigint, biz_type text)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    v_now        bigint := wheel_now_ms();
    v_first      bigint := (greatest(p_after + 1, p_after_time)) / 1000;
    v_last       bigint := p_to / 1000;
    v_slot_first integer := v_first % 10000000;
    v_slot_last  integer := v_last % 10000000;
BEGIN
    ASSERT v_last < v_first OR v_slot_first <= v_slot_last, 'the range runs over the ring''s end';
    RETURN QUERY
    SELECT d.task_id, d.start_time, d.biz_type
    FROM generate_series(v_first, v_last) AS s(second)
    CROSS JOIN LATERAL (
        SELECT t.task_id, t.start_time, t.biz_type
        FROM timer_task AS t
        WHERE t.slot BETWEEN v_slot_first AND v_slot_last
            AND t.slot = CAST(s.second % 10000000 AS integer)
            AND t.shard = p_shard
            AND t.start_time > p_after
            AND t.start_time BETWEEN s.second * 1000 AND least(s.second * 1000 + 999, p_to)
            AND (t.start_time, t.task_id) > (p_after_time, p_after_id)
            AND t.status = 0
            AND (t.lease_until IS NULL OR t.lease_until <= v_now)
            AND (t.next_at IS NULL OR t.next_at <= p_to)
        ORDER BY t.slot, t.shard, t.start_time, t.task_id
        LIMIT p_limit
    ) AS d
    LIMIT p_limit;
END
$$;

-- The first second in [p_first, p_last] whose slot holds any row at all, of any lap; null where
-- there is none. One descent jumps over an empty day. VOLATILE: as wheel_requeue_due_v1.
CREATE FUNCTION wheel_skip_v1(p_first bigint, p_last bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
DECLARE
    v_slot_first integer := p_first % 10000000;
    v_slot_last  integer := p_last % 10000000;
    v_slot       integer;
BEGIN
    ASSERT v_slot_first <= v_slot_last, 'the range runs over the ring''s end';
    SELECT t.slot INTO v_slot
    FROM timer_task AS t
    WHERE t.slot BETWEEN v_slot_first AND v_slot_last
    ORDER BY t.slot
    LIMIT 1;
    RETURN p_first + (v_slot - v_slot_first);
END
$$;

-- Whether anything is due in (p_after, p_to]; nothing is closed or written for it.
CREATE FUNCTION wheel_look_v1(p_shard smallint, p_after bigint, p_to bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM timer_requeue AS q
        WHERE q.shard = p_shard AND q.due_at > p_after AND q.due_at <= p_to
    ) OR EXISTS (
        SELECT FROM wheel_due_v1(
            p_shard, p_after, p_to, p_after, CAST('00000000-0000-0000-0000-000000000000' AS uuid), 1
        )
    );
END
$$;

-- The name of the partition that holds a slot.
CREATE FUNCTION wheel_partition_v1(p_slot integer) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT 'timer_task_' || lpad(CAST(p_slot / 100000 AS text), 2, '0')
$$;

-- Requeue rows with due_at in (p_after, p_to], from behind the given key on in order of (due_at,
-- task_id), at most p_limit, each with what its task says now (nulls: the task is gone). They come
-- grouped by partition. Each partition is named in a text of its own: a join that the planner has
-- to consider for all of them takes 17 ms to plan, and Postgres up to 17 locks them all.
-- VOLATILE, so that each partition is read by a snapshot taken once it is locked: an older one
-- would not see the tasks that the reap hand has carried over a TRUNCATE, and their requeue rows
-- would be dropped.
-- p_again: retries, releases, runs and replays; else all others, which go into a lane first.
CREATE FUNCTION wheel_requeue_due_v1(
    p_shard smallint, p_again boolean, p_after bigint, p_to bigint,
    p_after_due bigint, p_after_id uuid, p_limit integer
) RETURNS TABLE (
    task_id uuid, start_time bigint, due_at bigint, biz_type text, reason text,
    status smallint, lease_until bigint, next_at bigint
)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    v_ids        uuid[];
    v_starts     bigint[];
    v_dues       bigint[];
    v_biz_types  text[];
    v_reasons    text[];
    v_first_slot integer;
BEGIN
    SELECT array_agg(q.task_id), array_agg(q.start_time), array_agg(q.due_at),
        array_agg(q.biz_type), array_agg(q.reason)
    INTO v_ids, v_starts, v_dues, v_biz_types, v_reasons
    FROM (
        SELECT r.task_id, r.start_time, r.due_at, r.biz_type, r.reason
        FROM timer_requeue AS r
        WHERE r.shard = p_shard
            AND r.due_at > p_after
            AND r.due_at <= p_to
            AND (r.due_at, uuid_send(r.task_id)) > (p_after_due, uuid_send(p_after_id))
            AND (r.reason IN ('retry', 'release', 'run', 'replay')) = p_again
        ORDER BY r.shard, r.due_at, uuid_send(r.task_id)
        LIMIT p_limit
    ) AS q;

    FOR v_first_slot IN
        SELECT DISTINCT CAST((s.start_time / 1000) % 10000000 / 100000 * 100000 AS integer)
        FROM unnest(v_starts) AS s(start_time)
    LOOP
        RETURN QUERY EXECUTE format(
            'SELECT r.task_id, r.start_time, r.due_at, r.biz_type, r.reason,
                t.status, t.lease_until, t.next_at
            FROM unnest($1, $2, $3, $4, $5) AS r(task_id, start_time, due_at, biz_type, reason)
            LEFT JOIN LATERAL (
                SELECT k.status, k.lease_until, k.next_at
                FROM %I AS k
                WHERE k.slot = CAST((r.start_time / 1000) %% 10000000 AS integer)
                    AND k.shard = $6
                    AND k.start_time = r.start_time
                    AND k.task_id = r.task_id
                LIMIT 1
            ) AS t ON true
            WHERE (r.start_time / 1000) %% 10000000 / 100000 * 100000 = $7',
            wheel_partition_v1(v_first_slot)
        ) USING v_ids, v_starts, v_dues, v_biz_types, v_reasons, p_shard, v_first_slot;
    END LOOP;
END
$$;

-- Give a page of requeue rows their next moment, or drop them: after the page was published.
-- p_again: ms for a row that stays (published ones: now + visibility; leased or waiting ones: the
-- end of that), null for a row whose task is settled. Only where due_at <= p_to still: a release or
-- a replay may have written a later one meanwhile. p_reasons: published, or overflow where its lane
-- did not take it; null: as before.
-- Returns how many rows were changed. Locks: fence shared, requeue rows by task_id, pointer last.
CREATE FUNCTION wheel_rearm_v1(
    p_shard smallint, p_epoch bigint, p_to bigint,
    p_task_ids uuid[], p_again bigint[], p_reasons text[]
) RETURNS integer
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
    v_closed  bigint;
    v_dropped integer;
    v_moved   integer;
    v_drops   tid[];
    v_tids    tid[];
    v_again   bigint[];
    v_reasons text[];
BEGIN
    v_closed := wheel_fence_v1(p_shard);

    -- Here and wherever requeue rows are looked up: by task_id and nothing else, then by where the
    -- lock holds them. Any other condition, or a join that can be turned round, is another way for
    -- a planner who believes the table to be empty (see timer_requeue_due); and a condition around
    -- a SELECT without LIMIT is moved into it.
    SELECT array_agg(k.tid) FILTER (WHERE r.again IS NULL),
        array_agg(k.tid) FILTER (WHERE r.again IS NOT NULL),
        array_agg(r.again) FILTER (WHERE r.again IS NOT NULL),
        array_agg(r.reason) FILTER (WHERE r.again IS NOT NULL)
    INTO v_drops, v_tids, v_again, v_reasons
    FROM (
        SELECT *
        FROM unnest(p_task_ids, p_again, p_reasons) AS u(task_id, again, reason)
        ORDER BY u.task_id
    ) AS r
    CROSS JOIN LATERAL (
        SELECT q.ctid AS tid, q.due_at
        FROM timer_requeue AS q
        WHERE q.task_id = r.task_id
        LIMIT 1
        FOR UPDATE
    ) AS k
    WHERE k.due_at <= p_to;

    DELETE FROM timer_requeue AS q WHERE q.ctid = ANY (v_drops);
    GET DIAGNOSTICS v_dropped = ROW_COUNT;

    UPDATE timer_requeue AS q
    SET due_at = greatest(r.again, v_closed + 1),
        reason = coalesce(r.reason, q.reason)
    FROM unnest(v_tids, v_again, v_reasons) AS r(tid, again, reason)
    WHERE q.ctid = r.tid;
    GET DIAGNOSTICS v_moved = ROW_COUNT;

    PERFORM FROM timer_pointer AS p WHERE p.shard = p_shard AND p.epoch = p_epoch FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'leadership lost'
            USING ERRCODE = 'WT001', DETAIL = p_shard || ' ' || p_epoch;
    END IF;
    RETURN v_dropped + v_moved;
END
$$;

-- Requeue rows that the hand has passed: there are none, and one found is an alarm. They are put
-- ahead of it again. Returns how many. At most 1,000.
CREATE FUNCTION wheel_rescue_v1(p_shard smallint, p_epoch bigint) RETURNS integer
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '5s'
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET jit = off
AS $$
DECLARE
    v_closed  bigint;
    v_current bigint;
    v_ids     uuid[];
    v_tids    tid[];
    v_rescued integer := 0;
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    SELECT p."current_time" INTO v_current FROM timer_pointer AS p WHERE p.shard = p_shard;
    -- By the index on due_at: most rows lie ahead, and there may be millions of them.
    SELECT array_agg(b.task_id) INTO v_ids
    FROM (
        SELECT r.task_id
        FROM timer_requeue AS r
        WHERE r.shard = p_shard AND r.due_at <= v_current
        ORDER BY r.shard, r.due_at, uuid_send(r.task_id)
        LIMIT 1000
    ) AS b;
    IF v_ids IS NOT NULL THEN
        SELECT array_agg(l.tid) FILTER (WHERE l.due_at <= v_current) INTO v_tids
        FROM (
            SELECT r.ctid AS tid, r.due_at
            FROM timer_requeue AS r
            WHERE r.task_id = ANY (v_ids)
            ORDER BY r.task_id
            FOR UPDATE
        ) AS l;
        UPDATE timer_requeue AS q SET due_at = v_closed + 1 WHERE q.ctid = ANY (v_tids);
        GET DIAGNOSTICS v_rescued = ROW_COUNT;
    END IF;
    PERFORM FROM timer_pointer AS p WHERE p.shard = p_shard AND p.epoch = p_epoch FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'leadership lost'
            USING ERRCODE = 'WT001', DETAIL = p_shard || ' ' || p_epoch;
    END IF;
    RETURN v_rescued;
END
$$;

-- Everything up to p_current was published. Never back.
CREATE FUNCTION wheel_advance_v1(
    p_shard smallint, p_epoch bigint, p_current bigint
) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '1s'
AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE timer_pointer AS p
    SET "current_time" = greatest(p."current_time", p_current)
    WHERE p.shard = p_shard AND p.epoch = p_epoch;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'leadership lost'
            USING ERRCODE = 'WT001', DETAIL = p_shard || ' ' || p_epoch;
    END IF;
END
$$;

-- One page of the sweep: pending tasks in (sweep_time, p_to] get a requeue row where they have
-- none, and sweep_time goes to the last complete millisecond. p_to must lie at or before the
-- persisted current_time, and (sweep_time, p_to] must not run over the ring's end.
--
-- p_after_time, p_after_id: where the page before this one ended within its millisecond.
-- p_slow, p_waits: lanes in which a reference waits for so many ms, more than a visibility time.
-- Theirs are not lost: they get a row at twice that wait.
-- Out: seen        pending rows of this page; fewer than p_limit: the range is done
--      added       of them, those that had no requeue row and no lease and are not of a slow lane:
--                  what was lost on its way
--      last_time, last_id  the key to go on from
--      swept_to    sweep_time now
-- Locks: fence shared, task rows by place, requeue rows by task_id, pointer last.
CREATE FUNCTION wheel_sweep_v1(
    p_shard smallint, p_epoch bigint, p_from bigint, p_to bigint,
    p_after_time bigint, p_after_id uuid, p_limit integer, p_slow text[], p_waits bigint[],
    OUT seen integer, OUT added integer, OUT last_time bigint, OUT last_id uuid,
    OUT swept_to bigint
)
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
    v_closed     bigint;
    v_now        bigint;
    v_first      bigint := (greatest(p_from + 1, p_after_time)) / 1000;
    v_last       bigint := p_to / 1000;
    v_slot_first integer := v_first % 10000000;
    v_slot_last  integer := v_last % 10000000;
    v_leased     integer;
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    v_now := wheel_now_ms();
    ASSERT v_last < v_first OR v_slot_first <= v_slot_last, 'the range runs over the ring''s end';

    WITH page AS MATERIALIZED (
        SELECT d.*
        FROM generate_series(v_first, v_last) AS s(second)
        CROSS JOIN LATERAL (
            SELECT t.task_id, t.start_time, t.biz_type, t.lease_until, t.next_at
            FROM timer_task AS t
            WHERE t.slot BETWEEN v_slot_first AND v_slot_last
                AND t.slot = CAST(s.second % 10000000 AS integer)
                AND t.shard = p_shard
                AND t.start_time > p_from
                AND t.start_time BETWEEN s.second * 1000 AND least(s.second * 1000 + 999, p_to)
                AND (t.start_time, t.task_id) > (p_after_time, p_after_id)
                AND t.status = 0
            ORDER BY t.slot, t.shard, t.start_time, t.task_id
            LIMIT p_limit
            -- Still pending at this place when its row is written: a task that was moved meanwhile
            -- would be hidden from the next sweep by a row that names its old place.
            FOR SHARE
        ) AS d
        LIMIT p_limit
    ), inserted AS (
        INSERT INTO timer_requeue (task_id, shard, start_time, due_at, biz_type, reason)
        SELECT g.task_id, p_shard, g.start_time,
            greatest(
                v_closed + 1, g.lease_until, g.next_at,
                v_now + 2 * p_waits[array_position(p_slow, g.biz_type)]
            ),
            g.biz_type,
            CASE WHEN g.biz_type = ANY (p_slow) THEN 'published' ELSE 'sweep' END
        FROM page AS g
        ORDER BY g.task_id
        ON CONFLICT (task_id) DO NOTHING
        RETURNING timer_requeue.task_id
    ), latest AS (
        SELECT g.start_time, g.task_id
        FROM page AS g
        ORDER BY g.start_time DESC, g.task_id DESC
        LIMIT 1
    )
    SELECT
        (SELECT count(*) FROM page),
        (SELECT count(*) FROM inserted AS i JOIN page AS g USING (task_id)
            WHERE (g.lease_until IS NULL OR g.lease_until <= v_now)
                AND g.biz_type <> ALL (p_slow)),
        (SELECT e.start_time FROM latest AS e),
        (SELECT e.task_id FROM latest AS e)
    INTO seen, added, last_time, last_id;

    UPDATE timer_pointer AS p
    SET sweep_time = greatest(
        p.sweep_time, least(
            p."current_time", CASE WHEN seen < p_limit THEN p_to ELSE last_time - 1 END
        )
    )
    WHERE p.shard = p_shard AND p.epoch = p_epoch
    RETURNING p.sweep_time INTO swept_to;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'leadership lost'
            USING ERRCODE = 'WT001', DETAIL = p_shard || ' ' || p_epoch;
    END IF;
END
$$;

-- A standby's look at a shard, in the session that would hold the leader's lock: whether the lock
-- was free because the leader is dead (and is ours now), and whether its lease has run out.
-- It polls and never waits: a waiting session holds a snapshot and stops vacuum everywhere.
CREATE FUNCTION wheel_lead_poll_v1(
    p_shard smallint, OUT locked boolean, OUT expired boolean
)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
    v_is_locked boolean;
BEGIN
    SELECT p.lease_until <= wheel_now_ms(), p.is_locked INTO expired, v_is_locked
    FROM timer_pointer AS p
    WHERE p.shard = p_shard;
    locked := pg_try_advisory_lock(wheel_lock_class('timer_requeue'), p_shard);
    IF locked AND NOT (expired OR v_is_locked) THEN
        -- The leader took the shard from one that was frozen, and has not got the lock yet.
        PERFORM pg_advisory_unlock(wheel_lock_class('timer_requeue'), p_shard);
        locked := false;
    END IF;
END
$$;

-- Become the leader under the next epoch: once the lease has run out, or at once with the lock that
-- the leader held in hand. No row: somebody was faster, or the lease still runs; the lock is let go
-- then, for in the hands of a standby it says nothing.
CREATE FUNCTION wheel_lead_take_v1(
    p_shard smallint, p_leader text, p_lease_ms bigint, p_locked boolean
) RETURNS TABLE (epoch bigint, "current_time" bigint, sweep_time bigint)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '1s'
AS $$
DECLARE
    v_now bigint := wheel_now_ms();
BEGIN
    RETURN QUERY
    UPDATE timer_pointer AS p
    SET leader = p_leader, epoch = p.epoch + 1, lease_until = v_now + p_lease_ms,
        is_locked = p_locked
    WHERE p.shard = p_shard AND (p.lease_until <= v_now OR p_locked AND p.is_locked)
    RETURNING p.epoch, p."current_time", p.sweep_time;
    IF NOT FOUND AND p_locked THEN
        PERFORM pg_advisory_unlock(wheel_lock_class('timer_requeue'), p_shard);
    END IF;
END
$$;

-- Extend the lease, and try for the lock where it is not ours yet (p_locked false). p_lease_ms 0
-- gives the lease back. Out: kept, false where the shard is somebody else's now; locked.
CREATE FUNCTION wheel_lead_renew_v1(
    p_shard smallint, p_epoch bigint, p_lease_ms bigint, p_locked boolean,
    OUT kept boolean, OUT locked boolean
)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '1s'
AS $$
BEGIN
    locked := p_locked OR (
        p_lease_ms > 0
        AND pg_try_advisory_lock(wheel_lock_class('timer_requeue'), p_shard)
    );
    UPDATE timer_pointer AS p
    SET lease_until = CASE WHEN p_lease_ms = 0 THEN 0 ELSE wheel_now_ms() + p_lease_ms END,
        is_locked = locked
    WHERE p.shard = p_shard AND p.epoch = p_epoch;
    kept := FOUND;
    IF NOT kept AND locked AND NOT p_locked THEN
        PERFORM pg_advisory_unlock(wheel_lock_class('timer_requeue'), p_shard);
        locked := false;
    END IF;
END
$$;

-- Raise our epoch above one seen in the event center (a database restored from a backup meets a
-- newer Redis). Null: somebody else leads.
CREATE FUNCTION wheel_lead_raise_v1(
    p_shard smallint, p_epoch bigint, p_seen bigint
) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '1s'
AS $$
DECLARE
    v_epoch bigint;
BEGIN
    UPDATE timer_pointer AS p
    SET epoch = greatest(p.epoch, p_seen) + 1
    WHERE p.shard = p_shard AND p.epoch = p_epoch
    RETURNING p.epoch INTO v_epoch;
    RETURN v_epoch;
END
$$;
