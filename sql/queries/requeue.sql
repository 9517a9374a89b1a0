-- name: requeue_due
-- A page of requeue rows with due_at in (after, to], behind the key (key_due, key_id).
-- In:    shard, again (retries, releases, runs, replays; else all others), after, to,
--        key_due bigint (ms), key_id uuid, limit
-- Out:   the rows in order of (due_at, task_id), each with status, lease_until, next_at of its task
-- Cost:  one index range, one descent a row, 0.2 ms a partition that their tasks lie in
-- Locks: none
SELECT q.task_id, q.start_time, q.due_at, q.biz_type, q.reason, q.status, q.lease_until, q.next_at
FROM wheel_requeue_due_v1(
    CAST(:shard AS smallint), CAST(:again AS boolean), CAST(:after AS bigint),
    CAST(:to AS bigint), CAST(:key_due AS bigint), CAST(:key_id AS uuid), CAST(:limit AS integer)
) AS q
ORDER BY q.due_at, q.task_id

-- name: rearm
-- Give a page of requeue rows their next moments, or drop them, where due_at <= :to still.
-- In:    shard, epoch, to, and one array element a row: task_id, again (ms, null: drop),
--        reason (null: as before)
-- Out:   integer: rows changed; WT001 where another epoch leads
-- Cost:  one update a row
-- Locks: fence shared, requeue rows by task_id, pointer row
SELECT wheel_rearm_v1(
    CAST(:shard AS smallint), CAST(:epoch AS bigint), CAST(:to AS bigint),
    CAST(:task_ids AS uuid[]), CAST(:again AS bigint[]), CAST(:reasons AS text[])
)

-- name: rescue
-- Put requeue rows that the hand has passed ahead of it.
-- In:    shard, epoch
-- Out:   integer: rows found; any is an alarm
-- Cost:  one index range that is empty
-- Locks: fence shared, requeue rows by task_id, pointer row
SELECT wheel_rescue_v1(CAST(:shard AS smallint), CAST(:epoch AS bigint))

-- name: pull
-- Pull a page of what a publish had re-armed in front of the due hand.
-- In:    shard, epoch, key_due bigint (ms), key_id uuid, limit
-- Out:   seen, pulled, last_due, last_id; WT001 where another epoch leads
-- Cost:  one index range; one update for each row that had been published
-- Locks: fence shared, requeue rows by task_id, pointer row
SELECT p.seen, p.pulled, p.last_due, p.last_id
FROM wheel_pull_v1(
    CAST(:shard AS smallint), CAST(:epoch AS bigint), CAST(:key_due AS bigint),
    CAST(:key_id AS uuid), CAST(:limit AS integer)
) AS p

-- name: overflow
-- Give tasks of one shard and partition a requeue row: their lanes did not take them.
-- In:    shard, epoch, slot_lo, slot_hi, and one array element a task, in place order: task_id,
--        start_time (ms), due_at (ms)
-- Out:   integer: rows written; WT001 where another epoch leads
-- Cost:  one descent and one requeue row a task
-- Locks: fence shared, task rows in place order, requeue rows by task_id, pointer row
SELECT wheel_overflow_v1(
    CAST(:shard AS smallint), CAST(:epoch AS bigint), CAST(:slot_lo AS integer),
    CAST(:slot_hi AS integer), CAST(:task_ids AS uuid[]), CAST(:start_times AS bigint[]),
    CAST(:due_ats AS bigint[])
)

-- name: fill
-- Pull what waits for room in a lane in front of the due hand, the first in line first.
-- In:    shard, epoch, biz_type, limit
-- Out:   integer: how many; fewer than limit: no more wait; WT001 where another epoch leads
-- Cost:  one index range, one update a row
-- Locks: fence shared, requeue rows (locked ones are passed over), pointer row
SELECT wheel_fill_v1(
    CAST(:shard AS smallint), CAST(:epoch AS bigint), CAST(:biz_type AS text),
    CAST(:limit AS integer)
)

-- name: lines
-- The lanes for whose room tasks wait.
-- In:    shard
-- Out:   biz_type, due_at (ms) of the last in line, start_time (ms) of the first one's task
-- Cost:  three index descents each
-- Locks: none
SELECT l.biz_type, l.last_due, l.first_start FROM wheel_lines_v1(CAST(:shard AS smallint)) AS l

-- name: fetch
-- Take the first in line, or of what is held, of some biz_types: they need no event center.
-- In:    shard, reason (overflow, held), one array element a biz_type: biz_types, limits;
--        visibility_ms, lookahead_ms
-- Out:   task_id, start_time, moment, now (ms), biz_type
-- Cost:  one index range a biz_type, one update a row
-- Locks: fence shared, requeue rows (locked ones are passed over)
SELECT f.task_id, f.start_time, f.moment, f.fetched, f.biz_type
FROM wheel_fetch_v1(
    CAST(:shard AS smallint), CAST(:reason AS text), CAST(:biz_types AS text[]),
    CAST(:limits AS integer[]), CAST(:visibility_ms AS bigint), CAST(:lookahead_ms AS bigint)
) AS f

-- name: unfetch
-- Let tasks come again at once that were fetched and are not called.
-- In:    shard, task_ids uuid[]: at most 1,000
-- Out:   nothing
-- Cost:  one descent and one update a row
-- Locks: fence shared, requeue rows by task_id
SELECT CAST(wheel_unfetch_v1(CAST(:shard AS smallint), CAST(:task_ids AS uuid[])) AS text)

-- name: requeue_rows
-- How many requeue rows there are, as the last analyze saw it.
-- In:    nothing
-- Out:   reason, count bigint
-- Cost:  two rows of the catalog
-- Locks: none
SELECT u.reason, CAST(greatest(0, u.frequency * c.reltuples) AS bigint)
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_stats AS s
    ON s.schemaname = n.nspname AND s.tablename = c.relname AND s.attname = 'reason'
CROSS JOIN unnest(CAST(CAST(s.most_common_vals AS text) AS text[]), s.most_common_freqs)
    AS u(reason, frequency)
WHERE c.oid = CAST('timer_requeue' AS regclass)
