-- breaking: no
-- Locks: timer_requeue, against writers, while an index is made of its rows; creates a table and
--        functions.
-- Time:  a second for each million of requeue rows.
--
-- What a held lane (its biz_type is paused, the brake is on, the breaker open) does with its
-- references: they become requeue rows `held`, due far ahead, so that they neither fill the event
-- center nor come round every minute. Who opens the lane pulls them forward.

-- Few rows are held, wait for a retry, or for room in their lane; the others are no part of this.
-- An index each, so that whether there are any of one kind is one descent, however many there are
-- of the others: it is asked each second.
CREATE INDEX timer_requeue_held ON timer_requeue (biz_type, shard, due_at, task_id)
    WHERE reason = 'held';
CREATE INDEX timer_requeue_retry ON timer_requeue (biz_type, shard, due_at, task_id)
    WHERE reason = 'retry';
CREATE INDEX timer_requeue_overflow ON timer_requeue (biz_type, shard, due_at, task_id)
    WHERE reason = 'overflow';

-- How long lanes held back what was due, and why: by the hour in which a broker told it. Two
-- brokers that hold the same lane count twice. Of the last two days; for sql/audit/lateness.sql.
CREATE TABLE timer_lane_time (
    hour     bigint NOT NULL,
    biz_type text   COLLATE "C" NOT NULL,
    reason   text   COLLATE "C" NOT NULL CHECK (
        reason IN ('paused', 'breaker_open', 'rate_limited', 'concurrency')
    ),
    held_ms  bigint NOT NULL,
    PRIMARY KEY (hour, biz_type, reason)
);

-- Hold tasks of one partition: each gets a requeue row `held`, due at p_due_ats or later.
-- What is settled, was moved, or is being called needs none. One that still waits for its retry or
-- release keeps that row: it comes at its own time.
-- Returns how many are held now. At most 1,000, in place order.
-- Locks: fence shared, task rows in the order given, requeue rows by task_id.
CREATE FUNCTION wheel_hold_v1(
    p_shard smallint, p_slot_lo integer, p_slot_hi integer,
    p_task_ids uuid[], p_start_times bigint[], p_due_ats bigint[]
) RETURNS integer
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
    v_closed bigint;
    v_now    bigint;
    v_held   integer;
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    v_now := wheel_now_ms();
    WITH free AS MATERIALIZED (
        SELECT k.*, r.due_at
        FROM unnest(p_task_ids, p_start_times, p_due_ats) AS r(task_id, start_time, due_at)
        CROSS JOIN LATERAL (
            SELECT t.task_id, t.start_time, t.biz_type, t.lease_until
            FROM timer_task AS t
            WHERE t.slot BETWEEN p_slot_lo AND p_slot_hi
                AND t.slot = CAST((r.start_time / 1000) % 10000000 AS integer)
                AND t.shard = p_shard
                AND t.start_time = r.start_time
                AND t.task_id = r.task_id
                AND t.status = 0
            LIMIT 1
            -- Still pending at this place when its row is written: else the row would hide a task
            -- that was moved meanwhile from the sweep.
            FOR SHARE
        ) AS k
    ), written AS (
        INSERT INTO timer_requeue AS q (task_id, shard, start_time, due_at, biz_type, reason)
        SELECT f.task_id, p_shard, f.start_time, greatest(f.due_at, v_closed + 1), f.biz_type,
            'held'
        FROM free AS f
        WHERE f.lease_until IS NULL OR f.lease_until <= v_now
        ORDER BY f.task_id
        ON CONFLICT (task_id) DO UPDATE
        SET due_at = EXCLUDED.due_at, start_time = EXCLUDED.start_time, shard = EXCLUDED.shard,
            reason = EXCLUDED.reason
        -- A retry's row that the hand has passed is about to be re-armed by it: its reference is
        -- this one, and after it no other comes for a visibility time.
        WHERE q.reason NOT IN ('retry', 'release') OR q.due_at <= v_closed
        RETURNING q.task_id
    )
    SELECT count(*) INTO v_held FROM written;
    RETURN v_held;
END
$$;

-- Let retries of a biz_type come within p_spread_ms, at moments drawn by chance: those that wait
-- for longer. Returns how many rows were looked at; fewer than p_limit: no more wait in this shard.
-- Edge:  pending -> pending, an earlier next_at. HOT.
-- Locks: fence shared, task rows by place, requeue rows by task_id.
CREATE FUNCTION wheel_recall_v1(
    p_shard smallint, p_biz_type text, p_spread_ms bigint, p_limit integer
) RETURNS integer
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
    v_closed     bigint;
    v_now        bigint;
    v_ids        uuid[];
    v_starts     bigint[];
    v_moments    bigint[];
    v_first_slot integer;
    v_recalled   uuid[];
    v_page       uuid[];
    v_tids       tid[];
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    v_now := wheel_now_ms();
    SELECT array_agg(w.task_id), array_agg(w.start_time), array_agg(w.moment)
    INTO v_ids, v_starts, v_moments
    FROM (
        SELECT q.task_id, q.start_time,
            greatest(v_closed + 1, v_now + CAST(floor(random() * p_spread_ms) AS bigint)) AS moment
        FROM timer_requeue AS q
        WHERE q.biz_type = p_biz_type AND q.reason = 'retry' AND q.shard = p_shard
            AND q.due_at > v_now + p_spread_ms
        ORDER BY q.due_at, q.task_id
        LIMIT p_limit
    ) AS w;

    v_recalled := '{}';
    FOR v_first_slot IN
        SELECT DISTINCT CAST((s.start_time / 1000) % 10000000 / 100000 * 100000 AS integer) AS slot
        FROM unnest(v_starts) AS s(start_time)
        ORDER BY slot
    LOOP
        EXECUTE format(
            'WITH locked AS MATERIALIZED (
                SELECT k.tid, r.moment, r.task_id
                FROM (
                    SELECT * FROM unnest($1, $2, $3) AS u(task_id, start_time, moment)
                    WHERE (u.start_time / 1000) %% 10000000 / 100000 * 100000 = $4
                    ORDER BY (u.start_time / 1000) %% 10000000, u.start_time, u.task_id
                ) AS r
                CROSS JOIN LATERAL (
                    SELECT t.ctid AS tid
                    FROM %1$I AS t
                    WHERE t.slot = CAST((r.start_time / 1000) %% 10000000 AS integer)
                        AND t.shard = $5
                        AND t.start_time = r.start_time
                        AND t.task_id = r.task_id
                        AND t.status = 0
                        AND t.lease_until IS NULL
                        AND t.next_at > r.moment
                    LIMIT 1
                    FOR NO KEY UPDATE
                ) AS k
            ), moved AS (
                UPDATE %1$I AS t
                SET next_at = l.moment
                FROM locked AS l
                WHERE t.ctid = l.tid
                RETURNING t.task_id
            )
            SELECT coalesce(array_agg(m.task_id), ''{}'') FROM moved AS m',
            wheel_partition_v1(v_first_slot)
        ) INTO v_page USING v_ids, v_starts, v_moments, v_first_slot, p_shard;
        v_recalled := v_recalled || v_page;
    END LOOP;

    SELECT array_agg(k.tid), array_agg(r.moment) INTO v_tids, v_moments
    FROM (
        SELECT *
        FROM unnest(v_ids, v_moments) AS u(task_id, moment)
        WHERE u.task_id = ANY (v_recalled)
        ORDER BY u.task_id
    ) AS r
    CROSS JOIN LATERAL (
        SELECT q.ctid AS tid, q.reason
        FROM timer_requeue AS q
        WHERE q.task_id = r.task_id
        LIMIT 1
        FOR UPDATE
    ) AS k
    WHERE k.reason = 'retry';
    UPDATE timer_requeue AS q
    SET due_at = l.moment
    FROM unnest(v_tids, v_moments) AS l(tid, moment)
    WHERE q.ctid = l.tid;
    RETURN coalesce(cardinality(v_ids), 0);
END
$$;

-- The biz_types of which any row is held: one index descent for each of them, and one more.
CREATE FUNCTION wheel_held_v1() RETURNS SETOF text
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
DECLARE
    v_biz_type text := '';
BEGIN
    LOOP
        SELECT q.biz_type INTO v_biz_type
        FROM timer_requeue AS q
        WHERE q.reason = 'held' AND q.biz_type > v_biz_type
        ORDER BY q.biz_type
        LIMIT 1;
        EXIT WHEN NOT FOUND;
        RETURN NEXT v_biz_type;
    END LOOP;
END
$$;

-- End tasks whose end leaves more than a status: erase_data takes their payload with them,
-- on_failed puts a notice of a dead one on the wheel, in the same transaction. One row a task, of
-- one shard and partition.
--
-- In:  as wheel_settle_final_v1; p_erases; and for each notice (its biz_type null: none) a task of
--      its own, of the same shard. An erased payload leaves the content_type `erased`.
--      A notice is taken whatever the max_pending of its biz_type.
-- Out: positions (from 1) of the notices that are due within the look-ahead: the caller publishes
--      them. A notice is written only where its task was settled here: sent again, nothing is.
-- Locks: fence shared, task rows in the order given, requeue rows by task_id; keys, rows and
-- requeue rows of the notices, which nobody else knows.
CREATE FUNCTION wheel_settle_noted_v1(
    p_slot_lo integer, p_slot_hi integer,
    p_task_ids uuid[], p_shard smallint, p_start_times bigint[],
    p_statuses smallint[], p_attempts integer[], p_revisions integer[], p_retentions bigint[],
    p_http_statuses smallint[], p_errors text[], p_error_classes text[], p_excerpts text[],
    p_started bigint[], p_durations integer[], p_dues bigint[], p_published bigint[],
    p_addresses text[], p_brokers text[], p_config_versions bigint[], p_lives smallint[],
    p_erases boolean[], p_notice_ids uuid[], p_notice_times bigint[], p_notice_biz_types text[],
    p_notice_biz_ids text[], p_notice_data bytea[], p_notice_content_type text,
    p_lookahead_ms bigint
) RETURNS integer[]
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '5s'
AS $$
DECLARE
    v_settled   uuid[];
    v_positions integer[];
    v_near      integer[];
BEGIN
    PERFORM wheel_fence_v1(p_shard);
    v_settled := wheel_settle_final_v1(
        p_slot_lo, p_slot_hi, p_task_ids, array_fill(p_shard, ARRAY[cardinality(p_task_ids)]),
        p_start_times, p_statuses, p_attempts, p_revisions, p_retentions, p_http_statuses,
        p_errors, p_error_classes, p_excerpts, p_started, p_durations, p_dues, p_published,
        p_addresses, p_brokers, p_config_versions, p_lives
    );

    EXECUTE format(
        'UPDATE %I AS t
        SET biz_data = NULL, content_type = ''erased''
        FROM unnest($1, $2, $3) AS r(task_id, start_time, erase)
        WHERE r.erase
            AND r.task_id = ANY ($4)
            AND t.slot = CAST((r.start_time / 1000) %% 10000000 AS integer)
            AND t.shard = $5
            AND t.start_time = r.start_time
            AND t.task_id = r.task_id
            AND t.biz_data IS NOT NULL',
        wheel_partition_v1(p_slot_lo)
    ) USING p_task_ids, p_start_times, p_erases, v_settled, p_shard;

    SELECT array_agg(CAST(n.position AS integer) ORDER BY n.position) INTO v_positions
    FROM unnest(p_task_ids, p_notice_biz_types)
        WITH ORDINALITY AS n(task_id, biz_type, position)
    WHERE n.biz_type IS NOT NULL AND n.task_id = ANY (v_settled);
    IF v_positions IS NULL THEN
        RETURN '{}';
    END IF;
    SELECT s.near INTO v_near
    FROM (
        SELECT array_agg(p_notice_ids[v] ORDER BY i) AS ids,
            array_agg(p_notice_times[v] ORDER BY i) AS times,
            array_agg(p_notice_biz_types[v] ORDER BY i) AS biz_types,
            array_agg(p_notice_biz_ids[v] ORDER BY i) AS biz_ids,
            array_agg(p_notice_data[v] ORDER BY i) AS data,
            array_agg(p_notice_content_type ORDER BY i) AS content_types
        FROM unnest(v_positions) WITH ORDINALITY AS u(v, i)
    ) AS n
    CROSS JOIN LATERAL wheel_submit_v1(
        p_shard, n.ids, n.times, n.biz_types, n.biz_ids, n.data, n.content_types,
        NULL, NULL, NULL, NULL, p_lookahead_ms
    ) AS s;
    RETURN ARRAY(SELECT v_positions[k] FROM unnest(v_near) AS k);
END
$$;
