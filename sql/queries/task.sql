-- name: lookup
-- The tasks with these ids, wherever they are now.
-- In:    task_ids uuid[], each once
-- Out:   whole rows, those that exist
-- Cost:  one index descent a task, two where it was moved
-- Locks: none
SELECT t.task_id, t.start_time, t.shard, t.status, t.attempts, t.failures, t.revision, t.life,
    t.stop, t.create_time, t.first_attempt_time, t.lease_until, t.next_at, t.finish_time,
    t.expire_at, t.http_status, t.last_error, t.started, t.duration, t.published, t.biz_type,
    t.biz_id, t.schedule_id, t.biz_data, t.content_type, CAST(t.callback AS text),
    CAST(t.retry AS text), t.max_age, t.traceparent, t.renew_time, t.scheduled_time
FROM wheel_find_v1(CAST(:task_ids AS uuid[])) AS t

-- name: lookup_keys
-- The tasks that hold the businesses' own ids.
-- In:    biz_types text[], biz_ids text[]
-- Out:   biz_type, biz_id, task_id; those that exist
-- Cost:  one index descent a key
-- Locks: none
SELECT k.biz_type, k.biz_id, k.task_id
FROM unnest(CAST(:biz_types AS text[]), CAST(:biz_ids AS text[])) AS r(biz_type, biz_id)
JOIN timer_key AS k ON k.biz_type = r.biz_type AND k.biz_id = r.biz_id

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

-- name: last_attempts
-- The last attempt of each task that did not finish it.
-- In:    task_ids uuid[]
-- Out:   task_id, then the columns of attempts
-- Cost:  one index descent a task
-- Locks: none
SELECT r.task_id, a.attempt, a.life, a.outcome, a.due_time, a.published_time, a.started_time,
    a.duration_ms, a.config_version, a.http_status, a.error_class, a.error, a.response_excerpt,
    a.remote_address, a.broker
FROM unnest(CAST(:task_ids AS uuid[])) AS r(task_id)
CROSS JOIN LATERAL (
    SELECT l.*
    FROM timer_attempt AS l
    WHERE l.task_id = r.task_id
    ORDER BY l.attempt DESC
    LIMIT 1
) AS a
