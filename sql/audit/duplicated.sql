-- kind: violation
-- A row is work that exists twice, and may be done twice. There must be none.
--   task     it stands at two places of the wheel, and would be called from both
--   biz_id   a task whose biz_id leads to another task: that submit should have found a duplicate
--   attempt  two attempts of one life ran side by side, though neither broker was taken for dead
-- What a dead or frozen broker repeats is none: its attempt is recorded as `lost`, and the call
-- that follows carries the same id (GET /v1/tasks/{task_id} lists both).
-- A row is a defect of wheel-timer, or the trace of an edit by hand; an attempt may also come of
-- the database's clock being set back meanwhile. Please report it. To keep a task from being called
-- again, cancel it.
WITH away AS MATERIALIZED (
    SELECT t.task_id, t.biz_type, t.shard, t.start_time, wheel_home_v1(t.task_id) AS home
    FROM timer_task AS t
    -- Away from home: the first six bytes of the id are the home's start_time.
    WHERE t.status <> 4
        AND substr(uuid_send(t.task_id), 1, 6) <> substr(int8send(t.start_time), 3, 6)
), attempts AS (
    SELECT a.task_id, a.attempt, a.life, a.started_time, a.duration_ms
    FROM timer_attempt AS a
    WHERE a.outcome NOT IN ('lost', 'superseded') AND a.started_time IS NOT NULL
), followed AS (
    SELECT
        a.*,
        lead(a.attempt) OVER later AS next_attempt,
        lead(a.started_time) OVER later AS next_started
    FROM attempts AS a
    WINDOW later AS (PARTITION BY a.task_id, a.life ORDER BY a.attempt)
)
SELECT
    'task' AS what,
    a.task_id,
    a.biz_type,
    'at start_time ' || a.start_time || ' and at its home ' || a.home AS found
FROM away AS a
JOIN timer_task AS h
    ON h.slot = CAST(a.home / 1000 % 10000000 AS integer) AND h.shard = a.shard
    AND h.start_time = a.home AND h.task_id = a.task_id
WHERE h.status <> 4
UNION ALL
SELECT 'task', a.task_id, min(a.biz_type),
    'at start_time ' || string_agg(CAST(a.start_time AS text), ' and ' ORDER BY a.start_time)
FROM away AS a
GROUP BY a.task_id
HAVING count(*) > 1
UNION ALL
SELECT 'biz_id', t.task_id, t.biz_type, t.biz_id || ' leads to ' || k.task_id
FROM timer_key AS k
JOIN timer_task AS t ON t.biz_type = k.biz_type AND t.biz_id = k.biz_id
WHERE t.status <> 4 AND t.task_id <> k.task_id
UNION ALL
SELECT 'attempt', f.task_id,
    -- By its id, one descent each; null where the task is gone.
    (SELECT t.biz_type FROM wheel_find_v1(ARRAY[f.task_id]) AS t LIMIT 1),
    f.attempt || ' was under way when ' || f.next_attempt || ' began, '
    || (f.started_time + f.duration_ms - f.next_started) || ' ms before its end'
FROM (
    SELECT o.*
    FROM followed AS o
    -- Brokers know the database's clock to 50 ms each.
    WHERE o.next_started + 100 < o.started_time + o.duration_ms
    LIMIT 1000
) AS f
LIMIT 1000;
