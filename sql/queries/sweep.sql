-- name: sweep
-- One page of the sweep hand.
-- In:    shard, epoch, after, to, key_time bigint (ms), key_id uuid, limit, and one array
--        element a slow lane: slow (its biz_type), waits (ms)
-- Out:   seen, added, last_time, last_id, swept_to; WT001 where another epoch leads
-- Cost:  as due, plus one insert for each task found
-- Locks: fence shared, requeue rows by task_id, pointer row
SELECT s.seen, s.added, s.last_time, s.last_id, s.swept_to
FROM wheel_sweep_v1(
    CAST(:shard AS smallint), CAST(:epoch AS bigint), CAST(:after AS bigint),
    CAST(:to AS bigint), CAST(:key_time AS bigint), CAST(:key_id AS uuid), CAST(:limit AS integer),
    CAST(:slow AS text[]), CAST(:waits AS bigint[])
) AS s
