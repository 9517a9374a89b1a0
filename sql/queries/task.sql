-- name: lookup
-- The tasks at these places of one partition.
-- In:    one array element a task; see wheel_lookup_v1
-- Out:   whole rows, those that exist
-- Cost:  one index descent a task
-- Locks: none
SELECT t.task_id, t.start_time, t.shard, t.status, t.attempts, t.failures, t.revision, t.life,
    t.stop, t.create_time, t.first_attempt_time, t.lease_until, t.next_at, t.finish_time,
    t.expire_at, t.http_status, t.last_error, t.started, t.duration, t.published, t.biz_type,
    t.biz_id, t.schedule_id, t.biz_data, t.content_type, CAST(t.callback AS text),
    CAST(t.retry AS text), t.max_age, t.traceparent
FROM wheel_lookup_v1(
    CAST(:slot_lo AS integer), CAST(:slot_hi AS integer), CAST(:task_ids AS uuid[]),
    CAST(:shards AS smallint[]), CAST(:start_times AS bigint[])
) AS t

-- name: lookup_key
-- The task that holds a business's own id.
-- In:    biz_type text, biz_id text
-- Out:   task_id, or no row
-- Cost:  one index descent
-- Locks: none
SELECT k.task_id
FROM timer_key AS k
WHERE k.biz_type = CAST(:biz_type AS text) AND k.biz_id = CAST(:biz_id AS text)

-- name: attempts
-- The attempts that did not finish a task, oldest first; the last 1,000 of them.
-- In:    task_id uuid
-- Out:   rows of timer_attempt
-- Cost:  one index range
-- Locks: none
SELECT a.attempt, a.life, a.outcome, a.due_time, a.published_time, a.started_time, a.duration_ms,
    a.config_version, a.http_status, a.error_class, a.error, a.response_excerpt, a.remote_address,
    a.broker
FROM (
    SELECT l.*
    FROM timer_attempt AS l
    WHERE l.task_id = CAST(:task_id AS uuid)
    ORDER BY l.attempt DESC
    LIMIT 1000
) AS a
ORDER BY a.attempt
