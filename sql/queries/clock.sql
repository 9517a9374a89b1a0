-- name: pulse
-- The database's clock, and whether a biz_type has changed: what every process asks each second.
-- In:    nothing
-- Out:   is a test's clock boolean, frozen boolean, highest biz_type version; now bigint (us) last,
--        so that it is as young as can be when it comes
-- Cost:  one index descent
-- Locks: none
SELECT
    c.one_row IS NOT NULL,
    coalesce(c.frozen, false),
    coalesce((SELECT max(b.version) FROM timer_biz AS b), 0),
    wheel_now_us()
FROM (VALUES (1)) AS v(one)
LEFT JOIN timer_clock AS c ON true

-- name: can_commit
-- Whether this is a database that takes writes.
-- In:    nothing
-- Out:   boolean
-- Locks: none
SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'
