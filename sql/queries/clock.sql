-- name: pulse
-- The database's clock, and whether the configuration has changed: what every process asks each
-- second.
-- In:    nothing
-- Out:   is a test's clock boolean, frozen boolean, highest version of the configuration; now
--        bigint (us) last, so that it is as young as can be when it comes
-- Cost:  three index descents
-- Locks: none
SELECT
    c.one_row IS NOT NULL,
    coalesce(c.frozen, false),
    greatest(
        (SELECT max(h.version) FROM timer_biz_history AS h),
        (SELECT b.version FROM timer_brake AS b),
        (SELECT max(k.version) FROM timer_key_api AS k),
        0
    ),
    wheel_now_us()
FROM (VALUES (1)) AS v(one)
LEFT JOIN timer_clock AS c ON true

-- name: can_commit
-- Whether this is a database that takes writes.
-- In:    nothing
-- Out:   boolean
-- Locks: none
SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'
