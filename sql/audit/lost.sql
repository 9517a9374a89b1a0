-- kind: violation
-- A row is a pending task that nothing will ever look at again: it lies behind the sweep hand and
-- has no requeue row ahead of the due hand. There must be none, at any moment: this is the
-- invariant of docs/design.md. A row is a defect of wheel-timer; please report it with the row and
-- the log of that minute. To have the task called: wheel-timer audit --repair
SELECT
    t.task_id,
    t.biz_type,
    to_timestamp(t.start_time / 1000.0) AS start_time,
    t.attempts,
    to_timestamp(q.due_at / 1000.0) AS requeue_due_at,
    to_timestamp(p.sweep_time / 1000.0) AS sweep_time,
    to_timestamp(p."current_time" / 1000.0) AS due_hand
FROM timer_task AS t
JOIN timer_pointer AS p ON p.shard = t.shard
LEFT JOIN timer_requeue AS q ON q.task_id = t.task_id
WHERE t.status = 0
    AND t.start_time <= p.sweep_time
    AND (q.task_id IS NULL OR q.due_at <= p."current_time")
ORDER BY t.start_time
LIMIT 1000;
