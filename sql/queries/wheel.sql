-- name: wheel_shards
-- How far the hands of every shard are, and who moves them.
-- In:    nothing
-- Out:   shard, leader text, epoch, lease_until ms, closed_to ms, current_time ms, sweep_time ms,
--        reap_time ms, now ms (the database's clock)
-- Cost:  one row a shard
-- Locks: none
SELECT
    p.shard,
    p.leader,
    p.epoch,
    p.lease_until,
    wheel_closed_to_v1(p.shard),
    p."current_time",
    p.sweep_time,
    p.reap_time,
    wheel_now_ms()
FROM timer_pointer AS p
ORDER BY p.shard
