-- name: pulse
-- The database's clock, and whether a biz_type has changed: what every process asks each second.
-- In:    nothing
-- Out:   now bigint (us), is a test's clock boolean, frozen boolean, highest biz_type version
-- Cost:  one index descent
-- Locks: none
SELECT
    wheel_now_us(),
    c.one_row IS NOT NULL,
    coalesce(c.frozen, false),
    coalesce((SELECT max(b.version) FROM timer_biz AS b), 0)
FROM (VALUES (1)) AS v(one)
LEFT JOIN timer_clock AS c ON true
