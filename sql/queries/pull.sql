-- name: reserve
-- Reserve tasks of one biz_type, shard and partition for workers.
-- In:    one array element a task, in place order; see wheel_reserve_v1
-- Out:   as claim; verdicts beside: `full`, as many are reserved as may be; `bare`, claimed, the
--        payload is to be read
-- Edge:  pending -> pending under a lease, and a requeue row at its end
-- Cost:  a claim, and one requeue row a task; one index range over what is reserved
-- Locks: fence shared, the biz_type's turn, task rows in place order, requeue rows by task_id
SELECT c.verdict, c.task_id, c.lease_until, c.start_time, c.biz_type, c.biz_id, c.attempts,
    c.failures, c.revision, c.life, c.stop, c.create_time, c.first_attempt_time, c.biz_data,
    c.content_type, c.callback, c.retry, c.max_age, c.schedule_id, c.traceparent, c.was_lost,
    c.scheduled_time, c.was_called
FROM wheel_reserve_v1(
    CAST(:shard AS smallint), CAST(:slot_lo AS integer), CAST(:slot_hi AS integer),
    CAST(:biz_type AS text), CAST(:reserved_max AS integer), CAST(:task_ids AS uuid[]),
    CAST(:start_times AS bigint[]), CAST(:moments AS bigint[]), CAST(:ttrs AS bigint[]),
    CAST(:published AS bigint[]), CAST(:bytes_max AS bigint), CAST(:shown_bytes AS bigint)
) AS c

-- name: report
-- What workers report of tasks of one shard and partition: finish, release, bury, touch.
-- In:    one array element a task, in place order; see wheel_report_v1
-- Out:   verdicts text[], moments bigint[] (ms), notices integer[] by position
-- Edge:  pending -> pending | finished | failed | cancelled
-- Cost:  that of settle_noted or settle_again; a touch: one HOT update and one requeue row
-- Locks: fence shared, task rows in place order, requeue rows by task_id
SELECT r.verdicts, r.moments, r.notices
FROM wheel_report_v1(
    CAST(:shard AS smallint), CAST(:slot_lo AS integer), CAST(:slot_hi AS integer),
    CAST(:task_ids AS uuid[]), CAST(:start_times AS bigint[]), CAST(:biz_types AS text[]),
    CAST(:verbs AS text[]), CAST(:attempts AS integer[]), CAST(:revisions AS integer[]),
    CAST(:delays AS bigint[]),
    CAST(:retentions AS bigint[]), CAST(:reasons AS text[]), CAST(:broker AS text),
    CAST(:config_versions AS bigint[]), CAST(:erases AS boolean[]),
    CAST(:notice_ids AS uuid[]), CAST(:notice_times AS bigint[]),
    CAST(:notice_biz_types AS text[]), CAST(:notice_biz_ids AS text[]),
    CAST(:notice_data AS bytea[]), CAST(:notice_content_type AS text),
    CAST(:lookahead_ms AS bigint), CAST(:latest_ms AS bigint)
) AS r
