-- name: is_replica
-- Whether this server only follows another one.
-- In:    nothing
-- Out:   boolean
-- Locks: none
SELECT pg_is_in_recovery()

-- name: repair_lost
-- Cover tasks of one shard that nothing would look at again.
-- In:    shard; task_ids uuid[], start_times bigint[] (ms), at most 1,000; actor text
-- Out:   uuid[]: those that were covered
-- Locks: fence shared, task rows by place, requeue rows by task_id
SELECT wheel_repair_lost_v1(
    CAST(:shard AS smallint), CAST(:task_ids AS uuid[]), CAST(:start_times AS bigint[]),
    CAST(:actor AS text)
)

-- name: repair_orphans
-- Drop requeue rows of one shard that lead nowhere; put those behind the due hand ahead of it.
-- In:    shard; task_ids uuid[], at most 1,000; actor text
-- Out:   uuid[]: those that were changed
-- Locks: fence shared, requeue rows by task_id
SELECT wheel_repair_orphans_v1(
    CAST(:shard AS smallint), CAST(:task_ids AS uuid[]), CAST(:actor AS text)
)

-- name: repair_misplaced
-- Drop keys, dead letters or forwarding rows that lead nowhere.
-- In:    what: key, dead or address; task_ids uuid[], at most 1,000; actor text
-- Out:   uuid[]: the task_ids of what was dropped
-- Cost:  for keys one look at all of them
-- Locks: those rows, by task_id
SELECT wheel_repair_misplaced_v1(
    CAST(:what AS text), CAST(:task_ids AS uuid[]), CAST(:actor AS text)
)
