-- kind: violation
-- A row is a biz_type and a quarter hour of start_time (`quarter`), or a day of create_time
-- (`day`), of which the ledger says one thing and the wheel another: how many tasks are pending
-- there, how many lie there settled. Or the running total of a biz_type differs from the sum of
-- its quarter hours (`total`; settled means its dead letters there). There must be none, at any
-- moment: all is counted in one snapshot.
-- A row is a task that came, went or changed without being counted: an edit by hand, rows lost by
-- the disk or left behind in a restore, or a defect of wheel-timer. Look for what happened to that
-- biz_type at that time (timer_change_view, the logs); `lost` and `misplaced` name single tasks.
-- The ledger is for accounts alone: delivery goes on whatever it says, but max_pending counts by
-- it. This reads every row of the wheel once, two or three seconds for each million.
WITH wheel AS MATERIALIZED (
    SELECT
        t.biz_type,
        t.start_time / 900000 * 900000 AS quarter,
        t.create_time / 86400000 * 86400000 AS day,
        count(*) FILTER (WHERE t.status = 0) AS pending,
        count(*) FILTER (WHERE t.status <> 0) AS settled
    FROM timer_task AS t
    WHERE t.status <> 4
    GROUP BY 1, 2, 3
), booked AS MATERIALIZED (
    SELECT
        'quarter' AS what, l.biz_type, l.quarter AS since,
        l.submitted + l.moved_in + l.revived - l.moved_out - l.finished - l.failed - l.cancelled
            - l.purged AS pending,
        l.finished + l.failed + l.cancelled - l.revived - l.reaped_finished - l.reaped_failed
            - l.reaped_cancelled AS settled
    FROM timer_ledger AS l
    UNION ALL
    SELECT
        'day', l.biz_type, l.day,
        l.submitted + l.moved_in + l.revived - l.moved_out - l.finished - l.failed - l.cancelled
            - l.purged,
        l.finished + l.failed + l.cancelled - l.revived - l.reaped_finished - l.reaped_failed
            - l.reaped_cancelled
    FROM timer_ledger_day AS l
    UNION ALL
    SELECT
        w.what, u.biz_type, CASE w.what WHEN 'quarter' THEN u.quarter ELSE u.day END,
        u.submitted + u.moved_in + u.revived - u.moved_out - u.finished - u.failed - u.cancelled
            - u.purged,
        u.finished + u.failed + u.cancelled - u.revived - u.reaped_finished - u.reaped_failed
            - u.reaped_cancelled
    FROM timer_ledger_unfolded AS u
    CROSS JOIN (VALUES ('quarter'), ('day')) AS w(what)
), compared AS (
    SELECT
        b.what, b.biz_type, b.since, b.pending AS pending_booked, 0 AS pending_found,
        b.settled AS settled_booked, 0 AS settled_found
    FROM booked AS b
    UNION ALL
    SELECT 'quarter', w.biz_type, w.quarter, 0, w.pending, 0, w.settled FROM wheel AS w
    UNION ALL
    SELECT 'day', w.biz_type, w.day, 0, w.pending, 0, w.settled FROM wheel AS w
    UNION ALL
    SELECT
        'total', l.biz_type, NULL,
        l.submitted + l.moved_in + l.revived - l.moved_out - l.finished - l.failed - l.cancelled
            - l.purged,
        0,
        l.failed - l.revived_failed - l.reaped_failed, 0
    FROM timer_ledger AS l
    UNION ALL
    SELECT 'total', t.biz_type, NULL, 0, t.pending, 0, t.dead FROM timer_ledger_total AS t
)
SELECT
    c.what,
    c.biz_type,
    to_timestamp(c.since / 1000.0) AS since,
    sum(c.pending_booked) AS pending_booked,
    sum(c.pending_found) AS pending_found,
    sum(c.settled_booked) AS settled_booked,
    sum(c.settled_found) AS settled_found
FROM compared AS c
GROUP BY c.what, c.biz_type, c.since
HAVING sum(c.pending_booked) <> sum(c.pending_found)
    OR sum(c.settled_booked) <> sum(c.settled_found)
ORDER BY c.what, c.biz_type, c.since
LIMIT 1000;
