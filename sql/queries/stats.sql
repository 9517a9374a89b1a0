-- name: biz_window
-- What became of the tasks of a biz_type that are due in some slots.
-- In:    biz_type text; firsts, afters int[]: ranges of slots [first, after); from, to bigint (ms):
--        start_time in [from, to); look: how many rows of all biz_types are read at most; now (ms)
-- Out:   looked, due, pending, delivering, finished, failed, cancelled, called (attempts >= 1),
--        again (attempts > 1) bigint; lateness of the first call p50, p99 ms or null
-- Cost:  an index range each, and the rows read, 2 us a row
-- Locks: none
SELECT
    w.looked, w.due, w.pending, w.delivering, w.finished, w.failed, w.cancelled, w.called, w.again,
    w.lateness_p50, w.lateness_p99
FROM wheel_biz_window_v1(
    CAST(:biz_type AS text), CAST(:firsts AS integer[]), CAST(:afters AS integer[]),
    CAST(:from AS bigint), CAST(:to AS bigint), CAST(:look AS integer), CAST(:now AS bigint)
) AS w

-- name: biz_dead_count
-- How many dead letters a biz_type has, counted up to a limit.
-- In:    biz_type text, limit
-- Out:   bigint
-- Cost:  an index range of at most `limit` entries
-- Locks: none
SELECT count(*)
FROM (
    SELECT
    FROM timer_dead AS d
    WHERE d.biz_type = CAST(:biz_type AS text)
    LIMIT CAST(:limit AS integer)
) AS counted
