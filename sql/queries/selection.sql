-- name: select_by_place
-- Tasks of a range of slots of one partition that fit a filter, in order of their places.
-- In:    see wheel_select_v1
-- Out:   a row a task, then one with task_id null: looked, last_slot, last_time, last_id, is_done
-- Cost:  two descents an occupied slot, 2 us a row looked at; bounded by looked_max
-- Locks: none
SELECT s.task_id, s.start_time, s.revision, s.looked, s.last_slot, s.last_time, s.last_id, s.is_done
FROM wheel_select_v1(
    CAST(:slot_lo AS integer), CAST(:slot_hi AS integer), CAST(:from AS bigint),
    CAST(:to AS bigint), CAST(:key_time AS bigint), CAST(:key_id AS uuid),
    CAST(:shards AS integer), CAST(:biz_type AS text), CAST(:biz_types AS text[]),
    CAST(:status AS smallint), CAST(:is_leased AS boolean), CAST(:finish_from AS bigint),
    CAST(:finish_to AS bigint), CAST(:http_status AS smallint), CAST(:schedule_id AS uuid),
    CAST(:asked_at AS bigint), CAST(:limit AS integer), CAST(:looked_max AS integer)
) AS s

-- name: select_parts
-- The same tasks, a row a shard, each column a text of an array: for who hands them back as they
-- are, and would spend more on reading and writing a thousand values than Postgres on finding them.
-- In:    as select_by_place
-- Out:   shard, rows, task_ids, start_times, revisions; the row with shard null as there
-- Cost:  as select_by_place
-- Locks: none
WITH found AS MATERIALIZED (
    SELECT s.*
    FROM wheel_select_v1(
        CAST(:slot_lo AS integer), CAST(:slot_hi AS integer), CAST(:from AS bigint),
        CAST(:to AS bigint), CAST(:key_time AS bigint), CAST(:key_id AS uuid),
        CAST(:shards AS integer), CAST(:biz_type AS text), CAST(:biz_types AS text[]),
        CAST(:status AS smallint), CAST(:is_leased AS boolean), CAST(:finish_from AS bigint),
        CAST(:finish_to AS bigint), CAST(:http_status AS smallint), CAST(:schedule_id AS uuid),
        CAST(:asked_at AS bigint), CAST(:limit AS integer), CAST(:looked_max AS integer)
    ) WITH ORDINALITY AS s
)
SELECT wheel_home_shard_v1(f.task_id) AS shard, count(*),
    CAST(array_agg(f.task_id ORDER BY f.ordinality) AS text),
    CAST(array_agg(f.start_time ORDER BY f.ordinality) AS text),
    CAST(array_agg(f.revision ORDER BY f.ordinality) AS text),
    max(f.looked), max(f.last_slot), max(f.last_time), (array_agg(f.last_id))[1],
    bool_or(f.is_done)
FROM found AS f
GROUP BY 1
ORDER BY 1 NULLS LAST

-- name: select_dead
-- A page of dead letters in the order they died.
-- In:    see wheel_select_dead_v1
-- Out:   task_id, finish_time (ms), biz_type, http_status
-- Cost:  one index range
-- Locks: none
SELECT d.task_id, d.finish_time, d.biz_type, d.http_status
FROM wheel_select_dead_v1(
    CAST(:biz_type AS text), CAST(:from AS bigint), CAST(:to AS bigint),
    CAST(:key_time AS bigint), CAST(:key_id AS uuid), CAST(:limit AS integer)
) AS d
ORDER BY d.finish_time, d.task_id

-- name: select_keys
-- A page of a biz_type's own ids, in their order.
-- In:    see wheel_select_keys_v1
-- Out:   biz_id, task_id
-- Cost:  one index range
-- Locks: none
SELECT k.biz_id, k.task_id
FROM wheel_select_keys_v1(
    CAST(:biz_type AS text), CAST(:first AS text), CAST(:end AS text), CAST(:after AS text),
    CAST(:limit AS integer)
) AS k
ORDER BY k.biz_id COLLATE "C"

-- name: selected
-- The tasks with these ids, wherever they are now, without their payloads.
-- In:    task_ids uuid[], each once
-- Out:   the columns of lookup, biz_data null
-- Cost:  one index descent a task, two where it was moved
-- Locks: none
SELECT t.task_id, t.start_time, t.shard, t.status, t.attempts, t.failures, t.revision, t.life,
    t.stop, t.create_time, t.first_attempt_time, t.lease_until, t.next_at, t.finish_time,
    t.expire_at, t.http_status, t.last_error, t.started, t.duration, t.published, t.biz_type,
    t.biz_id, t.schedule_id, CAST(NULL AS bytea), t.content_type, CAST(t.callback AS text),
    CAST(t.retry AS text), t.max_age, t.traceparent, t.renew_time, t.scheduled_time
FROM wheel_find_v1(CAST(:task_ids AS uuid[])) AS t
