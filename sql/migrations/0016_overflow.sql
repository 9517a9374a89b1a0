-- breaking: no
-- Locks: none; creates functions.
--
-- What the hands do where the event center cannot take, or has lost, what is due.

-- Pull a page of what a publish had re-armed in front of the due hand: the event center lost it.
-- Rows behind the key (p_after_due, p_after_id) in order of (due_at, task_id); at most p_limit are
-- looked at. What is in the middle of its call is put off to its lease's end by the hand.
-- Out: seen, fewer than p_limit: that was all; pulled; last_due, last_id: the key to go on from.
-- Locks: fence shared, requeue rows by task_id, pointer row.
CREATE FUNCTION wheel_pull_v1(
    p_shard smallint, p_epoch bigint, p_after_due bigint, p_after_id uuid, p_limit integer,
    OUT seen integer, OUT pulled integer, OUT last_due bigint, OUT last_id uuid
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
    v_closed bigint;
    v_ids    uuid[];
    v_tids   tid[];
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    SELECT count(*), array_agg(r.task_id) FILTER (WHERE r.reason = 'published'),
        (array_agg(r.due_at))[count(*)], (array_agg(r.task_id))[count(*)]
    INTO seen, v_ids, last_due, last_id
    FROM (
        SELECT q.task_id, q.due_at, q.reason
        FROM timer_requeue AS q
        WHERE q.shard = p_shard AND q.due_at >= p_after_due
            AND (q.due_at, uuid_send(q.task_id)) > (p_after_due, uuid_send(p_after_id))
        ORDER BY q.shard, q.due_at, uuid_send(q.task_id)
        LIMIT p_limit
    ) AS r;

    SELECT array_agg(l.tid) FILTER (WHERE l.reason = 'published' AND l.due_at > v_closed + 1)
    INTO v_tids
    FROM (
        SELECT w.ctid AS tid, w.reason, w.due_at
        FROM timer_requeue AS w
        WHERE w.task_id = ANY (v_ids)
        ORDER BY w.task_id
        FOR UPDATE
    ) AS l;
    UPDATE timer_requeue AS q SET due_at = v_closed + 1 WHERE q.ctid = ANY (v_tids);
    GET DIAGNOSTICS pulled = ROW_COUNT;

    PERFORM FROM timer_pointer AS p WHERE p.shard = p_shard AND p.epoch = p_epoch FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'leadership lost'
            USING ERRCODE = 'WT001', DETAIL = p_shard || ' ' || p_epoch;
    END IF;
END
$$;

-- Tasks of one partition that were due and found no room in their lane, or no event center: each
-- gets a requeue row `overflow`, due at p_due_ats or later. Only where it is still pending at that
-- place: a row for a place that it has left would hide it from the sweep. One that waits for its
-- retry or release, or is held, keeps that row: it comes at its own time.
-- Returns how many were written. At most 1,000, in place order.
-- Locks: fence shared, task rows in the order given, requeue rows by task_id, pointer row.
CREATE FUNCTION wheel_overflow_v1(
    p_shard smallint, p_epoch bigint, p_slot_lo integer, p_slot_hi integer,
    p_task_ids uuid[], p_start_times bigint[], p_due_ats bigint[]
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
    v_written integer;
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    WITH there AS MATERIALIZED (
        SELECT k.*, r.due_at
        FROM unnest(p_task_ids, p_start_times, p_due_ats) AS r(task_id, start_time, due_at)
        CROSS JOIN LATERAL (
            SELECT t.task_id, t.start_time, t.biz_type
            FROM timer_task AS t
            WHERE t.slot BETWEEN p_slot_lo AND p_slot_hi
                AND t.slot = CAST((r.start_time / 1000) % 10000000 AS integer)
                AND t.shard = p_shard
                AND t.start_time = r.start_time
                AND t.task_id = r.task_id
                AND t.status = 0
            LIMIT 1
            FOR SHARE
        ) AS k
    ), written AS (
        INSERT INTO timer_requeue AS q (task_id, shard, start_time, due_at, biz_type, reason)
        SELECT h.task_id, p_shard, h.start_time, greatest(h.due_at, v_closed + 1), h.biz_type,
            'overflow'
        FROM there AS h
        ORDER BY h.task_id
        ON CONFLICT (task_id) DO UPDATE
        SET due_at = EXCLUDED.due_at, start_time = EXCLUDED.start_time, shard = EXCLUDED.shard,
            reason = EXCLUDED.reason
        WHERE q.reason NOT IN ('retry', 'release', 'held')
        RETURNING q.task_id
    )
    SELECT count(*) INTO v_written FROM written;
    PERFORM FROM timer_pointer AS p WHERE p.shard = p_shard AND p.epoch = p_epoch FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'leadership lost'
            USING ERRCODE = 'WT001', DETAIL = p_shard || ' ' || p_epoch;
    END IF;
    RETURN v_written;
END
$$;

-- Pull a biz_type's overflow rows in front of the due hand, the first in line first: its lane has
-- room. Returns how many; fewer than p_limit: no more wait in this shard.
-- Locks: fence shared, requeue rows (those that somebody else has are passed over), pointer row.
CREATE FUNCTION wheel_fill_v1(
    p_shard smallint, p_epoch bigint, p_biz_type text, p_limit integer
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
    v_closed bigint;
    v_tids   tid[];
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    SELECT array_agg(w.tid) INTO v_tids
    FROM (
        SELECT q.ctid AS tid
        FROM timer_requeue AS q
        WHERE q.biz_type = p_biz_type AND q.reason = 'overflow' AND q.shard = p_shard
            -- What was pulled before, and was not yet read by the hand, stays where it is.
            AND q.due_at > v_closed + 1
        ORDER BY q.due_at, q.task_id
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    ) AS w;
    UPDATE timer_requeue AS q SET due_at = v_closed + 1 WHERE q.ctid = ANY (v_tids);
    PERFORM FROM timer_pointer AS p WHERE p.shard = p_shard AND p.epoch = p_epoch FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'leadership lost'
            USING ERRCODE = 'WT001', DETAIL = p_shard || ' ' || p_epoch;
    END IF;
    RETURN coalesce(cardinality(v_tids), 0);
END
$$;

-- The biz_types of which any task waits in line for its lane, when the last row is due, and when
-- the first one's task was: three index descents for each of them.
CREATE FUNCTION wheel_lines_v1(p_shard smallint)
RETURNS TABLE (biz_type text, last_due bigint, first_start bigint)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
BEGIN
    biz_type := '';
    LOOP
        SELECT q.biz_type INTO biz_type
        FROM timer_requeue AS q
        WHERE q.reason = 'overflow' AND q.biz_type > wheel_lines_v1.biz_type
        ORDER BY q.biz_type
        LIMIT 1;
        EXIT WHEN NOT FOUND;
        SELECT q.due_at INTO last_due
        FROM timer_requeue AS q
        WHERE q.biz_type = wheel_lines_v1.biz_type AND q.reason = 'overflow' AND q.shard = p_shard
        ORDER BY q.due_at DESC, q.task_id DESC
        LIMIT 1;
        IF FOUND THEN
            SELECT q.start_time INTO first_start
            FROM timer_requeue AS q
            WHERE q.biz_type = wheel_lines_v1.biz_type AND q.reason = 'overflow'
                AND q.shard = p_shard
            ORDER BY q.due_at, q.task_id
            LIMIT 1;
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;

-- Take the first rows of each biz_type, at most p_limits of it, for a broker that needs no event
-- center to call them: they become `published`, due after p_visibility_ms. Nothing that is due
-- later than p_lookahead_ms from now.
-- In:  p_reason: overflow, who stands in line; held, what a held lane put away.
-- Out: moment: when to call. A row of what the due hand could not publish is due a visibility time
-- after its task's moment; of any other row in line this may not be told, and its moment has
-- passed.
-- What was held has its start_time: where it stands among what is new, the broker decides.
-- Locks: fence shared, requeue rows (those that somebody else has are passed over).
CREATE FUNCTION wheel_fetch_v1(
    p_shard smallint, p_reason text, p_biz_types text[], p_limits integer[],
    p_visibility_ms bigint, p_lookahead_ms bigint
) RETURNS TABLE (task_id uuid, start_time bigint, moment bigint, fetched bigint, biz_type text)
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
#variable_conflict use_column
DECLARE
    v_closed  bigint;
    v_now     bigint;
    v_tids    tid[];
    v_moments bigint[];
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    v_now := wheel_now_ms();
    FOR i IN 1..coalesce(cardinality(p_biz_types), 0) LOOP
        SELECT array_agg(w.tid), array_agg(w.moment) INTO v_tids, v_moments
        FROM (
            SELECT q.ctid AS tid, q.due_at - p_visibility_ms AS moment
            FROM timer_requeue AS q
            WHERE q.biz_type = p_biz_types[i] AND q.reason = p_reason AND q.shard = p_shard
                AND q.start_time <= v_now + p_lookahead_ms
            ORDER BY q.due_at, q.task_id
            LIMIT p_limits[i]
            FOR UPDATE SKIP LOCKED
        ) AS w;
        RETURN QUERY
        UPDATE timer_requeue AS q
        SET reason = 'published', due_at = greatest(v_now + p_visibility_ms, v_closed + 1)
        FROM unnest(v_tids, v_moments) AS f(tid, moment)
        WHERE q.ctid = f.tid
        RETURNING q.task_id, q.start_time,
            CASE
                WHEN p_reason = 'held' THEN q.start_time
                WHEN f.moment BETWEEN v_now AND v_now + p_lookahead_ms THEN f.moment
                ELSE q.start_time
            END,
            v_now, q.biz_type;
    END LOOP;
END
$$;

-- What a broker has fetched and does not call comes again at once, not after its visibility time:
-- the hand publishes it, or puts it back into the line. At most 1,000. Only rows that a fetch, or a
-- publish, has armed; of any other, somebody has thought anew since.
-- Locks: fence shared, requeue rows by task_id.
CREATE FUNCTION wheel_unfetch_v1(p_shard smallint, p_task_ids uuid[]) RETURNS void
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
    v_closed bigint;
    v_tids   tid[];
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    SELECT array_agg(l.tid) FILTER (
        WHERE l.reason = 'published' AND l.shard = p_shard AND l.due_at > v_closed + 1
    )
    INTO v_tids
    FROM (
        SELECT w.ctid AS tid, w.shard, w.reason, w.due_at
        FROM timer_requeue AS w
        WHERE w.task_id = ANY (p_task_ids)
        ORDER BY w.task_id
        FOR UPDATE
    ) AS l;
    UPDATE timer_requeue AS q SET due_at = v_closed + 1 WHERE q.ctid = ANY (v_tids);
END
$$;
