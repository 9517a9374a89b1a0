-- kind: report
-- A row is a biz_type, with how late the first attempts of its tasks started in the last day:
-- against start_time, or against the submit where that came later. Tasks that needed more than one
-- attempt are counted apart (retried): their last start says nothing about our lateness.
-- What to do: compare with wheel_timer_publish_lateness_seconds. If that is low and this is high,
-- the lane waits (concurrency, a slow endpoint); if both are high, the daemon or the database does.
SELECT
    t.biz_type,
    count(*) FILTER (WHERE t.attempts = 1) AS tasks,
    count(*) FILTER (WHERE t.attempts > 1) AS retried,
    round(CAST(percentile_cont(0.5) WITHIN GROUP (
        ORDER BY t.started - greatest(t.start_time, t.create_time)
    ) FILTER (WHERE t.attempts = 1) AS numeric), 1) AS p50_ms,
    round(CAST(percentile_cont(0.99) WITHIN GROUP (
        ORDER BY t.started - greatest(t.start_time, t.create_time)
    ) FILTER (WHERE t.attempts = 1) AS numeric), 1) AS p99_ms,
    max(t.started - greatest(t.start_time, t.create_time))
        FILTER (WHERE t.attempts = 1) AS max_ms
FROM timer_task AS t
WHERE t.status IN (1, 2)
    AND t.started IS NOT NULL
    AND t.finish_time > (SELECT wheel_now_ms()) - 86400000
GROUP BY t.biz_type
ORDER BY t.biz_type
LIMIT 1000;
