-- name: ledger_fold
-- Fold what writers have appended to the ledger into its sums, oldest first.
-- In:    epoch of shard 0, limit
-- Out:   deltas folded; fewer than limit: there are no more for now. WT001 where another leads
-- Cost:  2 us a delta, and a HOT update for each quarter hour, day and biz_type among them;
--        synchronous_commit off
-- Locks: the ledger's mark and rows, pointer row
SELECT wheel_ledger_fold_v1(CAST(:epoch AS bigint), CAST(:limit AS integer))

-- name: ledger_coarsen
-- Sum up old quarter hours, of which nothing is left, in the row of their day's first one.
-- In:    kept_ms: how old they are; key_biz_type text, key_quarter bigint: where the last page
--        ended; limit: how many of one biz_type are looked at
-- Out:   summed int; next_biz_type, next_quarter: the next key, null at the end
-- Cost:  one index range of a biz_type's old rows; synchronous_commit off
-- Locks: the ledger's mark and rows
SELECT c.summed, c.next_biz_type, c.next_quarter
FROM wheel_ledger_coarsen_v1(
    CAST(:kept_ms AS bigint), CAST(:key_biz_type AS text), CAST(:key_quarter AS bigint),
    CAST(:limit AS integer)
) AS c

-- name: ledger_totals
-- How many tasks of each biz_type are pending, and how many lie dead: as far as was folded.
-- In:    nothing
-- Out:   biz_type text, pending, dead bigint
-- Cost:  a row for each biz_type that ever had a task
-- Locks: none
SELECT t.biz_type, t.pending, t.dead
FROM timer_ledger_total AS t

-- name: ledger_pending
-- How many tasks of a biz_type are pending, exactly.
-- In:    biz_type text
-- Out:   bigint
-- Cost:  one row, and what is not folded yet: the last second or two of all biz_types
-- Locks: none
SELECT wheel_pending_v1(CAST(:biz_type AS text))

-- name: ledger_totals_now
-- How many tasks of each biz_type are pending, and how many lie dead, exactly.
-- In:    nothing
-- Out:   biz_type text, pending, dead bigint
-- Cost:  a row for each biz_type that ever had a task, and what is not folded yet
-- Locks: none
SELECT p.biz_type, CAST(sum(p.pending) AS bigint), CAST(sum(p.dead) AS bigint)
FROM (
    SELECT t.biz_type, t.pending, t.dead FROM timer_ledger_total AS t
    UNION ALL
    SELECT
        u.biz_type,
        u.submitted + u.moved_in + u.revived - u.moved_out - u.finished - u.failed - u.cancelled
            - u.purged,
        u.failed - u.revived_failed - u.reaped_failed
    FROM timer_ledger_unfolded AS u
) AS p
GROUP BY p.biz_type

-- name: ledger_span
-- The ledger of a biz_type over a span of start_time, exactly, newest first.
-- In:    biz_type text; from, to bigint (ms): [from, to); width bigint (ms): 900000 for quarter
--        hours, 86400000 for days
-- Out:   time bigint (ms, where the quarter hour or day begins), submitted, moved_in, moved_out,
--        revived, finished, failed, cancelled, purged, reaped_finished, reaped_failed,
--        reaped_cancelled bigint
-- Cost:  one index range: 96 rows a day at most; and what is not folded yet
-- Locks: none
SELECT
    s.quarter / CAST(:width AS bigint) * CAST(:width AS bigint),
    CAST(sum(s.submitted) AS bigint), CAST(sum(s.moved_in) AS bigint),
    CAST(sum(s.moved_out) AS bigint), CAST(sum(s.revived) AS bigint),
    CAST(sum(s.finished) AS bigint), CAST(sum(s.failed) AS bigint),
    CAST(sum(s.cancelled) AS bigint), CAST(sum(s.purged) AS bigint),
    CAST(sum(s.reaped_finished) AS bigint), CAST(sum(s.reaped_failed) AS bigint),
    CAST(sum(s.reaped_cancelled) AS bigint)
FROM (
    SELECT
        l.quarter, l.submitted, l.moved_in, l.moved_out, l.revived, l.finished, l.failed,
        l.cancelled, l.purged, l.reaped_finished, l.reaped_failed, l.reaped_cancelled
    FROM timer_ledger AS l
    WHERE l.biz_type = CAST(:biz_type AS text)
        AND l.quarter >= CAST(:from AS bigint)
        AND l.quarter < CAST(:to AS bigint)
    UNION ALL
    SELECT
        u.quarter, u.submitted, u.moved_in, u.moved_out, u.revived, u.finished, u.failed,
        u.cancelled, u.purged, u.reaped_finished, u.reaped_failed, u.reaped_cancelled
    FROM timer_ledger_unfolded AS u
    WHERE u.biz_type = CAST(:biz_type AS text)
        AND u.quarter >= CAST(:from AS bigint)
        AND u.quarter < CAST(:to AS bigint)
) AS s
GROUP BY 1
ORDER BY 1 DESC
