-- name: change
-- Change tasks of one shard: cancel, patch, run, replay, replace, earliest, latest.
-- In:    one array element a task; see wheel_change_v1. shown_bytes: as wheel_show_v1's p_bytes_max
-- Out:   verdicts text[], addresses bigint[] (present places), near int[]: positions from 1, in the
--        first row only; then the columns of lookup: a row for each task shown, else one of nulls
-- Edges: those of wheel_change_v1
-- Cost:  three statements a partition touched; a move one insert more
-- Locks: fence shared, task rows by place, requeue rows by task_id, dead rows by task_id
SELECT CASE WHEN t.ordinality > 1 THEN NULL ELSE c.verdicts END,
    CASE WHEN t.ordinality > 1 THEN NULL ELSE c.addresses END,
    CASE WHEN t.ordinality > 1 THEN NULL ELSE c.near END,
    t.task_id, t.start_time, t.shard, t.status, t.attempts, t.failures, t.revision, t.life,
    t.stop, t.create_time, t.first_attempt_time, t.lease_until, t.next_at, t.finish_time,
    t.expire_at, t.http_status, t.last_error, t.started, t.duration, t.published, t.biz_type,
    t.biz_id, t.schedule_id, t.biz_data, t.content_type, CAST(t.callback AS text),
    CAST(t.retry AS text), t.max_age, t.traceparent, t.renew_time, t.scheduled_time
FROM wheel_change_v1(
    CAST(:shard AS smallint), CAST(:task_ids AS uuid[]), CAST(:start_times AS bigint[]),
    CAST(:verbs AS text[]), CAST(:revisions AS integer[]), CAST(:to_times AS bigint[]),
    CAST(:dues AS bigint[]), CAST(:sets AS integer[]), CAST(:biz_data AS bytea[]),
    CAST(:content_types AS text[]), CAST(:callbacks AS text[]), CAST(:retries AS text[]),
    CAST(:max_ages AS bigint[]), CAST(:traceparents AS text[]), CAST(:actors AS text[]),
    CAST(:retention_ms AS bigint), CAST(:lookahead_ms AS bigint)
) AS c
LEFT JOIN LATERAL wheel_show_v1(
    CAST(:shard AS smallint), CAST(:task_ids AS uuid[]), c.addresses,
    CAST(:shown_bytes AS integer)
) WITH ORDINALITY AS t ON true
