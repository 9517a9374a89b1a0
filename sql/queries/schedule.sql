-- name: schedule_load
-- The schedules of these names, or of these ids.
-- In:    biz_types text[], names text[]: pairs
-- Out:   the columns of timer_schedule but for running; callback as text
-- Cost:  one index descent each
-- Locks: none
SELECT s.schedule_id, s.biz_type, s.name, s.shard, s.version, s.cron, s.timezone, s.enabled,
    s.misfire, s.misfire_after, s.overlap, s.jitter, s.start_after, s.end_before, s.next_time,
    s.content_type, CAST(s.callback AS text), s.biz_data, s.create_time, s.update_time
FROM unnest(CAST(:biz_types AS text[]), CAST(:names AS text[])) AS r(biz_type, name)
JOIN timer_schedule AS s ON s.biz_type = r.biz_type AND s.name = r.name

-- name: schedule_page
-- A page of schedules in the order of biz_type and name, without their payloads.
-- In:    biz_types text[] or null: of these only; after_biz_type, after_name text: behind these;
--        limit
-- Out:   as schedule_load, biz_data null
-- Cost:  one index range
-- Locks: none
SELECT s.schedule_id, s.biz_type, s.name, s.shard, s.version, s.cron, s.timezone, s.enabled,
    s.misfire, s.misfire_after, s.overlap, s.jitter, s.start_after, s.end_before, s.next_time,
    s.content_type, CAST(s.callback AS text), CAST(NULL AS bytea), s.create_time, s.update_time
FROM timer_schedule AS s
WHERE (s.biz_type, s.name) > (CAST(:after_biz_type AS text), CAST(:after_name AS text))
    AND (CAST(:biz_types AS text[]) IS NULL OR s.biz_type = ANY (CAST(:biz_types AS text[])))
ORDER BY s.biz_type, s.name
LIMIT CAST(:limit AS integer)

-- name: schedule_has_any
-- Whether a biz_type has a schedule.
-- In:    biz_type text
-- Out:   one row where it has
-- Cost:  one index descent
-- Locks: none
SELECT true
FROM timer_schedule
WHERE biz_type = CAST(:biz_type AS text)
LIMIT 1

-- name: schedule_put
-- Create or change a schedule, take back what its version before has put on the wheel.
-- In:    see wheel_schedule_put_v1; settings, old, new JSON texts
-- Out:   verdict text, near uuid[], under_way bigint
-- Edges: pending -> cancelled, none -> pending
-- Cost:  40 us for each occurrence taken back, 10 for each new one
-- Locks: fence shared, the biz_type, the schedule, task rows by place, requeue rows by task_id
SELECT p.verdict, p.near, p.under_way
FROM wheel_schedule_put_v1(
    CAST(:shard AS smallint), CAST(:schedule_id AS uuid), CAST(:expected AS bigint),
    CAST(:biz_type AS text), CAST(:name AS text), CAST(CAST(:settings AS text) AS jsonb),
    CAST(:biz_data AS bytea), CAST(:now AS bigint), CAST(:cut AS bigint), CAST(:limit AS integer),
    CAST(:next_time AS bigint), CAST(:task_ids AS uuid[]), CAST(:start_times AS bigint[]),
    CAST(:scheduled_times AS bigint[]), CAST(:actor AS text), CAST(:action AS text),
    CAST(CAST(:old AS text) AS jsonb), CAST(CAST(:new AS text) AS jsonb),
    CAST(:retention_ms AS bigint), CAST(:lookahead_ms AS bigint)
) AS p

-- name: schedule_delete
-- Delete a schedule, and take back what it has put on the wheel.
-- In:    see wheel_schedule_delete_v1; old JSON text
-- Out:   verdict text, under_way bigint
-- Edge:  pending -> cancelled
-- Locks: as schedule_put
SELECT d.verdict, d.under_way
FROM wheel_schedule_delete_v1(
    CAST(:shard AS smallint), CAST(:schedule_id AS uuid), CAST(:expected AS bigint),
    CAST(:limit AS integer), CAST(:actor AS text), CAST(CAST(:old AS text) AS jsonb),
    CAST(:retention_ms AS bigint), CAST(:lookahead_ms AS bigint)
) AS d

-- name: schedule_run
-- One more occurrence, now.
-- In:    see wheel_schedule_run_v1
-- Out:   whether the schedule exists, whether its task is near
-- Edge:  none -> pending
-- Locks: as submit, and the schedule
SELECT r.is_found, r.is_near
FROM wheel_schedule_run_v1(
    CAST(:shard AS smallint), CAST(:schedule_id AS uuid), CAST(:task_id AS uuid),
    CAST(:now AS bigint), CAST(:actor AS text), CAST(:lookahead_ms AS bigint)
) AS r

-- name: schedule_due
-- The schedules of a shard of which something comes up to a moment and is not on the wheel yet,
-- the earliest first; without payloads.
-- In:    shard, to bigint (ms), set_aside uuid[]: not these; limit
-- Out:   as schedule_load, biz_data null; then how many bytes that has
-- Cost:  one index range; usually empty
-- Locks: none
SELECT s.schedule_id, s.biz_type, s.name, s.shard, s.version, s.cron, s.timezone, s.enabled,
    s.misfire, s.misfire_after, s.overlap, s.jitter, s.start_after, s.end_before, s.next_time,
    s.content_type, CAST(s.callback AS text), CAST(NULL AS bytea), s.create_time, s.update_time,
    coalesce(octet_length(s.biz_data), 0)
FROM timer_schedule AS s
WHERE s.enabled AND s.shard = CAST(:shard AS smallint) AND s.next_time <= CAST(:to AS bigint)
    AND s.schedule_id <> ALL (CAST(:set_aside AS uuid[]))
ORDER BY s.next_time
LIMIT CAST(:limit AS integer)

-- name: schedule_generate
-- Put computed occurrences on the wheel.
-- In:    see wheel_schedule_generate_v1
-- Out:   near uuid[], moved uuid[]
-- Edge:  none -> pending
-- Cost:  10 us an occurrence, 10 us a schedule
-- Locks: fence shared, schedules by id, task rows by place, requeue rows by task_id
SELECT g.near, g.moved
FROM wheel_schedule_generate_v1(
    CAST(:shard AS smallint), CAST(:schedule_ids AS uuid[]), CAST(:versions AS bigint[]),
    CAST(:seen AS bigint[]), CAST(:next_times AS bigint[]), CAST(:owners AS integer[]),
    CAST(:task_ids AS uuid[]), CAST(:start_times AS bigint[]),
    CAST(:scheduled_times AS bigint[]), CAST(:lookahead_ms AS bigint)
) AS g

-- name: schedule_forget
-- Forget occurrences of which somebody was called.
-- In:    shard, limit
-- Out:   how many were looked at
-- Cost:  20 us each
-- Locks: their rows
SELECT wheel_schedule_forget_v1(CAST(:shard AS smallint), CAST(:limit AS integer))

-- name: schedule_terms
-- What a broker has to know of schedules whose occurrences it has claimed.
-- In:    schedule_ids uuid[]
-- Out:   as schedule_load, biz_data null; one that is gone is missing
-- Cost:  one index descent each
-- Locks: none
SELECT s.schedule_id, s.biz_type, s.name, s.shard, s.version, s.cron, s.timezone, s.enabled,
    s.misfire, s.misfire_after, s.overlap, s.jitter, s.start_after, s.end_before, s.next_time,
    s.content_type, CAST(NULL AS text), CAST(NULL AS bytea), s.create_time, s.update_time
FROM timer_schedule AS s
WHERE s.schedule_id = ANY (CAST(:schedule_ids AS uuid[]))

-- name: schedule_admit
-- Which of these occurrences, claimed just now, are to be skipped: another one is not settled.
-- In:    schedule_ids uuid[], task_ids uuid[]: pairs
-- Out:   task_ids uuid[]
-- Cost:  0.1 ms each
-- Locks: schedules by id
SELECT wheel_schedule_admit_v1(
    CAST(:schedule_ids AS uuid[]), CAST(:task_ids AS uuid[])
)
