-- kind: violation
-- A row is a task that should have been called five minutes ago or more, and nobody is at it: it is
-- not leased, its next attempt is not still to come, and it was not put aside. (What waits for a
-- pause, the brake, an open breaker or a rate limit has a requeue row for the time when it is to be
-- looked at again; what is pulled is called by nobody, and waits for its workers.) Look at the lane
-- of its biz_type (GET /v1/wheel), whether a broker and a daemon are alive, and at /readyz of both.
-- It is not lost: `lost` says that. It will be called once its lane moves again.
SELECT
    t.task_id,
    t.biz_type,
    to_timestamp(greatest(t.start_time, t.next_at) / 1000.0) AS due_time,
    (wheel_now_ms() - greatest(t.start_time, t.create_time, t.next_at)) / 1000 AS overdue_s,
    t.attempts,
    t.last_error,
    q.reason AS requeue_reason,
    to_timestamp(q.due_at / 1000.0) AS requeue_due_at
FROM timer_task AS t
LEFT JOIN timer_requeue AS q ON q.task_id = t.task_id
WHERE t.status = 0
    AND greatest(t.start_time, t.create_time, t.next_at, t.lease_until)
        < (SELECT wheel_now_ms()) - 300000
    AND t.biz_type <> ALL (
        ARRAY(SELECT b.biz_type FROM timer_biz AS b WHERE b.config ->> 'delivery' = 'pull')
    )
    AND (
        q.reason IN ('held', 'overflow') AND q.due_at > (SELECT wheel_now_ms()) - 300000
    ) IS NOT TRUE
ORDER BY t.start_time
LIMIT 1000;
