-- name: reap_partitions
-- Every partition of the wheel.
-- In:    nothing
-- Out:   slot_lo int, pages, index_pages bigint, updates bigint (what the statistics have counted),
--        is_under_hands boolean
-- Cost:  1 ms; nothing is scanned
-- Locks: none
SELECT p.slot_lo, p.pages, p.index_pages, p.updates, p.is_under_hands
FROM wheel_reap_partitions_v1() AS p

-- name: reap_look
-- What lies in some blocks of a partition.
-- In:    slot_lo, block_lo, block_hi: [lo, hi)
-- Out:   expired, entwined, lasting, open bigint (rows); earliest, latest, overdue bigint (ms)
-- Cost:  reads those blocks
-- Locks: none
SELECT l.expired, l.entwined, l.lasting, l.open, l.earliest, l.latest, l.overdue
FROM wheel_reap_look_v1(
    CAST(:slot_lo AS integer), CAST(:block_lo AS bigint), CAST(:block_hi AS bigint)
) AS l

-- name: reap
-- Delete expired tasks of one shard in some blocks of a partition, with what belongs to them.
-- In:    epoch (of shard 0), shard, slot_lo, block_lo, block_hi: [lo, hi); is_whole boolean: all of
--        them, else those with more than a row; limit (1,000)
-- Out:   looked, then finished, failed, cancelled bigint: reaped; WT001 where another epoch leads
-- Edge:  finished | failed | cancelled -> gone
-- Cost:  10 us a row, 20 us with a key; synchronous_commit off
-- Locks: keys sorted, task rows by place, requeue rows and dead letters by task_id
SELECT r.looked, r.finished, r.failed, r.cancelled
FROM wheel_reap_v1(
    CAST(:epoch AS bigint), CAST(:shard AS smallint), CAST(:slot_lo AS integer),
    CAST(:block_lo AS bigint), CAST(:block_hi AS bigint), CAST(:is_whole AS boolean),
    CAST(:limit AS integer)
) AS r

-- name: reap_truncate
-- Empty a partition in which next to nothing lives.
-- In:    epoch (of shard 0), slot_lo, carry_max (rows), carry_bytes_max, hold_ms
-- Out:   verdict text (done, hands, alive, slow), carried int, then finished, failed, cancelled
--        bigint: reaped; lock_not_available where somebody is at the partition
-- Edge:  finished | failed | cancelled -> gone
-- Cost:  reads the partition under the lock, a second for some million rows
-- Locks: the partition, alone
SELECT t.verdict, t.carried, t.finished, t.failed, t.cancelled
FROM wheel_reap_truncate_v1(
    CAST(:epoch AS bigint), CAST(:slot_lo AS integer), CAST(:carry_max AS integer),
    CAST(:carry_bytes_max AS bigint), CAST(:hold_ms AS integer)
) AS t

-- name: reap_advance
-- Everything that had expired by :reaped is gone.
-- In:    epoch (of shard 0), reaped bigint (ms)
-- Out:   nothing; WT001 where another epoch leads
-- Cost:  one HOT update a shard; synchronous_commit off
-- Locks: pointer rows
SELECT CAST(wheel_reap_advance_v1(CAST(:epoch AS bigint), CAST(:reaped AS bigint)) AS text)

-- name: reap_changes
-- Of the change log behind a key, oldest first, delete what is old: changes of single tasks before
-- the others.
-- In:    key_time, key_id bigint; task_kept_ms, kept_ms; limit
-- Out:   reaped bigint; last_time, last_id bigint: the next key, null at the end
-- Cost:  one index range
-- Locks: the rows
WITH page AS MATERIALIZED (
    SELECT c.time, c.change_id, c.action
    FROM timer_change AS c
    WHERE (c.time, c.change_id) > (CAST(:key_time AS bigint), CAST(:key_id AS bigint))
        AND c.time < (SELECT wheel_now_ms()) - CAST(:task_kept_ms AS bigint)
    ORDER BY c.time, c.change_id
    LIMIT CAST(:limit AS integer)
), gone AS (
    DELETE FROM timer_change AS c
    USING page AS p
    WHERE c.time = p.time AND c.change_id = p.change_id
        AND (
            p.action LIKE 'task.%'
            OR p.time < (SELECT wheel_now_ms()) - CAST(:kept_ms AS bigint)
        )
    RETURNING c.change_id
)
SELECT (SELECT count(*) FROM gone), l.time, l.change_id
FROM (VALUES (1)) AS v(one)
LEFT JOIN (
    SELECT p.time, p.change_id FROM page AS p ORDER BY p.time DESC, p.change_id DESC LIMIT 1
) AS l ON true

-- name: reap_attempts
-- Of the attempts behind a key delete those whose task is gone: a broker reported one while its
-- task was reaped.
-- In:    key_id uuid, key_attempt int; limit
-- Out:   reaped bigint; last_id uuid, last_attempt int: the next key, null at the end
-- Cost:  one index range, one descent a task
-- Locks: the rows
WITH page AS MATERIALIZED (
    SELECT a.task_id, a.attempt
    FROM timer_attempt AS a
    WHERE (a.task_id, a.attempt) > (CAST(:key_id AS uuid), CAST(:key_attempt AS integer))
    ORDER BY a.task_id, a.attempt
    LIMIT CAST(:limit AS integer)
), found AS MATERIALIZED (
    SELECT f.task_id
    FROM (SELECT array_agg(DISTINCT p.task_id) AS ids FROM page AS p) AS i
    CROSS JOIN LATERAL wheel_find_v1(i.ids) AS f
), gone AS (
    DELETE FROM timer_attempt AS a
    USING page AS p
    WHERE a.task_id = p.task_id AND a.attempt = p.attempt
        AND NOT EXISTS (SELECT FROM found AS f WHERE f.task_id = p.task_id)
    RETURNING a.attempt
)
SELECT (SELECT count(*) FROM gone), l.task_id, l.attempt
FROM (VALUES (1)) AS v(one)
LEFT JOIN (
    SELECT p.task_id, p.attempt FROM page AS p ORDER BY p.task_id DESC, p.attempt DESC LIMIT 1
) AS l ON true

-- name: reap_records
-- Delete what is old of the other records: versions of biz_types but the last of each, operations
-- that have ended, keys that open nothing any more.
-- In:    kept_ms; limit, of each
-- Out:   reaped bigint; fewer than the limit: no more for now
-- Cost:  reads those tables, which are small
-- Locks: the rows
WITH edge AS MATERIALIZED (
    SELECT wheel_now_ms() - CAST(:kept_ms AS bigint) AS time
), history AS (
    DELETE FROM timer_biz_history AS h
    WHERE h.version IN (
        SELECT o.version
        FROM timer_biz_history AS o, edge AS e
        WHERE o.time < e.time
            AND EXISTS (
                SELECT FROM timer_biz_history AS n
                WHERE n.biz_type = o.biz_type AND n.version > o.version
            )
        ORDER BY o.version
        LIMIT CAST(:limit AS integer)
    )
    RETURNING h.version
), operations AS (
    DELETE FROM timer_operation AS o
    WHERE o.operation_id IN (
        SELECT d.operation_id
        FROM timer_operation AS d, edge AS e
        WHERE d.finish_time < e.time
        ORDER BY d.create_time
        LIMIT CAST(:limit AS integer)
    )
    RETURNING o.operation_id
), keys AS (
    DELETE FROM timer_key_api AS k
    WHERE k.key_id IN (
        SELECT d.key_id
        FROM timer_key_api AS d, edge AS e
        WHERE d.revoke_time < e.time OR d.expire_at < e.time
        ORDER BY d.key_id
        LIMIT CAST(:limit AS integer)
    )
    RETURNING k.key_id
)
SELECT (SELECT count(*) FROM history) + (SELECT count(*) FROM operations)
    + (SELECT count(*) FROM keys)

-- name: reap_secrets
-- Forget the secrets that were rotated away and have ended, of biz_types and of keys. What they
-- open by now is nothing, so no version is drawn.
-- In:    nothing
-- Out:   reaped bigint
-- Cost:  reads two small tables
-- Locks: one advisory lock for all writers of the configuration, and the rows
WITH turn AS MATERIALIZED (
    SELECT pg_advisory_xact_lock(wheel_lock_class('timer_biz'), 0), wheel_now_ms() AS now_ms
), biz AS (
    UPDATE timer_biz AS b
    SET secrets = jsonb_path_query_array(
        b.secrets, '$[*] ? (!(@.until_ms <= $now))', jsonb_build_object('now', t.now_ms)
    )
    FROM turn AS t
    WHERE jsonb_path_exists(
        b.secrets, '$[*] ? (@.until_ms <= $now)', jsonb_build_object('now', t.now_ms)
    )
    RETURNING b.biz_type
), keys AS (
    UPDATE timer_key_api AS k
    SET previous = NULL, previous_until = NULL
    FROM turn AS t
    WHERE k.previous_until <= t.now_ms
    RETURNING k.key_id
)
SELECT (SELECT count(*) FROM biz) + (SELECT count(*) FROM keys)
