-- kind: report
-- A row is a biz_type and a quarter hour (UTC) of the last day, by start_time, with what became of
-- the tasks that were due in it:
--   submitted + moved_in + revived = moved_out + pending + finished + failed + cancelled + purged
--   revived    settled tasks that were started anew, or failed ones that were discarded (which
--              counts as cancelled, too)
--   purged     pending tasks that were deleted; settled ones that were deleted, on request or at
--              the end of their retention, count as reaped
-- What to do: pending in a quarter hour that is over waits for a retry or in its lane (`overdue`,
-- `lateness`); failed are dead letters (GET /v1/tasks?status=failed), to be replayed or discarded.
-- The whole ledger: timer_ledger_view; by the day of the submit: timer_ledger_day_view.
SELECT l.*
FROM timer_ledger_view AS l
WHERE l.quarter >= wheel_time_v1((SELECT wheel_now_ms()) - 86400000)
    AND l.quarter <= wheel_time_v1((SELECT wheel_now_ms()))
ORDER BY l.quarter DESC, l.biz_type
LIMIT 1000;
