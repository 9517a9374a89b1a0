-- name: operation_create
-- Begin an operation.
-- In:    operation_id uuid, action, filter JSON, shift_ms, rate, over_ms, actor; recorded: what
--        timer_change shows, JSON
-- Out:   as operation_get
-- Locks: none
WITH begun AS (
    INSERT INTO timer_operation (
        operation_id, create_time, action, filter, shift_ms, rate, over_ms, actor
    )
    SELECT CAST(:operation_id AS uuid), n.now_ms, CAST(:action AS text), CAST(:filter AS jsonb),
        CAST(:shift_ms AS bigint), CAST(:rate AS double precision), CAST(:over_ms AS bigint),
        CAST(:actor AS text)
    FROM (SELECT wheel_now_ms() AS now_ms) AS n
    RETURNING *
), recorded AS (
    INSERT INTO timer_change (time, actor, action, object, new)
    SELECT b.create_time, b.actor, 'operation.create', CAST(b.operation_id AS text),
        CAST(:recorded AS jsonb)
    FROM begun AS b
)
SELECT b.operation_id, b.action, CAST(b.filter AS text), b.shift_ms, b.rate, b.over_ms, b.state,
    b.matched, b.done, b.skipped, b.errors, b.error, b.actor, b.create_time, b.finish_time, b.step,
    CAST(b.key AS text)
FROM begun AS b

-- name: operation_get
-- One operation.
-- In:    operation_id uuid
-- Out:   the columns of timer_operation, filter and key as texts; or no row
-- Locks: none
SELECT o.operation_id, o.action, CAST(o.filter AS text), o.shift_ms, o.rate, o.over_ms, o.state,
    o.matched, o.done, o.skipped, o.errors, o.error, o.actor, o.create_time, o.finish_time, o.step,
    CAST(o.key AS text)
FROM timer_operation AS o
WHERE o.operation_id = CAST(:operation_id AS uuid)

-- name: operation_list
-- A page of operations, newest first, of those before (key_time, key_id).
-- In:    key_time bigint (ms), key_id uuid, limit
-- Out:   as operation_get
-- Cost:  one index range
-- Locks: none
SELECT o.operation_id, o.action, CAST(o.filter AS text), o.shift_ms, o.rate, o.over_ms, o.state,
    o.matched, o.done, o.skipped, o.errors, o.error, o.actor, o.create_time, o.finish_time, o.step,
    CAST(o.key AS text)
FROM timer_operation AS o
WHERE (o.create_time, o.operation_id) < (CAST(:key_time AS bigint), CAST(:key_id AS uuid))
ORDER BY o.create_time DESC, o.operation_id DESC
LIMIT CAST(:limit AS integer)

-- name: operation_running
-- The operations that are to go on, oldest first; 100 at most.
-- In:    nothing
-- Out:   as operation_get
-- Cost:  one index range; usually empty
-- Locks: none
SELECT o.operation_id, o.action, CAST(o.filter AS text), o.shift_ms, o.rate, o.over_ms, o.state,
    o.matched, o.done, o.skipped, o.errors, o.error, o.actor, o.create_time, o.finish_time, o.step,
    CAST(o.key AS text)
FROM timer_operation AS o
WHERE o.state = 'running'
ORDER BY o.create_time
LIMIT 100

-- name: operation_stop
-- Stop an operation that is running; its chunk in progress is undone or done as a whole.
-- In:    operation_id uuid, actor
-- Out:   operation_id, where it was running
-- Locks: its row
WITH stopped AS (
    UPDATE timer_operation AS o
    SET state = 'stopped', finish_time = wheel_now_ms()
    WHERE o.operation_id = CAST(:operation_id AS uuid) AND o.state = 'running'
    RETURNING o.operation_id, o.finish_time, o.matched, o.done
), recorded AS (
    INSERT INTO timer_change (time, actor, action, object, old, new)
    SELECT s.finish_time, CAST(:actor AS text), 'operation.stop', CAST(s.operation_id AS text),
        jsonb_build_object('state', 'running'),
        jsonb_build_object('state', 'stopped', 'matched', s.matched, 'done', s.done)
    FROM stopped AS s
)
SELECT s.operation_id FROM stopped AS s

-- name: operation_fail
-- End an operation that cannot go on.
-- In:    operation_id uuid, step, error
-- Out:   nothing
-- Locks: its row
UPDATE timer_operation AS o
SET state = 'failed', finish_time = wheel_now_ms(), error = CAST(:error AS text)
WHERE o.operation_id = CAST(:operation_id AS uuid)
    AND o.step = CAST(:step AS integer)
    AND o.state = 'running'

-- name: operation_step
-- Count a chunk that changed nothing, and go on.
-- In:    see wheel_operation_step_v1
-- Out:   nothing; WT004 where it was not the one to come
-- Locks: its row
SELECT CAST(wheel_operation_step_v1(
    CAST(:operation_id AS uuid), CAST(:step AS integer), CAST(:matched AS bigint),
    CAST(:done AS bigint), CAST(:errors AS bigint), CAST(:key AS jsonb),
    CAST(:is_done AS boolean)
) AS text)

-- name: operate
-- One chunk of an operation, or one shard's part of it.
-- In:    see wheel_operate_v1; task_ids, start_times and revisions as texts of arrays, which is how
--        select_parts gives them
-- Out:   tasks changed; WT004 where it was not the one to come, and nothing was changed
-- Cost:  as change
-- Locks: as change, then the operation's row
SELECT wheel_operate_v1(
    CAST(:operation_id AS uuid), CAST(:step AS integer), CAST(:key AS jsonb),
    CAST(:is_done AS boolean), CAST(:shard AS smallint), CAST(:verb AS text),
    CAST(:sets AS integer), CAST(CAST(:task_ids AS text) AS uuid[]),
    CAST(CAST(:start_times AS text) AS bigint[]), CAST(CAST(:revisions AS text) AS integer[]),
    CAST(:shift_ms AS bigint), CAST(:due AS bigint), CAST(:gap_ms AS double precision),
    CAST(:retention_ms AS bigint), CAST(:lookahead_ms AS bigint)
)
