-- name: change
-- Change tasks of one shard: cancel, patch, run, replay, replace, earliest, latest.
-- In:    one array element a task; see wheel_change_v1
-- Out:   verdicts text[], addresses bigint[] (present places), near int[]: positions from 1
-- Edges: those of wheel_change_v1
-- Cost:  three statements a partition touched; a move one insert more
-- Locks: fence shared, task rows by place, requeue rows by task_id, dead rows by task_id
SELECT c.verdicts, c.addresses, c.near
FROM wheel_change_v1(
    CAST(:shard AS smallint), CAST(:task_ids AS uuid[]), CAST(:start_times AS bigint[]),
    CAST(:verbs AS text[]), CAST(:revisions AS integer[]), CAST(:to_times AS bigint[]),
    CAST(:dues AS bigint[]), CAST(:sets AS integer[]), CAST(:biz_data AS bytea[]),
    CAST(:content_types AS text[]), CAST(:callbacks AS text[]), CAST(:retries AS text[]),
    CAST(:max_ages AS bigint[]), CAST(:traceparents AS text[]), CAST(:actors AS text[]),
    CAST(:retention_ms AS bigint), CAST(:lookahead_ms AS bigint)
) AS c
