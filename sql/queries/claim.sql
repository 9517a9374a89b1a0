-- name: claim
-- Take an expiring, exclusive right to one attempt at each task of one partition.
-- In:    one array element a task, in place order; see wheel_claim_v1
-- Out:   verdict, task_id, lease_until, and for `claimed` all an attempt takes
-- Edge:  pending -> pending under a lease
-- Cost:  HOT, 9.5 us a row in batches of 100
-- Locks: task rows in place order
SELECT c.verdict, c.task_id, c.lease_until, c.start_time, c.biz_type, c.biz_id, c.attempts,
    c.failures, c.revision, c.life, c.stop, c.create_time, c.first_attempt_time, c.biz_data,
    c.content_type, c.callback, c.retry, c.max_age, c.schedule_id, c.traceparent, c.was_lost,
    c.scheduled_time, c.was_called
FROM wheel_claim_v1(
    CAST(:slot_lo AS integer), CAST(:slot_hi AS integer), CAST(:task_ids AS uuid[]),
    CAST(:shards AS smallint[]), CAST(:start_times AS bigint[]), CAST(:moments AS bigint[]),
    CAST(:timeouts AS bigint[]), CAST(:margin_ms AS bigint), CAST(:early_ms AS bigint),
    CAST(:bytes_max AS bigint), NULL
) AS c
