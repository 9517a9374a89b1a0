-- kind: violation
-- A row is a requeue row that leads nowhere. There must be none.
--   task gone        no task stands at the place that it names: the hand will drop it. The task may
--                    be elsewhere, with nothing behind it: `lost` says so once it is past due
--   behind the hand  the due hand has passed it, and the sweep takes its task for covered; the
--                    leader puts such rows ahead of itself once a minute, and counts them in
--                    wheel_timer_swept_total{reason="behind_the_hand"}
-- The row of a settled task is none: the hand drops it when it comes to it.
-- A row is a defect of wheel-timer, or the trace of an edit by hand; please report it. What to do:
-- wheel-timer audit --repair
SELECT
    q.task_id,
    q.biz_type,
    CASE WHEN q.due_at <= p."current_time" THEN 'behind the hand' ELSE 'task gone' END AS what,
    q.reason,
    to_timestamp(q.start_time / 1000.0) AS start_time,
    to_timestamp(q.due_at / 1000.0) AS due_at,
    q.shard
FROM timer_requeue AS q
JOIN timer_pointer AS p ON p.shard = q.shard
WHERE q.due_at <= p."current_time"
    OR NOT EXISTS (
        SELECT
        FROM timer_task AS t
        WHERE t.slot = CAST(q.start_time / 1000 % 10000000 AS integer)
            AND t.shard = q.shard
            AND t.start_time = q.start_time
            AND t.task_id = q.task_id
            AND t.status <> 4
    )
ORDER BY q.due_at
LIMIT 1000;
