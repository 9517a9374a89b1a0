-- kind: violation
-- A row is something that stands where nobody would look for it. There must be none.
--   task     it is neither at the home that its id carries, nor does the home row forward to it
--   address  a home row forwards to where no task is
--   key      a biz_id leads to a task that does not exist
--   dead     a dead letter whose task is not failed
--   hands    the order sweep_time <= current_time <= closed_to of a shard is broken
-- A row is a defect of wheel-timer, or the trace of an edit by hand; please report it.
SELECT
    'task' AS what,
    CAST(t.task_id AS text) AS id,
    'at start_time ' || t.start_time || ', slot ' || t.slot AS found
FROM timer_task AS t
WHERE t.status <> 4
    -- Away from home: the first six bytes of the id are the home's start_time.
    AND substr(uuid_send(t.task_id), 1, 6) <> substr(int8send(t.start_time), 3, 6)
    AND NOT EXISTS (
        SELECT
        FROM timer_task AS h
        WHERE h.task_id = t.task_id AND h.status = 4 AND h.moved_to = t.start_time
    )
UNION ALL
SELECT 'address', CAST(h.task_id AS text), 'at start_time ' || h.start_time || ' to ' || h.moved_to
FROM timer_task AS h
WHERE h.status = 4
    AND NOT EXISTS (
        SELECT
        FROM timer_task AS t
        WHERE t.task_id = h.task_id AND t.status <> 4 AND t.start_time = h.moved_to
    )
UNION ALL
SELECT 'key', CAST(k.task_id AS text), k.biz_type || ' / ' || k.biz_id
FROM timer_key AS k
WHERE NOT EXISTS (SELECT FROM timer_task AS t WHERE t.task_id = k.task_id)
UNION ALL
SELECT 'dead', CAST(d.task_id AS text), d.biz_type
FROM timer_dead AS d
WHERE NOT EXISTS (SELECT FROM timer_task AS t WHERE t.task_id = d.task_id AND t.status = 2)
UNION ALL
SELECT 'hands', CAST(p.shard AS text),
    p.sweep_time || ' <= ' || p."current_time" || ' <= ' || wheel_closed_to_v1(p.shard)
FROM timer_pointer AS p
WHERE NOT (p.sweep_time <= p."current_time" AND p."current_time" <= wheel_closed_to_v1(p.shard))
LIMIT 1000;
