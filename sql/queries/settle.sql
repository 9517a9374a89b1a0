-- name: settle_final
-- End tasks of one partition: finished, failed or cancelled.
-- In:    one array element a task, in place order; see wheel_settle_final_v1
-- Out:   task_ids settled here; a missing one was settled or changed by somebody else
-- Edge:  pending -> finished | failed | cancelled
-- Cost:  HOT, 8.7 us a row in batches of 100
-- Locks: task rows in place order, requeue rows by task_id
SELECT wheel_settle_final_v1(
    CAST(:slot_lo AS integer), CAST(:slot_hi AS integer), CAST(:task_ids AS uuid[]),
    CAST(:shards AS smallint[]), CAST(:start_times AS bigint[]), CAST(:statuses AS smallint[]),
    CAST(:attempts AS integer[]), CAST(:revisions AS integer[]), CAST(:retentions AS bigint[]),
    CAST(:http_statuses AS smallint[]), CAST(:errors AS text[]), CAST(:error_classes AS text[]),
    CAST(:excerpts AS text[]), CAST(:started AS bigint[]), CAST(:durations AS integer[]),
    CAST(:dues AS bigint[]), CAST(:published AS bigint[]), CAST(:addresses AS text[]),
    CAST(:brokers AS text[]), CAST(:config_versions AS bigint[]), CAST(:lives AS smallint[])
)

-- name: settle_again
-- Put tasks of one shard and partition back on the wheel after an attempt.
-- In:    one array element a task, in place order; see wheel_settle_again_v1
-- Out:   task_id, start_time, moment, biz_type of those due within the look-ahead
-- Edge:  pending -> pending (a requeue row ahead of the due hand) | cancelled
-- Cost:  HOT; one requeue row and one attempt row a task
-- Locks: fence shared, task rows in place order, requeue rows by task_id
SELECT n.task_id, n.start_time, n.moment, n.biz_type
FROM wheel_settle_again_v1(
    CAST(:shard AS smallint), CAST(:slot_lo AS integer), CAST(:slot_hi AS integer),
    CAST(:task_ids AS uuid[]), CAST(:start_times AS bigint[]), CAST(:outcomes AS text[]),
    CAST(:attempts AS integer[]), CAST(:revisions AS integer[]), CAST(:delays AS bigint[]),
    CAST(:retentions AS bigint[]), CAST(:http_statuses AS smallint[]), CAST(:errors AS text[]),
    CAST(:error_classes AS text[]), CAST(:excerpts AS text[]), CAST(:started AS bigint[]),
    CAST(:durations AS integer[]), CAST(:dues AS bigint[]), CAST(:published AS bigint[]),
    CAST(:addresses AS text[]), CAST(:brokers AS text[]), CAST(:config_versions AS bigint[]),
    CAST(:lives AS smallint[]), CAST(:lookahead_ms AS bigint), CAST(:latest_ms AS bigint)
) AS n

-- name: settle_noted
-- End tasks of one shard and partition whose end leaves more than a status: see
-- wheel_settle_noted_v1.
-- In:    as settle_final, one shard; erases, and the notices of dead tasks
-- Out:   integer[]: positions of the notices that the caller publishes
-- Edge:  pending -> finished | failed | cancelled; each notice: new -> pending
-- Cost:  settle_final, one more update a row, and the submit of the notices
-- Locks: fence shared, task rows in place order, requeue rows by task_id, new rows
SELECT wheel_settle_noted_v1(
    CAST(:slot_lo AS integer), CAST(:slot_hi AS integer), CAST(:task_ids AS uuid[]),
    CAST(:shard AS smallint), CAST(:start_times AS bigint[]), CAST(:statuses AS smallint[]),
    CAST(:attempts AS integer[]), CAST(:revisions AS integer[]), CAST(:retentions AS bigint[]),
    CAST(:http_statuses AS smallint[]), CAST(:errors AS text[]), CAST(:error_classes AS text[]),
    CAST(:excerpts AS text[]), CAST(:started AS bigint[]), CAST(:durations AS integer[]),
    CAST(:dues AS bigint[]), CAST(:published AS bigint[]), CAST(:addresses AS text[]),
    CAST(:brokers AS text[]), CAST(:config_versions AS bigint[]), CAST(:lives AS smallint[]),
    CAST(:erases AS boolean[]), CAST(:notice_ids AS uuid[]), CAST(:notice_times AS bigint[]),
    CAST(:notice_biz_types AS text[]), CAST(:notice_biz_ids AS text[]),
    CAST(:notice_data AS bytea[]), CAST(:notice_content_type AS text),
    CAST(:lookahead_ms AS bigint)
)
