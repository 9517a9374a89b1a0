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
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    SELECT count(*), array_agg(r.task_id) FILTER (WHERE r.reason = 'published'),
        (array_agg(r.due_at))[count(*)], (array_agg(r.task_id))[count(*)]
    INTO seen, v_ids, last_due, last_id
    FROM (
        SELECT q.task_id, q.due_at, q.reason
        FROM timer_requeue AS q
        WHERE q.shard = p_shard AND q.due_at >= p_after_due
            AND (q.due_at, q.task_id) > (p_after_due, p_after_id)
        ORDER BY q.shard, q.due_at, q.task_id
        LIMIT p_limit
    ) AS r;

    UPDATE timer_requeue AS q
    SET due_at = v_closed + 1
    FROM (
        SELECT w.task_id
        FROM unnest(v_ids) AS i(task_id)
        JOIN timer_requeue AS w ON w.task_id = i.task_id
        WHERE w.reason = 'published' AND w.due_at > v_closed + 1
        ORDER BY w.task_id
        FOR UPDATE OF w
    ) AS l
    WHERE q.task_id = l.task_id;
    GET DIAGNOSTICS pulled = ROW_COUNT;

    PERFORM FROM timer_pointer AS p WHERE p.shard = p_shard AND p.epoch = p_epoch FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'leadership lost'
            USING ERRCODE = 'WT001', DETAIL = p_shard || ' ' || p_epoch;
    END IF;
END
$$;
