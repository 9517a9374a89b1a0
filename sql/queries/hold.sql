-- name: hold
-- Give tasks of one shard and partition a requeue row far ahead: their lane is held.
-- In:    one array element a task, in place order; see wheel_hold_v1
-- Out:   integer: how many are held now
-- Cost:  one descent and one requeue row a task
-- Locks: fence shared, task rows in place order, requeue rows by task_id
SELECT wheel_hold_v1(
    CAST(:shard AS smallint), CAST(:slot_lo AS integer), CAST(:slot_hi AS integer),
    CAST(:task_ids AS uuid[]), CAST(:start_times AS bigint[]), CAST(:due_ats AS bigint[])
)

-- name: recall
-- Let retries of a biz_type come within spread_ms: the endpoint works again.
-- In:    shard, biz_type, spread_ms, limit
-- Out:   integer: how many were looked at; fewer than limit: no more wait
-- Cost:  one index range, one HOT update and one requeue update a row
-- Locks: fence shared, task rows by place, requeue rows by task_id
SELECT wheel_recall_v1(
    CAST(:shard AS smallint), CAST(:biz_type AS text), CAST(:spread_ms AS bigint),
    CAST(:limit AS integer)
)

-- name: held
-- The biz_types of which tasks are held.
-- In:    nothing
-- Out:   biz_type
-- Cost:  one index descent each
-- Locks: none
SELECT h FROM wheel_held_v1() AS h
