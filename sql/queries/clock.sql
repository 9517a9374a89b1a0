-- name: pulse
-- The database's clock, and whether the configuration has changed: what every process asks each
-- second.
-- In:    nothing
-- Out:   is a test's clock boolean, frozen boolean, highest version of the configuration; how many
--        jumps were accepted, and how far the clock was ahead at the last (ms); when this database
--        was restored (ms), 0 for never; now bigint (us) last, so that it is as young as can be
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
    m.jumps_accepted,
    m.jump_ahead,
    coalesce(m.restored_at, 0),
    wheel_now_us()
FROM timer_meta AS m
LEFT JOIN timer_clock AS c ON true

-- name: accept_jump
-- The database's clock is right, though it has jumped: whoever held back for it goes on.
-- In:    ahead bigint (ms): of the machine's; actor text
-- Out:   bigint: how many jumps were accepted in all
-- Locks: the row of timer_meta
WITH accepted AS (
    UPDATE timer_meta AS m
    SET jumps_accepted = m.jumps_accepted + 1, jump_ahead = CAST(:ahead AS bigint)
    RETURNING m.jumps_accepted
), recorded AS (
    INSERT INTO timer_change (time, actor, action, object, new)
    SELECT
        wheel_now_ms(),
        CAST(:actor AS text),
        'wheel.accept-jump',
        'wheel',
        jsonb_build_object('ahead_ms', CAST(:ahead AS bigint))
    FROM accepted AS a
)
SELECT a.jumps_accepted FROM accepted AS a

-- name: can_commit
-- Whether this is a database that takes writes.
-- In:    nothing
-- Out:   boolean
-- Locks: none
SELECT NOT pg_is_in_recovery() AND current_setting('transaction_read_only') = 'off'

-- name: begin_test_clock
-- Make this database's clock a test's: it shows the machine's time and can be set from now on.
-- In:    nothing
-- Out:   nothing; a database that has tasks, and no such clock, is left as it is
-- Locks: the row
INSERT INTO timer_clock (one_row, shown_us, set_at_us, frozen)
SELECT true, n.now_us, n.now_us, false
FROM (SELECT CAST(date_part('epoch', clock_timestamp()) * 1000000 AS bigint) AS now_us) AS n
WHERE NOT EXISTS (SELECT FROM timer_task AS t)
ON CONFLICT (one_row) DO NOTHING

-- name: test_clock
-- The test's clock.
-- In:    nothing
-- Out:   frozen boolean, now bigint (ms); no row where the clock is the machine's
-- Locks: none
SELECT c.frozen, wheel_now_ms()
FROM timer_clock AS c

-- name: turn_of_test_clock
-- Take the turn to move the test's clock, which is kept until the session ends.
-- In:    nothing
-- Out:   boolean: false while somebody else moves it
-- Locks: an advisory lock of the session
SELECT pg_try_advisory_lock(wheel_lock_class('timer_clock'), 0)

-- name: set_test_clock
-- Set the test's clock.
-- In:    now bigint (ms), frozen boolean
-- Out:   nothing
-- Locks: the row
UPDATE timer_clock
SET shown_us = CAST(:now AS bigint) * 1000,
    set_at_us = date_part('epoch', clock_timestamp()) * 1000000,
    frozen = CAST(:frozen AS boolean)

-- name: outlook
-- What a test's clock has to wait for: tasks due now, schedules of which something is and that is
-- no task yet, tasks being called, the next moment to come.
-- In:    nothing
-- Out:   due bigint, held bigint (due, and put aside by a broker: its breaker is open; or there for
--        a worker to take), paused bigint (due, of a paused biz_type or under the brake), calling
--        bigint (not those claimed ahead of their moment, nor those in a worker's hands), next
--        moment bigint (ms) or null
-- Cost:  reads the whole wheel: for the few tasks of a test
-- Locks: none
WITH n AS MATERIALIZED (
    SELECT wheel_now_ms() AS now_ms, EXISTS (
        SELECT FROM timer_brake AS k WHERE k.reason IS NOT NULL
    ) AS is_braked
), pending AS (
    SELECT
        CASE
            -- A worker may take as long as it likes, but no longer than its lease.
            WHEN q.reason = 'reserved' AND t.lease_until > n.now_ms THEN t.lease_until
            ELSE greatest(t.start_time, t.next_at)
        END AS moment,
        CASE
            WHEN q.reason = 'reserved' AND t.lease_until > n.now_ms THEN 'reserved'
            WHEN t.lease_until > n.now_ms THEN 'calling'
            WHEN n.is_braked OR CAST(b.config ->> 'paused' AS boolean) THEN 'paused'
            WHEN q.reason = 'held' AND q.due_at > n.now_ms THEN 'held'
            WHEN b.config ->> 'delivery' = 'pull' THEN 'held'
            ELSE 'due'
        END AS state
    FROM timer_task AS t
    CROSS JOIN n
    LEFT JOIN timer_biz AS b ON b.biz_type = t.biz_type
    LEFT JOIN timer_requeue AS q ON q.task_id = t.task_id
    WHERE t.status = 0
)
SELECT
    count(*) FILTER (WHERE p.moment <= n.now_ms AND p.state = 'due') + (
        SELECT count(*) FROM timer_schedule AS s, n WHERE s.enabled AND s.next_time <= n.now_ms
    ),
    count(*) FILTER (WHERE p.moment <= n.now_ms AND p.state = 'held'),
    count(*) FILTER (WHERE p.moment <= n.now_ms AND p.state = 'paused'),
    count(*) FILTER (WHERE p.moment <= n.now_ms AND p.state = 'calling'),
    least(min(p.moment) FILTER (WHERE p.moment > n.now_ms), (
        SELECT min(s.next_time)
        FROM timer_schedule AS s, n
        WHERE s.enabled AND s.next_time > n.now_ms
    ))
FROM n
LEFT JOIN pending AS p ON true
