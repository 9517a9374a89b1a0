-- name: close
-- Close every moment up to :to, bounded by the clock plus one look-ahead.
-- In:    shard, epoch, to bigint (ms), lookahead_ms
-- Out:   closed_to bigint (ms): go on with this; closed_before bigint (ms)
-- Cost:  one row lock; synchronous_commit off
-- Locks: pointer row
SELECT c.closed_to, c.closed_before
FROM wheel_close_v1(
    CAST(:shard AS smallint), CAST(:epoch AS bigint), CAST(:to AS bigint),
    CAST(:lookahead_ms AS bigint)
) AS c

-- name: barrier
-- Wait until every writer inside the fence has committed.
-- In:    shard, wait_ms
-- Out:   nothing; lock_not_available after wait_ms
-- Locks: fence, alone, for the moment of this statement
SELECT CAST(wheel_barrier_v1(CAST(:shard AS smallint), CAST(:wait_ms AS integer)) AS text)

-- name: barrier_try
-- The same without waiting.
-- In:    shard
-- Out:   boolean: passed
-- Locks: fence, alone, for the moment of this statement
SELECT wheel_barrier_try_v1(CAST(:shard AS smallint))

-- name: fence_break
-- End the backends that have held the fence for longer than :older_than_ms.
-- In:    shard, older_than_ms
-- Out:   bigint: how many
-- Locks: none
SELECT wheel_fence_break_v1(CAST(:shard AS smallint), CAST(:older_than_ms AS bigint))

-- name: due
-- A page of pending tasks with start_time in (after, to], behind the key (key_time, key_id).
-- In:    shard, after, to, key_time bigint (ms), key_id uuid, limit
-- Out:   task_id, start_time, biz_type in order of (start_time, task_id)
-- Cost:  one index descent a second of the range, 4 us a row
-- Locks: none
SELECT d.task_id, d.start_time, d.biz_type
FROM wheel_due_v1(
    CAST(:shard AS smallint), CAST(:after AS bigint), CAST(:to AS bigint),
    CAST(:key_time AS bigint), CAST(:key_id AS uuid), CAST(:limit AS integer)
) AS d

-- name: due_part
-- The same of some biz_types only, or of all but these: of the :limit tasks behind the key.
-- In:    as due; biz_types text[], only boolean
-- Out:   task_id, start_time, biz_type in order of (start_time, task_id), of what is wanted and of
--        the last one looked at; is_wanted boolean; how many were looked at
-- Cost:  one index descent a second of the range, 2 us for each task looked at
-- Locks: none
WITH looked AS MATERIALIZED (
    SELECT d.task_id, d.start_time, d.biz_type,
        (d.biz_type = ANY (CAST(:biz_types AS text[]))) = CAST(:only AS boolean) AS is_wanted,
        row_number() OVER () AS position,
        count(*) OVER () AS looked_at
    FROM wheel_due_v1(
        CAST(:shard AS smallint), CAST(:after AS bigint), CAST(:to AS bigint),
        CAST(:key_time AS bigint), CAST(:key_id AS uuid), CAST(:limit AS integer)
    ) AS d
)
SELECT l.task_id, l.start_time, l.biz_type, l.is_wanted, l.looked_at
FROM looked AS l
WHERE l.is_wanted OR l.position = l.looked_at
ORDER BY l.position

-- name: skip
-- The first second of [first, last] whose slot holds any row.
-- In:    first, last bigint (s), not over the ring's end
-- Out:   bigint (s) or null
-- Cost:  one index descent
-- Locks: none
SELECT wheel_skip_v1(CAST(:first AS bigint), CAST(:last AS bigint))

-- name: look
-- Whether anything is due in (after, to]; with it the pulse, so that an idle daemon asks once.
-- In:    shard, after, to bigint (ms)
-- Out:   due boolean; whether an operation is to go on, whether the ledger is to be folded boolean;
--        then as `pulse`
-- Cost:  one index descent a second of the range, and three
-- Locks: none
SELECT
    wheel_look_v1(CAST(:shard AS smallint), CAST(:after AS bigint), CAST(:to AS bigint)),
    EXISTS (SELECT FROM timer_operation AS o WHERE o.state = 'running'),
    f.folded_to < pg_sequence_last_value('timer_ledger_delta_delta_id_seq'),
    c.one_row IS NOT NULL,
    coalesce(c.frozen, false),
    greatest(
        (SELECT max(h.version) FROM timer_biz_history AS h),
        (SELECT b.version FROM timer_brake AS b),
        0
    ),
    m.jumps_accepted,
    m.jump_ahead,
    coalesce(m.restored_at, 0),
    wheel_now_us()
FROM timer_meta AS m
CROSS JOIN timer_ledger_mark AS f
LEFT JOIN timer_clock AS c ON true

-- name: advance
-- Everything up to :current was published.
-- In:    shard, epoch, current bigint (ms)
-- Out:   nothing; WT001 where another epoch leads
-- Cost:  one HOT update; synchronous_commit off
-- Locks: pointer row
SELECT CAST(wheel_advance_v1(
    CAST(:shard AS smallint), CAST(:epoch AS bigint), CAST(:current AS bigint)
) AS text)
