-- name: node_beat
-- A process says that it lives; those silent for a day are forgotten.
-- In:    node, role, version; clock_jump bigint (ms) or null
-- Out:   bigint: processes of that role that said so in the last 50 s
-- Locks: its own row
WITH forgotten AS (
    DELETE FROM timer_node AS n WHERE n.heartbeat < wheel_now_ms() - 86400000
), beat AS (
    INSERT INTO timer_node (node, role, version, started, heartbeat, clock_jump)
    SELECT CAST(:node AS text), CAST(:role AS text), CAST(:version AS text), c.now, c.now,
        CAST(:clock_jump AS bigint)
    FROM (SELECT wheel_now_ms()) AS c(now)
    ON CONFLICT (node) DO UPDATE
    SET heartbeat = EXCLUDED.heartbeat, clock_jump = EXCLUDED.clock_jump
)
SELECT 1 + count(*)
FROM timer_node AS n
WHERE n.role = CAST(:role AS text)
    AND n.node <> CAST(:node AS text)
    AND n.heartbeat > wheel_now_ms() - 50000

-- name: node_leave
-- A process ends in order.
-- In:    node
-- Out:   nothing
-- Locks: its own row
DELETE FROM timer_node AS n WHERE n.node = CAST(:node AS text)

-- name: nodes
-- The daemons and brokers that have said in the last day that they live.
-- In:    nothing
-- Out:   node, role, version, started ms, heartbeat ms, is alive boolean (heard of within 50 s),
--        clock_jump ms or null, shards that it leads int[]
-- Cost:  a handful of rows
-- Locks: none
SELECT
    n.node,
    n.role,
    n.version,
    n.started,
    n.heartbeat,
    n.heartbeat > c.now - 50000,
    n.clock_jump,
    ARRAY(
        SELECT CAST(p.shard AS integer)
        FROM timer_pointer AS p
        WHERE p.leader = n.node AND p.lease_until > c.now
        ORDER BY p.shard
    )
FROM timer_node AS n
CROSS JOIN (SELECT wheel_now_ms()) AS c(now)
ORDER BY n.role, n.started, n.node

-- name: adopt
-- Take over this database for an instance, with the brake on where there is a reason for it.
-- In:    instance text, reason text or null, actor text
-- Out:   text: whose it was, or null
-- Locks: as brake; the row of timer_meta
SELECT wheel_adopt_v1(CAST(:instance AS text), CAST(:reason AS text), CAST(:actor AS text))
