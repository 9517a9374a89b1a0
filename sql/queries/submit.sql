-- name: submit
-- Put a batch of new tasks of one shard on the wheel.
-- In:    one array element a task; see wheel_submit_v1; limited text[], limits bigint[]: the
--        biz_types that have a max_pending, null where none has
-- Out:   near int[], duplicate int[], existing uuid[], refused int[]: positions from 1
-- Edge:  none -> pending
-- Cost:  4 us a row in batches of 500; 0.3 ms for each limited biz_type, and what is not folded
-- Locks: fence shared, keys sorted, task rows by place, requeue rows by task_id
SELECT s.near, s.duplicate, s.existing, s.refused
FROM wheel_submit_v1(
    CAST(:shard AS smallint), CAST(:task_ids AS uuid[]), CAST(:start_times AS bigint[]),
    CAST(:biz_types AS text[]), CAST(:biz_ids AS text[]), CAST(:biz_data AS bytea[]),
    CAST(:content_types AS text[]), CAST(:callbacks AS text[]), CAST(:retries AS text[]),
    CAST(:max_ages AS bigint[]), CAST(:traceparents AS text[]), CAST(:lookahead_ms AS bigint),
    CAST(:limited AS text[]), CAST(:limits AS bigint[])
) AS s
