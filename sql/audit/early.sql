-- kind: violation
-- A row is an attempt that started before its moment, by the database's clock. There must be none.
-- A row is a defect of wheel-timer, or the database's clock was set back between the attempt and
-- its record: compare with the machine's time log first.
SELECT
    t.task_id,
    t.biz_type,
    t.attempts AS attempt,
    to_timestamp(t.start_time / 1000.0) AS due_time,
    to_timestamp(t.started / 1000.0) AS started,
    t.start_time - t.started AS early_ms
FROM timer_task AS t
WHERE t.status <> 4 AND t.started < t.start_time
UNION ALL
SELECT
    e.task_id,
    -- By its id, one descent each; null where the task is gone.
    (SELECT f.biz_type FROM wheel_find_v1(ARRAY[e.task_id]) AS f LIMIT 1),
    e.attempt,
    to_timestamp(e.due_time / 1000.0),
    to_timestamp(e.started_time / 1000.0),
    e.due_time - e.started_time
FROM (
    SELECT a.task_id, a.attempt, a.due_time, a.started_time
    FROM timer_attempt AS a
    WHERE a.started_time < a.due_time
    LIMIT 1000
) AS e
LIMIT 1000;
