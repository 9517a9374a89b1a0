-- kind: report
-- A row is a biz_type, with how late its tasks that were settled in the last day were called:
-- against start_time, or against the submit (or the change that put them on the wheel anew) where
-- that came later. p50 to max are those of the first attempt.
-- Then the sums of where the time went, in seconds:
--   ours      until the first attempt was published: the daemon or the database was behind
--   lane      from there until it started: the lane held it
--   retries   from the first attempt's start to the last one's: the endpoint failed meanwhile
--   receiver  what the endpoint took to answer, all attempts together
-- And why the lane held back what was due, in lane-seconds of each broker, of tasks not settled yet
-- too: its rate limit, its concurrency, its open breaker, a pause or the brake. Written once a
-- minute, so a lane that waits since just now is not in it yet; of a single task that waits, ask
-- GET /v1/tasks/{id}.
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
), summed AS (
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
), held AS (
    SELECT
        l.biz_type,
        sum(l.held_ms) FILTER (WHERE l.reason = 'rate_limited') AS rate_limited,
        sum(l.held_ms) FILTER (WHERE l.reason = 'concurrency') AS concurrency,
        sum(l.held_ms) FILTER (WHERE l.reason = 'breaker_open') AS breaker_open,
        sum(l.held_ms) FILTER (WHERE l.reason = 'paused') AS paused
    FROM timer_lane_time AS l
    WHERE l.hour > (SELECT wheel_now_ms()) - 86400000
    GROUP BY l.biz_type
)
SELECT
    coalesce(s.biz_type, h.biz_type) AS biz_type,
    coalesce(s.tasks, 0) AS tasks,
    s.retried, s.p50_ms, s.p99_ms, s.max_ms, s.ours_s, s.lane_s, s.retries_s, s.receiver_s,
    round(coalesce(h.rate_limited, 0) / 1000.0, 1) AS rate_limited_s,
    round(coalesce(h.concurrency, 0) / 1000.0, 1) AS concurrency_s,
    round(coalesce(h.breaker_open, 0) / 1000.0, 1) AS breaker_open_s,
    round(coalesce(h.paused, 0) / 1000.0, 1) AS paused_s
FROM summed AS s
FULL JOIN held AS h ON h.biz_type = s.biz_type
ORDER BY 1
LIMIT 1000;
