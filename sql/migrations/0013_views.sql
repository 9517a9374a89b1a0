-- breaking: no
-- Locks: none; creates views and the functions they call.
--
-- What people and reports read: times as timestamptz, credentials masked, payloads apart.

-- A header's value that stands in for a credential: what GET shows of it.
CREATE FUNCTION wheel_masked_v1(p_callback jsonb) RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CASE
        WHEN p_callback -> 'headers' IS NULL THEN p_callback
        ELSE jsonb_set(
            p_callback, '{headers}', (
                SELECT coalesce(
                    jsonb_object_agg(
                        h.key,
                        CASE
                            WHEN lower(h.key) IN ('authorization', 'cookie')
                                OR lower(h.key) ~ '-(key|token|secret)$' THEN '{"set": true}'
                            ELSE h.value
                        END
                    ),
                    '{}'
                )
                FROM jsonb_each(p_callback -> 'headers') AS h
            )
        )
    END
$$;

-- ms since the epoch as a timestamp, for people.
CREATE FUNCTION wheel_time_v1(p_ms bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CAST('1970-01-01 00:00:00+00' AS timestamptz) + p_ms * interval '1 millisecond'
$$;

-- One row a task: all but its payload. To be fast, say where: by slot, or by task_id with it.
CREATE VIEW timer_task_view AS
SELECT
    t.task_id,
    t.biz_type,
    t.biz_id,
    CASE
        WHEN t.status = 1 THEN 'finished'
        WHEN t.status = 2 THEN 'failed'
        WHEN t.status = 3 THEN 'cancelled'
        WHEN t.lease_until > n.now_ms THEN 'delivering'
        ELSE 'pending'
    END AS status,
    wheel_time_v1(t.start_time) AS start_time,
    wheel_time_v1(t.create_time) AS create_time,
    t.life,
    t.revision,
    t.attempts,
    t.failures,
    t.stop,
    wheel_time_v1(t.first_attempt_time) AS first_attempt_time,
    CASE
        WHEN t.status = 0 THEN wheel_time_v1(greatest(t.next_at, t.start_time))
    END AS next_attempt_time,
    wheel_time_v1(t.lease_until) AS lease_until,
    wheel_time_v1(t.finish_time) AS finish_time,
    wheel_time_v1(t.expire_at) AS expire_time,
    t.http_status,
    t.last_error,
    wheel_time_v1(t.published) AS published_time,
    wheel_time_v1(t.started) AS started_time,
    t.duration AS duration_ms,
    t.content_type,
    wheel_masked_v1(t.callback) AS callback,
    t.retry,
    t.max_age AS max_age_ms,
    t.schedule_id,
    wheel_time_v1(t.scheduled_time) AS scheduled_time,
    t.slot,
    t.shard
FROM timer_task AS t
CROSS JOIN (SELECT wheel_now_ms() AS now_ms) AS n
WHERE t.status <> 4;

-- The payloads. Apart, because not everybody who may count tasks may read them.
CREATE VIEW timer_payload_view AS
SELECT t.task_id, t.biz_type, t.biz_id, t.content_type, t.biz_data, t.slot
FROM timer_task AS t
WHERE t.status <> 4;

-- One row for each attempt that did not finish its task; that one is in the task's own row.
CREATE VIEW timer_attempt_view AS
SELECT
    a.task_id,
    a.attempt,
    a.life,
    a.outcome,
    wheel_time_v1(a.due_time) AS due_time,
    wheel_time_v1(a.published_time) AS published_time,
    wheel_time_v1(a.started_time) AS started_time,
    a.duration_ms,
    a.error_class,
    a.error,
    a.http_status,
    a.response_excerpt,
    a.remote_address,
    a.broker,
    a.config_version
FROM timer_attempt AS a;
