-- name: lead_poll
-- A standby's look at a shard, in the session that would hold the leader's lock.
-- In:    shard
-- Out:   locked: the leader's lock fell, and is ours now; expired: its lease is over
-- Cost:  one row; waits for nothing and holds no snapshot
-- Locks: the leader's advisory lock, if it was free
SELECT l.locked, l.expired FROM wheel_lead_poll_v1(CAST(:shard AS smallint)) AS l

-- name: lead_take
-- Become the leader under the next epoch.
-- In:    shard, leader, lease_ms, locked
-- Out:   epoch, current_time, sweep_time; no row: somebody was faster
-- Locks: pointer row
SELECT t.epoch, t."current_time", t.sweep_time
FROM wheel_lead_take_v1(
    CAST(:shard AS smallint), CAST(:leader AS text), CAST(:lease_ms AS bigint),
    CAST(:locked AS boolean)
) AS t

-- name: lead_renew
-- Extend the lease, or give it back with 0; try for the lock where it is not ours yet.
-- In:    shard, epoch, lease_ms, locked boolean: the lock is ours
-- Out:   kept boolean: the lease is still ours; locked boolean
-- Locks: pointer row; the leader's advisory lock, if it was free
SELECT r.kept, r.locked
FROM wheel_lead_renew_v1(
    CAST(:shard AS smallint), CAST(:epoch AS bigint), CAST(:lease_ms AS bigint),
    CAST(:locked AS boolean)
) AS r

-- name: lead_unlock
-- Let the leader's lock go.
-- In:    shard
-- Out:   boolean: it was held
-- Locks: none
SELECT pg_advisory_unlock(wheel_lock_class('timer_requeue'), CAST(:shard AS integer))

-- name: lead_raise
-- Lift our epoch above one seen in the event center: this database was restored from a backup.
-- In:    shard, epoch, seen
-- Out:   the epoch now, or null: somebody else leads
-- Locks: pointer row, then the row of timer_meta
WITH raised AS MATERIALIZED (
    SELECT wheel_lead_raise_v1(
        CAST(:shard AS smallint), CAST(:epoch AS bigint), CAST(:seen AS bigint)
    ) AS epoch
), marked AS (
    UPDATE timer_meta AS m
    SET restored_at = wheel_now_ms()
    FROM raised AS r
    WHERE r.epoch IS NOT NULL
)
SELECT r.epoch FROM raised AS r

-- name: cluster_id
-- The database's own id.
-- In:    nothing
-- Out:   uuid
-- Locks: none
SELECT m.cluster_id FROM timer_meta AS m
