-- breaking: no
-- Locks: none; creates functions.
--
-- Claim and settle. Each call names rows of one partition, in place order: p_slot_lo and p_slot_hi
-- bound them, so that a custom plan touches that partition only. Rows are first locked one by one
-- through the primary key by a lateral look-up, then updated by their ctid, which the lock holds
-- still. Both ways are forced: on a fresh hot slot, without statistics, the planner believes the
-- slot to be nearly empty and reads all of it for each row (990 us a row against 9, measured on
-- 5,000 rows). So the update names its partition in its text: no condition on slot is left in it
-- that could call for the index, and a TID scan is all there is.

-- Take the right to one attempt at each task: attempts + 1 and a lease.
--
-- In:  p_moments: when the callback is to start; p_timeouts: ms, used where the task has no
--      timeout of its own; p_margin_ms: added to both; p_early_ms: how far ahead of its moment a
--      claim is granted; p_bytes_max: payload bytes a call gives out (the first is always given);
--      p_published: null where they are called. Where a worker reserves them: when each was
--      published; its lease is p_timeouts alone, and the attempt begins with it.
-- Out: a row each, by verdict; a task of which nothing is said is settled or gone.
--      claimed  the attempt is ours
--      early    more than p_early_ms ahead of its moment by this clock; nothing was changed
--      leased   somebody has it until lease_until, or it waits until then for its next attempt
--      again    p_bytes_max was used up; nothing was changed
-- A lease that had run out counts one failure and leaves an attempt row `lost`: its broker died in
-- the call, or is frozen. create_time is when the task last came onto the wheel: lateness and
-- max_age count from it.
-- Edge:  pending -> pending. HOT: no indexed column changes. Locks: task rows in the order given.
CREATE FUNCTION wheel_claim_v1(
    p_slot_lo integer, p_slot_hi integer,
    p_task_ids uuid[], p_shards smallint[], p_start_times bigint[], p_moments bigint[],
    p_timeouts bigint[], p_margin_ms bigint, p_early_ms bigint, p_bytes_max bigint,
    p_published bigint[]
) RETURNS TABLE (
    verdict text, task_id uuid, lease_until bigint, start_time bigint, biz_type text, biz_id text,
    attempts integer, failures smallint, revision integer, life smallint, stop boolean,
    create_time bigint, first_attempt_time bigint, biz_data bytea, content_type text,
    callback text, retry text, max_age bigint, schedule_id uuid, traceparent text,
    was_lost boolean, scheduled_time bigint, was_called boolean
)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '5s'
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    v_now      bigint := wheel_now_ms();
    v_tids     tid[];
    v_ids      uuid[];
    v_verdicts text[];
    v_waits    bigint[];
    v_losses   boolean[];
    v_attempts integer[];
    v_lives    smallint[];
    v_timeouts bigint[];
    v_published bigint[];
BEGIN
    WITH locked AS MATERIALIZED (
        SELECT k.*, r.moment, r.timeout, r.published, r.position
        FROM unnest(p_task_ids, p_shards, p_start_times, p_moments, p_timeouts, p_published)
            WITH ORDINALITY AS r(task_id, shard, start_time, moment, timeout, published, position)
        CROSS JOIN LATERAL (
            SELECT t.ctid AS tid, t.task_id, t.start_time, t.lease_until, t.next_at, t.attempts,
                t.life, octet_length(t.biz_data) AS bytes
            FROM timer_task AS t
            WHERE t.slot BETWEEN p_slot_lo AND p_slot_hi
                AND t.slot = CAST((r.start_time / 1000) % 10000000 AS integer)
                AND t.shard = r.shard
                AND t.start_time = r.start_time
                AND t.task_id = r.task_id
                AND t.status = 0
            LIMIT 1
            FOR NO KEY UPDATE
        ) AS k
    ), judged AS (
        SELECT l.*,
            CASE
                WHEN l.lease_until > v_now THEN 'leased'
                WHEN l.next_at > v_now + p_early_ms AND l.next_at > l.moment THEN 'leased'
                WHEN greatest(l.start_time, l.next_at) > v_now + p_early_ms THEN 'early'
                WHEN l.position > 1
                    AND sum(l.bytes) OVER (ORDER BY l.position) > p_bytes_max THEN 'again'
                ELSE 'claimed'
            END AS verdict
        FROM locked AS l
    )
    SELECT array_agg(j.tid), array_agg(j.task_id), array_agg(j.verdict),
        array_agg(greatest(j.lease_until, j.next_at)), array_agg(j.lease_until IS NOT NULL),
        array_agg(j.attempts), array_agg(j.life), array_agg(j.timeout), array_agg(j.published)
    INTO v_tids, v_ids, v_verdicts, v_waits, v_losses, v_attempts, v_lives, v_timeouts, v_published
    FROM judged AS j;

    -- What a single claim does not need is not planned for it: each statement costs 0.1 ms.
    IF true = ANY (v_losses) THEN
        INSERT INTO timer_attempt (task_id, attempt, life, outcome, error_class, error)
        SELECT j.task_id, j.attempt, j.life, 'lost', 'lost',
            'who had it did not report before the lease ran out'
        FROM unnest(v_ids, v_verdicts, v_losses, v_attempts, v_lives)
            AS j(task_id, verdict, was_lost, attempt, life)
        WHERE j.verdict = 'claimed' AND j.was_lost
        ON CONFLICT DO NOTHING;
    END IF;

    RETURN QUERY EXECUTE format(
        'UPDATE %I AS t
        SET attempts = t.attempts + 1,
            failures = t.failures + CASE WHEN j.was_lost THEN 1 ELSE 0 END,
            lease_until = CASE
                WHEN j.published IS NOT NULL THEN $5 + j.timeout
                ELSE $5 + $6 + coalesce(
                    CAST(CAST(t.callback ->> ''timeout'' AS numeric) * 1000 AS bigint), j.timeout
                )
            END,
            first_attempt_time = coalesce(t.first_attempt_time, $5),
            started = CASE WHEN j.published IS NULL THEN t.started ELSE $5 END,
            published = coalesce(j.published, t.published)
        FROM unnest($1, $2, $3, $4, $7) AS j(tid, verdict, was_lost, timeout, published)
        WHERE t.ctid = j.tid AND j.verdict = ''claimed''
        RETURNING j.verdict, t.task_id, t.lease_until, t.start_time, t.biz_type, t.biz_id,
            t.attempts, t.failures, t.revision, t.life, t.stop,
            greatest(t.create_time, t.renew_time), t.first_attempt_time, t.biz_data,
            t.content_type, CAST(t.callback AS text), CAST(t.retry AS text), t.max_age,
            t.schedule_id, t.traceparent, j.was_lost, t.scheduled_time,
            CASE WHEN j.published IS NULL THEN t.started IS NOT NULL ELSE t.attempts > 1 END',
        wheel_partition_v1(p_slot_lo)
    ) USING v_tids, v_verdicts, v_losses, v_timeouts, v_now, p_margin_ms, v_published;

    IF 'claimed' <> ANY (v_verdicts) THEN
        -- The others, of which only these three columns are known.
        FOR verdict, task_id, lease_until IN
            SELECT j.verdict, j.task_id, j.wait
            FROM unnest(v_verdicts, v_ids, v_waits) AS j(verdict, task_id, wait)
            WHERE j.verdict <> 'claimed'
        LOOP
            RETURN NEXT;
        END LOOP;
    END IF;
END
$$;

-- End tasks: finished, failed or cancelled, one row a task.
--
-- In:  p_statuses 1, 2 or 3; p_retentions: ms the row is kept for. Texts are cleaned by the caller.
-- A success needs status pending and its revision; the others their attempt too, with its lease: a
-- task changed or claimed since is not theirs to end, and a call sent again changes nothing. A
-- result of an older revision leaves its attempt row only (`superseded`).
-- Out: the task_ids that were settled here.
-- Edges: pending -> finished | failed | cancelled. HOT. Locks: task rows in the order given,
-- requeue rows by task_id.
CREATE FUNCTION wheel_settle_final_v1(
    p_slot_lo integer, p_slot_hi integer,
    p_task_ids uuid[], p_shards smallint[], p_start_times bigint[],
    p_statuses smallint[], p_attempts integer[], p_revisions integer[], p_retentions bigint[],
    p_http_statuses smallint[], p_errors text[], p_error_classes text[], p_excerpts text[],
    p_started bigint[], p_durations integer[], p_dues bigint[], p_published bigint[],
    p_addresses text[], p_brokers text[], p_config_versions bigint[], p_lives smallint[]
) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '5s'
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    v_now        bigint := wheel_now_ms();
    v_settled    uuid[];
    v_tids       tid[];
    v_edges      integer[];
    v_biz_types  text[];
    v_places     bigint[];
    v_creates    bigint[];
    v_statuses   smallint[];
    v_retentions bigint[];
    v_https      smallint[];
    v_errors     text[];
    v_started    bigint[];
    v_durations  integer[];
    v_published  bigint[];
BEGIN
    SELECT coalesce(array_agg(k.task_id), '{}'), array_agg(k.tid), array_agg(16 << r.status),
        array_agg(k.biz_type), array_agg(r.start_time), array_agg(k.create_time),
        array_agg(r.status), array_agg(r.retention), array_agg(r.http_status),
        array_agg(r.error), array_agg(r.started), array_agg(r.duration), array_agg(r.published)
    INTO v_settled, v_tids, v_edges, v_biz_types, v_places, v_creates, v_statuses, v_retentions,
        v_https, v_errors, v_started, v_durations, v_published
    FROM unnest(
        p_task_ids, p_shards, p_start_times, p_statuses, p_attempts, p_revisions,
        p_retentions, p_http_statuses, p_errors, p_started, p_durations, p_published
    ) AS r(
        task_id, shard, start_time, status, attempt, revision,
        retention, http_status, error, started, duration, published
    )
    CROSS JOIN LATERAL (
        SELECT t.ctid AS tid, t.task_id, t.biz_type, t.create_time
        FROM timer_task AS t
        WHERE t.slot BETWEEN p_slot_lo AND p_slot_hi
            AND t.slot = CAST((r.start_time / 1000) % 10000000 AS integer)
            AND t.shard = r.shard
            AND t.start_time = r.start_time
            AND t.task_id = r.task_id
            AND t.status = 0
            AND t.revision = r.revision
            AND (r.status = 1 OR t.attempts = r.attempt AND t.lease_until IS NOT NULL)
        LIMIT 1
        FOR NO KEY UPDATE
    ) AS k;

    EXECUTE format(
        'UPDATE %I AS t
        SET status = l.status,
            failures = t.failures
                + CASE WHEN l.status = 2 AND l.started IS NOT NULL THEN 1 ELSE 0 END,
            finish_time = $9,
            expire_at = $9 + l.retention,
            lease_until = NULL,
            next_at = NULL,
            http_status = l.http_status,
            last_error = l.error,
            started = l.started,
            duration = l.duration,
            published = l.published
        FROM unnest($1, $2, $3, $4, $5, $6, $7, $8)
            AS l(tid, status, retention, http_status, error, started, duration, published)
        WHERE t.ctid = l.tid',
        wheel_partition_v1(p_slot_lo)
    ) USING v_tids, v_statuses, v_retentions, v_https, v_errors, v_started, v_durations,
        v_published, v_now;

    PERFORM wheel_ledger_v1(v_edges, v_biz_types, v_places, v_creates);

    PERFORM FROM timer_requeue AS q
    WHERE q.task_id = ANY (v_settled)
    ORDER BY q.task_id
    FOR UPDATE;
    IF FOUND THEN
        DELETE FROM timer_requeue AS q WHERE q.task_id = ANY (v_settled);
    END IF;

    -- The common case ends here: all were successes, and all were ours to settle.
    IF cardinality(v_settled) = cardinality(p_task_ids) AND 1 = ALL (p_statuses) THEN
        RETURN v_settled;
    END IF;

    INSERT INTO timer_dead (task_id, biz_type, finish_time, http_status)
    SELECT t.task_id, t.biz_type, t.finish_time, t.http_status
    FROM unnest(p_task_ids, p_shards, p_start_times, p_statuses)
        AS r(task_id, shard, start_time, status)
    CROSS JOIN LATERAL (
        SELECT k.task_id, k.biz_type, k.finish_time, k.http_status
        FROM timer_task AS k
        WHERE k.slot BETWEEN p_slot_lo AND p_slot_hi
            AND k.slot = CAST((r.start_time / 1000) % 10000000 AS integer)
            AND k.shard = r.shard
            AND k.start_time = r.start_time
            AND k.task_id = r.task_id
        LIMIT 1
    ) AS t
    WHERE r.status = 2 AND r.task_id = ANY (v_settled)
    ON CONFLICT (task_id) DO NOTHING;

    INSERT INTO timer_attempt (
        task_id, attempt, life, outcome, due_time, published_time, started_time, duration_ms,
        config_version, http_status, error_class, error, response_excerpt, remote_address, broker
    )
    SELECT r.task_id, r.attempt, r.life,
        CASE
            WHEN r.task_id <> ALL (v_settled) THEN 'superseded'
            WHEN r.status = 2 THEN 'failed'
            ELSE 'cancelled'
        END,
        r.due, r.published, r.started, r.duration, r.config_version, r.http_status,
        CASE WHEN r.task_id = ANY (v_settled) THEN r.error_class ELSE 'superseded' END,
        r.error, r.excerpt, r.address, r.broker
    FROM unnest(
        p_task_ids, p_shards, p_start_times, p_statuses, p_attempts, p_revisions, p_http_statuses,
        p_errors, p_error_classes, p_excerpts, p_started, p_durations, p_dues, p_published,
        p_addresses, p_brokers, p_config_versions, p_lives
    ) AS r(
        task_id, shard, start_time, status, attempt, revision, http_status,
        error, error_class, excerpt, started, duration, due, published,
        address, broker, config_version, life
    )
    LEFT JOIN LATERAL (
        SELECT k.revision
        FROM timer_task AS k
        WHERE k.slot BETWEEN p_slot_lo AND p_slot_hi
            AND k.slot = CAST((r.start_time / 1000) % 10000000 AS integer)
            AND k.shard = r.shard
            AND k.start_time = r.start_time
            AND k.task_id = r.task_id
        LIMIT 1
    ) AS t ON true
    -- No row at this place: the task has moved on from there, or was reaped.
    WHERE (r.task_id = ANY (v_settled) AND r.status <> 1) OR t.revision <> r.revision
        OR (t.revision IS NULL AND EXISTS (SELECT FROM wheel_find_v1(ARRAY[r.task_id])))
    ON CONFLICT DO NOTHING;

    RETURN v_settled;
END
$$;

-- Put attempts that did not end their task back on the wheel, one row a task, of one shard.
--
-- In:  p_outcomes: retry (a failure is spent), released (none is), unstarted (none, and no attempt
--      row: its number is skipped); p_delays: ms from now. A claim is granted ahead of its moment,
--      so what was not started may still lie before its start_time: never again before that.
--      p_latest_ms: what the clock shows at most, as far as the caller knows, or null: a clock that
--      jumps ahead takes no retry with it, to wait there for as long once it is back
-- Needs status pending, revision and attempts = mine, and the lease (gone once this has run: a
-- call sent again changes nothing). A stopped task is cancelled instead, and its payload erased
-- where its biz_type has erase_data.
-- Out: of those due within the look-ahead, which the caller publishes itself: id, place, moment.
-- Every other one lies ahead of the due hand as a requeue row; so do those, as their net.
-- Edges: pending -> pending | cancelled. HOT. Locks: fence shared, task rows in the order given,
-- requeue rows by task_id.
CREATE FUNCTION wheel_settle_again_v1(
    p_shard smallint, p_slot_lo integer, p_slot_hi integer,
    p_task_ids uuid[], p_start_times bigint[], p_outcomes text[], p_attempts integer[],
    p_revisions integer[], p_delays bigint[], p_retentions bigint[],
    p_http_statuses smallint[], p_errors text[], p_error_classes text[], p_excerpts text[],
    p_started bigint[], p_durations integer[], p_dues bigint[], p_published bigint[],
    p_addresses text[], p_brokers text[], p_config_versions bigint[], p_lives smallint[],
    p_lookahead_ms bigint, p_latest_ms bigint
) RETURNS TABLE (task_id uuid, start_time bigint, moment bigint, biz_type text)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '5s'
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    v_closed     bigint;
    v_now        bigint;
    v_near_to    bigint;
    v_settled    uuid[];
    v_stopped    uuid[];
    v_places     bigint[];
    v_biz_types  text[];
    v_creates    bigint[];
    v_tids       tid[];
    v_stops      boolean[];
    v_outcomes   text[];
    v_moments    bigint[];
    v_retentions bigint[];
    v_https      smallint[];
    v_errors     text[];
    v_started    bigint[];
    v_durations  integer[];
    v_published  bigint[];
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    v_now := least(wheel_now_ms(), p_latest_ms);
    v_near_to := greatest(v_closed, v_now + p_lookahead_ms * 3 / 2);

    SELECT coalesce(array_agg(k.task_id), '{}'),
        coalesce(array_agg(k.task_id) FILTER (WHERE k.stop), '{}'),
        array_agg(r.start_time), array_agg(k.biz_type), array_agg(k.create_time),
        array_agg(k.tid), array_agg(k.stop), array_agg(r.outcome),
        array_agg(greatest(v_now + r.delay, r.start_time)),
        array_agg(r.retention), array_agg(r.http_status), array_agg(r.error),
        array_agg(r.started), array_agg(r.duration), array_agg(r.published)
    INTO v_settled, v_stopped, v_places, v_biz_types, v_creates, v_tids, v_stops, v_outcomes,
        v_moments, v_retentions, v_https, v_errors, v_started, v_durations, v_published
    FROM unnest(
        p_task_ids, p_start_times, p_outcomes, p_attempts, p_revisions, p_delays,
        p_retentions, p_http_statuses, p_errors, p_started, p_durations, p_published
    ) AS r(
        task_id, start_time, outcome, attempt, revision, delay,
        retention, http_status, error, started, duration, published
    )
    CROSS JOIN LATERAL (
        SELECT t.ctid AS tid, t.task_id, t.stop, t.biz_type, t.create_time
        FROM timer_task AS t
        WHERE t.slot BETWEEN p_slot_lo AND p_slot_hi
            AND t.slot = CAST((r.start_time / 1000) % 10000000 AS integer)
            AND t.shard = p_shard
            AND t.start_time = r.start_time
            AND t.task_id = r.task_id
            AND t.status = 0
            AND t.revision = r.revision
            AND t.attempts = r.attempt
            AND t.lease_until IS NOT NULL
        LIMIT 1
        FOR NO KEY UPDATE
    ) AS k;

    EXECUTE format(
        'UPDATE %I AS t
        SET status = CASE WHEN l.stop THEN 3 ELSE 0 END,
            failures = t.failures + CASE WHEN l.outcome = ''retry'' THEN 1 ELSE 0 END,
            lease_until = NULL,
            next_at = CASE WHEN l.stop THEN NULL ELSE l.moment END,
            finish_time = CASE WHEN l.stop THEN $11 END,
            expire_at = CASE WHEN l.stop THEN $11 + l.retention END,
            http_status = CASE WHEN l.started IS NULL THEN t.http_status ELSE l.http_status END,
            last_error = CASE WHEN l.started IS NULL THEN t.last_error ELSE l.error END,
            started = coalesce(l.started, t.started),
            duration = CASE WHEN l.started IS NULL THEN t.duration ELSE l.duration END,
            published = CASE WHEN l.started IS NULL THEN t.published ELSE l.published END
        FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) AS l(
            tid, stop, outcome, moment, retention, http_status, error, started, duration, published
        )
        WHERE t.ctid = l.tid',
        wheel_partition_v1(p_slot_lo)
    ) USING v_tids, v_stops, v_outcomes, v_moments, v_retentions, v_https, v_errors, v_started,
        v_durations, v_published, v_now;

    IF v_stopped <> '{}' THEN
        PERFORM wheel_ledger_v1(
            array_agg(128), array_agg(r.biz_type), array_agg(r.place), array_agg(r.create_time)
        )
        FROM unnest(v_stops, v_biz_types, v_places, v_creates)
            AS r(stop, biz_type, place, create_time)
        WHERE r.stop;
        PERFORM FROM timer_requeue AS q
        WHERE q.task_id = ANY (v_stopped)
        ORDER BY q.task_id
        FOR UPDATE;
        DELETE FROM timer_requeue AS q WHERE q.task_id = ANY (v_stopped);
        EXECUTE format(
            'UPDATE %I AS t
            SET biz_data = NULL, content_type = ''erased''
            FROM unnest($1, $2, $3, $4) AS r(task_id, start_time, biz_type, stop)
            JOIN timer_biz AS b ON b.biz_type = r.biz_type
            WHERE r.stop
                AND CAST(b.config ->> ''erase_data'' AS boolean)
                AND t.slot = CAST((r.start_time / 1000) %% 10000000 AS integer)
                AND t.shard = $5
                AND t.start_time = r.start_time
                AND t.task_id = r.task_id
                AND t.biz_data IS NOT NULL',
            wheel_partition_v1(p_slot_lo)
        ) USING v_settled, v_places, v_biz_types, v_stops, p_shard;
    END IF;

    INSERT INTO timer_requeue (task_id, shard, start_time, due_at, biz_type, reason)
    SELECT r.task_id, p_shard, r.start_time,
        CASE
            WHEN r.moment <= v_near_to THEN greatest(r.moment, v_closed) + 2000
            ELSE r.moment
        END,
        r.biz_type,
        CASE WHEN r.outcome = 'retry' THEN 'retry' ELSE 'release' END
    FROM unnest(v_settled, v_places, v_biz_types, v_stops, v_outcomes, v_moments)
        AS r(task_id, start_time, biz_type, stop, outcome, moment)
    WHERE NOT r.stop
    ORDER BY r.task_id
    ON CONFLICT (task_id) DO UPDATE
    SET due_at = EXCLUDED.due_at, start_time = EXCLUDED.start_time, shard = EXCLUDED.shard,
        reason = EXCLUDED.reason;

    INSERT INTO timer_attempt (
        task_id, attempt, life, outcome, due_time, published_time, started_time, duration_ms,
        config_version, http_status, error_class, error, response_excerpt, remote_address, broker
    )
    SELECT r.task_id, r.attempt, r.life,
        CASE
            WHEN r.task_id <> ALL (v_settled) THEN 'superseded'
            WHEN r.task_id = ANY (v_stopped) THEN 'cancelled'
            ELSE r.outcome
        END,
        r.due, r.published, r.started, r.duration, r.config_version, r.http_status,
        CASE WHEN r.task_id = ANY (v_settled) THEN r.error_class ELSE 'superseded' END,
        r.error, r.excerpt, r.address, r.broker
    FROM unnest(
        p_task_ids, p_start_times, p_outcomes, p_attempts, p_revisions, p_http_statuses,
        p_errors, p_error_classes, p_excerpts, p_started, p_durations, p_dues, p_published,
        p_addresses, p_brokers, p_config_versions, p_lives
    ) AS r(
        task_id, start_time, outcome, attempt, revision, http_status,
        error, error_class, excerpt, started, duration, due, published,
        address, broker, config_version, life
    )
    LEFT JOIN LATERAL (
        SELECT k.revision
        FROM timer_task AS k
        WHERE k.slot BETWEEN p_slot_lo AND p_slot_hi
            AND k.slot = CAST((r.start_time / 1000) % 10000000 AS integer)
            AND k.shard = p_shard
            AND k.start_time = r.start_time
            AND k.task_id = r.task_id
        LIMIT 1
    ) AS t ON true
    WHERE r.outcome <> 'unstarted' AND (
        r.task_id = ANY (v_settled) OR t.revision <> r.revision
        OR (t.revision IS NULL AND EXISTS (SELECT FROM wheel_find_v1(ARRAY[r.task_id])))
    )
    ON CONFLICT DO NOTHING;

    RETURN QUERY
    SELECT r.task_id, r.start_time, r.moment, r.biz_type
    FROM unnest(v_settled, v_places, v_biz_types, v_stops, v_moments)
        AS r(task_id, start_time, biz_type, stop, moment)
    WHERE NOT r.stop AND r.moment <= v_near_to;
END
$$;

-- The home of a task, as its id carries it.
CREATE FUNCTION wheel_home_v1(p_task_id uuid) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CAST(CAST('x' || encode(substr(uuid_send(p_task_id), 1, 6), 'hex') AS bit(48)) AS bigint)
$$;

CREATE FUNCTION wheel_home_shard_v1(p_task_id uuid) RETURNS smallint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CAST(
        (get_byte(uuid_send(p_task_id), 6) & 15) * 256 + get_byte(uuid_send(p_task_id), 7)
        AS smallint
    )
$$;

-- The tasks with these ids wherever they are now, whole rows: from the home that the id carries
-- to the place that it forwards to. A task may be named once. Each partition is named in a text of
-- its own, as in wheel_requeue_due_v1.
-- Each read has a snapshot of its own, taken once its partition is locked: one that is older than
-- the reap hand's TRUNCATE would miss the rows that were carried over. So a task may move on
-- between two reads; who is not where its home says is asked for at home again.
CREATE FUNCTION wheel_find_v1(p_task_ids uuid[]) RETURNS SETOF timer_task
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
DECLARE
    v_ids    uuid[] := p_task_ids;
    v_places bigint[];
    v_slot   integer;
    v_row    timer_task;
    v_met    uuid[];
    v_on_ids uuid[];
    v_on     bigint[];
BEGIN
    SELECT array_agg(wheel_home_v1(i.task_id) ORDER BY i.position) INTO v_places
    FROM unnest(v_ids) WITH ORDINALITY AS i(task_id, position);
    -- The homes, the places that they forward to, and so on for who moves all the time.
    FOR round IN 1..10 LOOP
        v_met := '{}';
        v_on_ids := '{}';
        v_on := '{}';
        FOR v_slot IN
            SELECT DISTINCT CAST((p.place / 1000) % 10000000 / 100000 * 100000 AS integer)
            FROM unnest(v_places) AS p(place)
        LOOP
            FOR v_row IN EXECUTE format(
                'SELECT k.*
                FROM unnest($1, $2) AS r(task_id, place)
                CROSS JOIN LATERAL (
                    SELECT t.*
                    FROM %I AS t
                    WHERE t.slot = CAST((r.place / 1000) %% 10000000 AS integer)
                        AND t.shard = wheel_home_shard_v1(r.task_id)
                        AND t.start_time = r.place
                        AND t.task_id = r.task_id
                    LIMIT 1
                ) AS k
                WHERE (r.place / 1000) %% 10000000 / 100000 * 100000 = $3',
                wheel_partition_v1(v_slot)
            ) USING v_ids, v_places, v_slot
            LOOP
                IF v_row.status = 4 THEN
                    v_on_ids := v_on_ids || v_row.task_id;
                    v_on := v_on || v_row.moved_to;
                ELSE
                    RETURN NEXT v_row;
                END IF;
                IF round > 1 THEN
                    v_met := v_met || v_row.task_id;
                END IF;
            END LOOP;
        END LOOP;
        IF round > 1 AND cardinality(v_met) < cardinality(v_ids) THEN
            SELECT v_on_ids || array_agg(r.task_id), v_on || array_agg(wheel_home_v1(r.task_id))
            INTO v_on_ids, v_on
            FROM unnest(v_ids, v_places) AS r(task_id, place)
            WHERE r.task_id <> ALL (v_met) AND r.place <> wheel_home_v1(r.task_id);
        END IF;
        EXIT WHEN coalesce(v_on, '{}') = '{}';
        v_ids := v_on_ids;
        v_places := v_on;
    END LOOP;
END
$$;
