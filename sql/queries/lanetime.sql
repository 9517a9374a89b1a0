-- name: add_lane_time
-- Add to what lanes have held back in this hour.
-- In:    one array element a lane and reason, held in ms
-- Out:   nothing
-- Cost:  one row each
-- Locks: the rows, by biz_type and reason
INSERT INTO timer_lane_time AS l (hour, biz_type, reason, held_ms)
SELECT n.now_ms / 3600000 * 3600000, r.biz_type, r.reason, r.held_ms
FROM unnest(
    CAST(:biz_types AS text[]), CAST(:reasons AS text[]), CAST(:held_ms AS bigint[])
) AS r(biz_type, reason, held_ms)
CROSS JOIN (SELECT wheel_now_ms() AS now_ms) AS n
ORDER BY r.biz_type COLLATE "C", r.reason COLLATE "C"
ON CONFLICT (hour, biz_type, reason) DO UPDATE
SET held_ms = l.held_ms + EXCLUDED.held_ms

-- name: drop_lane_time
-- Forget what is older than two days.
-- In:    nothing
-- Out:   nothing
-- Cost:  one index descent where nothing is, at most 1,000 rows
-- Locks: the rows; those that somebody else drops are passed over
DELETE FROM timer_lane_time AS l
USING (
    SELECT o.hour, o.biz_type, o.reason
    FROM timer_lane_time AS o
    WHERE o.hour < (SELECT wheel_now_ms()) - 172800000
    ORDER BY o.hour, o.biz_type, o.reason
    LIMIT 1000
    FOR UPDATE SKIP LOCKED
) AS k
WHERE l.hour = k.hour AND l.biz_type = k.biz_type AND l.reason = k.reason

-- name: lanes_held
-- Which lanes have held back what was due, in this hour and the one before, the longest first.
-- In:    limit
-- Out:   biz_type text, reason text, held_ms bigint
-- Cost:  one index range: a row for each of these lanes, hours and reasons
-- Locks: none
SELECT l.biz_type, l.reason, CAST(sum(l.held_ms) AS bigint) AS held_ms
FROM timer_lane_time AS l
WHERE l.hour >= (SELECT wheel_now_ms()) / 3600000 * 3600000 - 3600000
GROUP BY l.biz_type, l.reason
ORDER BY held_ms DESC, l.biz_type, l.reason
LIMIT CAST(:limit AS integer)
