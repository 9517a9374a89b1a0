-- name: is_replica
-- Whether this server only follows another one.
-- In:    nothing
-- Out:   boolean
-- Locks: none
SELECT pg_is_in_recovery()

-- name: repair_lost
-- Cover tasks of one shard that nothing would look at again.
-- In:    shard; task_ids uuid[], start_times bigint[] (ms), at most 1,000; actor text
-- Out:   uuid[]: those that were covered
-- Locks: fence shared, task rows by place, requeue rows by task_id
SELECT wheel_repair_lost_v1(
    CAST(:shard AS smallint), CAST(:task_ids AS uuid[]), CAST(:start_times AS bigint[]),
    CAST(:actor AS text)
)

-- name: repair_orphans
-- Drop requeue rows of one shard that lead nowhere; put those behind the due hand ahead of it.
-- In:    shard; task_ids uuid[], at most 1,000; actor text
-- Out:   uuid[]: those that were changed
-- Locks: fence shared, requeue rows by task_id
SELECT wheel_repair_orphans_v1(
    CAST(:shard AS smallint), CAST(:task_ids AS uuid[]), CAST(:actor AS text)
)

-- name: repair_misplaced
-- Drop keys, dead letters or forwarding rows that lead nowhere.
-- In:    what: key, dead or address; task_ids uuid[], at most 1,000; actor text
-- Out:   uuid[]: the task_ids of what was dropped
-- Cost:  for keys one look at all of them
-- Locks: those rows, by task_id
SELECT wheel_repair_misplaced_v1(
    CAST(:what AS text), CAST(:task_ids AS uuid[]), CAST(:actor AS text)
)

-- name: audit_begin
-- An audit begins, unless it runs.
-- In:    audit text, dead_ms bigint: after so long whoever began it is taken for dead
-- Out:   boolean true; no row where it runs
-- Locks: its own row
INSERT INTO timer_audit_run AS r (audit, begun)
SELECT CAST(:audit AS text), wheel_now_ms()
ON CONFLICT (audit) DO UPDATE
SET begun = EXCLUDED.begun
WHERE r.begun IS NULL OR r.begun < EXCLUDED.begun - CAST(:dead_ms AS bigint)
RETURNING true

-- name: audit_end
-- What an audit has found.
-- In:    audit text, took bigint (ms), found int or null, columns text[] or null, sample jsonb as
--        text or null, error text or null
-- Out:   nothing
-- Locks: its own row
INSERT INTO timer_audit_run AS r (audit, begun, ended, took, found, columns, sample, error)
SELECT CAST(:audit AS text), NULL, wheel_now_ms(), CAST(:took AS bigint),
    CAST(:found AS integer), CAST(:columns AS text[]), CAST(:sample AS jsonb),
    CAST(:error AS text)
ON CONFLICT (audit) DO UPDATE
SET begun = NULL, ended = EXCLUDED.ended, took = EXCLUDED.took, found = EXCLUDED.found,
    columns = EXCLUDED.columns, sample = EXCLUDED.sample, error = EXCLUDED.error

-- name: audit_runs
-- How each audit was run last, without what it found.
-- In:    nothing
-- Out:   audit, begun, ended, took (ms), found, error
-- Cost:  a handful of rows
-- Locks: none
SELECT r.audit, r.begun, r.ended, r.took, r.found, r.error
FROM timer_audit_run AS r

-- name: audit_found
-- What an audit found when it was last run.
-- In:    audit text
-- Out:   columns text[], sample jsonb; null where it was never run to its end
-- Cost:  one row of at most some 100 KB
-- Locks: none
SELECT r.columns, r.sample
FROM timer_audit_run AS r
WHERE r.audit = CAST(:audit AS text)
