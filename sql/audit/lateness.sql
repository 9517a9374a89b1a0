-- kind: report
-- A row is a biz_type, with how late its tasks that were settled in the last day were called:
-- against start_time, or against the submit (or the change that put them on the wheel anew) where
-- that came later. p50 to max are those of the first attempt.
-- Then the sums of where the time went, in seconds:
--   ours      until the first attempt was published: the daemon or the database was behind
--   lane      from there until it started: the lane held it. Why, in lane-seconds by reason (rate,
--             concurrency, breaker, pause): wheel_timer_lane_held_seconds_total; of a single task
--             that waits now, GET /v1/tasks/{id}
--   retries   from the first attempt's start to the last one's: the endpoint failed meanwhile
--   receiver  what the endpoint took to answer, all attempts together
-- What to do: ours is for who runs wheel-timer; lane for who sets the biz_type's limits; retries
-- and receiver for who runs the endpoint.
WITH settled AS (
    SELECT
        t.biz_type,
        t.attempts,
        t.started,
        t.duration,
        greatest(t.start_time, t.create_time, t.renew_time) AS due,
        first.started_time AS first_started,
        coalesce(first.published_time, t.published) AS published,
        coalesce(past.duration_ms, 0) AS past_duration
    FROM timer_task AS t
    LEFT JOIN LATERAL (
        SELECT a.started_time, a.published_time
        FROM timer_attempt AS a
        WHERE t.attempts > 1 AND a.task_id = t.task_id AND a.life = t.life
            AND a.started_time IS NOT NULL
        ORDER BY a.attempt
        LIMIT 1
    ) AS first ON true
    LEFT JOIN LATERAL (
        -- A failed task's last attempt has a row of its own, too: it is in its task's already.
        SELECT sum(a.duration_ms) AS duration_ms
        FROM timer_attempt AS a
        WHERE t.attempts > 1 AND a.task_id = t.task_id AND a.life = t.life
            AND a.attempt < t.attempts
    ) AS past ON true
    WHERE t.status IN (1, 2)
        AND t.started IS NOT NULL
        AND t.finish_time > (SELECT wheel_now_ms()) - 86400000
), called AS (
    SELECT
        s.*,
        greatest(coalesce(s.first_started, s.started) - s.due, 0) AS late,
        greatest(s.published - s.due, 0) AS unpublished
    FROM settled AS s
)
SELECT
    c.biz_type,
    count(*) AS tasks,
    count(*) FILTER (WHERE c.attempts > 1) AS retried,
    round(CAST(percentile_cont(0.5) WITHIN GROUP (ORDER BY c.late) AS numeric), 1) AS p50_ms,
    round(CAST(percentile_cont(0.99) WITHIN GROUP (ORDER BY c.late) AS numeric), 1) AS p99_ms,
    max(c.late) AS max_ms,
    round(sum(least(c.late, coalesce(c.unpublished, 0))) / 1000.0, 1) AS ours_s,
    round(sum(c.late - least(c.late, coalesce(c.unpublished, 0))) / 1000.0, 1) AS lane_s,
    round(sum(greatest(c.started - coalesce(c.first_started, c.started), 0)) / 1000.0, 1)
        AS retries_s,
    round(sum(coalesce(c.duration, 0) + c.past_duration) / 1000.0, 1) AS receiver_s
FROM called AS c
GROUP BY c.biz_type
ORDER BY c.biz_type
LIMIT 1000;
