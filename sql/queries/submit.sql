-- name: submit
-- Put a batch of new tasks of one shard on the wheel.
-- In:    one array element a task; see wheel_submit_v1
-- Out:   near int[], duplicate int[], existing uuid[]: positions from 1
-- Edge:  none -> pending
-- Cost:  4 us a row in batches of 500
-- Locks: fence shared, keys sorted, task rows by place, requeue rows by task_id
SELECT s.near, s.duplicate, s.existing
FROM wheel_submit_v1(
    CAST(:shard AS smallint), CAST(:task_ids AS uuid[]), CAST(:start_times AS bigint[]),
    CAST(:biz_types AS text[]), CAST(:biz_ids AS text[]), CAST(:biz_data AS bytea[]),
    CAST(:content_types AS text[]), CAST(:callbacks AS text[]), CAST(:retries AS text[]),
    CAST(:max_ages AS bigint[]), CAST(:traceparents AS text[]), CAST(:lookahead_ms AS bigint)
) AS s
