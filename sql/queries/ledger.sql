-- name: ledger_fold
-- Fold what writers have appended to the ledger into its sums, oldest first.
-- In:    epoch of shard 0, limit
-- Out:   deltas folded; fewer than limit: there are no more for now. WT001 where another leads
-- Cost:  2 us a delta, and a HOT update for each quarter hour, day and biz_type among them;
--        synchronous_commit off
-- Locks: the ledger's mark and rows, pointer row
SELECT wheel_ledger_fold_v1(CAST(:epoch AS bigint), CAST(:limit AS integer))

-- name: ledger_totals
-- How many tasks of each biz_type are pending, and how many lie dead: as far as was folded.
-- In:    nothing
-- Out:   biz_type text, pending, dead bigint
-- Cost:  a row for each biz_type that ever had a task
-- Locks: none
SELECT t.biz_type, t.pending, t.dead
FROM timer_ledger_total AS t
