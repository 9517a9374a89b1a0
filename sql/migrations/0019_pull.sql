-- breaking: no
-- Locks: timer_requeue, against writers, while an index is made of its rows; creates functions.
-- Time:  a second for each million of requeue rows.
--
-- Pull delivery: a worker reserves what is due, and reports what came of it. A reservation is a
-- claim like a broker's: attempts + 1 and a lease. But nobody of ours works on it, so its stream
-- entry is given up at once, and a requeue row `reserved` at the lease's end stands in its place.

-- Those in workers' hands, so that they can be counted.
CREATE INDEX timer_requeue_reserved ON timer_requeue (biz_type, due_at) WHERE reason = 'reserved';

-- How many tasks of a biz_type are in workers' hands; counts up to p_limit.
CREATE FUNCTION wheel_reserved_v1(p_biz_type text, p_now bigint, p_limit integer) RETURNS integer
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    -- VOLATILE: a snapshot of its own.
    RETURN (
        SELECT count(*)
        FROM (
            SELECT
            FROM timer_requeue AS q
            WHERE q.biz_type = p_biz_type AND q.reason = 'reserved' AND q.due_at > p_now
            LIMIT p_limit
        ) AS r
    );
END
$$;

-- Reserve tasks of one biz_type for workers: wheel_claim_v1, and a requeue row at the end of each
-- lease, in one transaction.
--
-- In:  p_reserved_max: how many of this biz_type may be reserved at once, over all brokers. p_ttrs:
--      ms, the leases. p_shown_bytes: payload bytes of an answer. The others as for wheel_claim_v1;
--      the tasks in place order.
-- Out: as wheel_claim_v1. Verdict `bare`: claimed, without its payload, for its rows go out while
--      the fence is held (see wheel_show_v1); `full`: beyond p_reserved_max, nothing was changed.
-- Calls for one biz_type follow each other, commit by commit, so that p_reserved_max is exact; but
-- not as long as less than a quarter of it is in use and this call is for a sixteenth at most: to
-- be one too many, a dozen such calls would have to meet within one commit.
-- Edge: pending -> pending. Locks: fence shared, the biz_type's turn, task rows in the order given,
-- requeue rows by task_id.
CREATE FUNCTION wheel_reserve_v1(
    p_shard smallint, p_slot_lo integer, p_slot_hi integer,
    p_biz_type text, p_reserved_max integer,
    p_task_ids uuid[], p_start_times bigint[], p_moments bigint[], p_ttrs bigint[],
    p_published bigint[], p_bytes_max bigint, p_shown_bytes bigint
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
#variable_conflict use_column
DECLARE
    v_closed bigint;
    v_now    bigint;
    v_wanted integer := cardinality(p_task_ids);
    v_room   integer;
    v_ids    uuid[];
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    v_now := wheel_now_ms();
    v_room := p_reserved_max - wheel_reserved_v1(p_biz_type, v_now, p_reserved_max);
    IF v_wanted * 16 <= p_reserved_max AND (v_room - v_wanted) * 4 >= p_reserved_max * 3 THEN
        PERFORM pg_advisory_xact_lock_shared(wheel_lock_class('timer_biz'), hashtext(p_biz_type));
    ELSE
        PERFORM pg_advisory_xact_lock(wheel_lock_class('timer_biz'), hashtext(p_biz_type));
    END IF;
    -- Again, for what was reserved in the turn before.
    v_room := p_reserved_max - wheel_reserved_v1(p_biz_type, v_now, p_reserved_max);
    v_room := greatest(0, least(v_room, v_wanted));

    IF v_room > 0 THEN
        RETURN QUERY
        WITH claimed AS MATERIALIZED (
            SELECT c.*
            FROM wheel_claim_v1(
                p_slot_lo, p_slot_hi, p_task_ids[1:v_room],
                array_fill(p_shard, ARRAY[v_room]), p_start_times[1:v_room], p_moments[1:v_room],
                p_ttrs[1:v_room], 0, 0, p_bytes_max, p_published[1:v_room]
            ) AS c
        ), kept AS (
            INSERT INTO timer_requeue (task_id, shard, start_time, due_at, biz_type, reason)
            SELECT c.task_id, p_shard, c.start_time, greatest(c.lease_until, v_closed + 1),
                c.biz_type, 'reserved'
            FROM claimed AS c
            WHERE c.verdict = 'claimed'
            ORDER BY c.task_id
            ON CONFLICT (task_id) DO UPDATE
            SET due_at = EXCLUDED.due_at, start_time = EXCLUDED.start_time,
                shard = EXCLUDED.shard, reason = EXCLUDED.reason
        )
        SELECT CASE WHEN c.is_shown OR c.verdict <> 'claimed' THEN c.verdict ELSE 'bare' END,
            c.task_id, c.lease_until, c.start_time, c.biz_type, c.biz_id, c.attempts, c.failures,
            c.revision, c.life, c.stop, c.create_time, c.first_attempt_time,
            CASE WHEN c.is_shown THEN c.biz_data END, c.content_type, c.callback, c.retry,
            c.max_age, c.schedule_id, c.traceparent, c.was_lost, c.scheduled_time, c.was_called
        FROM (
            SELECT d.*, coalesce(
                sum(octet_length(d.biz_data)) OVER (ORDER BY d.task_id) <= p_shown_bytes, true
            ) AS is_shown
            FROM claimed AS d
        ) AS c;
    END IF;
    -- The others, of which only these two columns are known.
    verdict := 'full';
    v_ids := p_task_ids[v_room + 1:];
    FOREACH task_id IN ARRAY v_ids LOOP
        RETURN NEXT;
    END LOOP;
END
$$;

-- What workers report of tasks that they hold; tasks of one shard and partition, each named once,
-- in place order. Who holds a task is who has its attempt, revision and a lease that has not ended:
-- nobody else's report changes anything.
--
-- In:  one array element a task.
--      p_biz_types   as its holder says it; of any other there is no such task
--      p_verbs       finish, release, bury, touch
--      p_delays      release: ms from now until it is due again; touch: ms from now, its new lease
--      p_retentions  ms the row is kept for; of a release: where it was stopped meanwhile
--      p_reasons     why it was buried or released, or null; cleaned by the caller
--      p_erases, p_notice_*, p_lookahead_ms  finish, bury: as for wheel_settle_noted_v1
--      p_latest_ms   as for wheel_settle_again_v1
-- Out: verdicts, by position: done; repeated: it had been done by this very claim; lost: somebody
--      else's by now, or nobody's; missing: there is no such task at this place
--      moments: of what was released and is due within the look-ahead, by position (else null),
--      which the caller publishes; notices: positions of notices to publish
-- Edges: pending -> pending | finished | failed | cancelled. Locks: fence shared, task rows in the
-- order given, requeue rows by task_id.
CREATE FUNCTION wheel_report_v1(
    p_shard smallint, p_slot_lo integer, p_slot_hi integer,
    p_task_ids uuid[], p_start_times bigint[], p_biz_types text[], p_verbs text[],
    p_attempts integer[], p_revisions integer[], p_delays bigint[], p_retentions bigint[],
    p_reasons text[], p_broker text, p_config_versions bigint[], p_erases boolean[],
    p_notice_ids uuid[], p_notice_times bigint[], p_notice_biz_types text[],
    p_notice_biz_ids text[], p_notice_data bytea[], p_notice_content_type text,
    p_lookahead_ms bigint, p_latest_ms bigint,
    OUT verdicts text[], OUT moments bigint[], OUT notices integer[]
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
    v_closed    bigint;
    v_now       bigint;
    v_tids      tid[];
    v_lives     smallint[];
    v_started   bigint[];
    v_durations integer[];
    v_dues      bigint[];
    v_published bigint[];
    v_at        integer[];  -- positions
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    -- A clock that jumps ahead takes no reservation with it, and ends none.
    v_now := least(wheel_now_ms(), p_latest_ms);
    SELECT array_agg(
            CASE
                WHEN k.tid IS NULL OR k.status = 4 OR k.biz_type <> r.biz_type THEN 'missing'
                WHEN k.attempts <> r.attempt OR k.revision <> r.revision THEN 'lost'
                WHEN k.status = 0 AND k.lease_until > v_now THEN 'done'
                WHEN r.verb = 'finish' AND k.status = 1 OR r.verb = 'bury' AND k.status = 2
                    OR r.verb = 'release' AND k.status = 0 AND k.lease_until IS NULL
                    THEN 'repeated'
                ELSE 'lost'
            END ORDER BY r.position
        ),
        array_agg(k.tid ORDER BY r.position),
        array_agg(k.life ORDER BY r.position), array_agg(k.started ORDER BY r.position),
        array_agg(CAST(least(v_now - k.started, 2147483647) AS integer) ORDER BY r.position),
        array_agg(greatest(r.start_time, k.next_at) ORDER BY r.position),
        array_agg(k.published ORDER BY r.position)
    INTO verdicts, v_tids, v_lives, v_started, v_durations, v_dues, v_published
    FROM unnest(p_task_ids, p_start_times, p_biz_types, p_verbs, p_attempts, p_revisions)
        WITH ORDINALITY AS r(task_id, start_time, biz_type, verb, attempt, revision, position)
    LEFT JOIN LATERAL (
        SELECT t.ctid AS tid, t.status, t.attempts, t.revision, t.lease_until, t.biz_type, t.life,
            t.started, t.next_at, t.published
        FROM timer_task AS t
        WHERE t.slot BETWEEN p_slot_lo AND p_slot_hi
            AND t.slot = CAST((r.start_time / 1000) % 10000000 AS integer)
            AND t.shard = p_shard
            AND t.start_time = r.start_time
            AND t.task_id = r.task_id
        LIMIT 1
        FOR NO KEY UPDATE
    ) AS k ON true;
    moments := array_fill(CAST(NULL AS bigint), ARRAY[cardinality(p_task_ids)]);
    notices := '{}';

    -- Three kinds of reports write requeue rows below, each by itself: locked here, all in order.
    IF p_verbs[1] <> ANY (p_verbs) THEN
        PERFORM FROM timer_requeue AS q
        WHERE q.task_id = ANY (p_task_ids)
        ORDER BY q.task_id
        FOR UPDATE;
    END IF;

    -- What nobody says is not planned for: each statement costs 0.1 ms.
    IF 'touch' = ANY (p_verbs) THEN
        SELECT array_agg(CAST(v.position AS integer) ORDER BY v.position) INTO v_at
        FROM unnest(verdicts, p_verbs) WITH ORDINALITY AS v(verdict, verb, position)
        WHERE v.verdict = 'done' AND v.verb = 'touch';
    END IF;
    IF v_at IS NOT NULL THEN
        EXECUTE format(
            'UPDATE %I AS t
            SET lease_until = $1 + l.ttr
            FROM unnest($2, $3) WITH ORDINALITY AS l(tid, ttr, position)
            WHERE t.ctid = l.tid AND l.position = ANY ($4)',
            wheel_partition_v1(p_slot_lo)
        ) USING v_now, v_tids, p_delays, v_at;
        INSERT INTO timer_requeue (task_id, shard, start_time, due_at, biz_type, reason)
        SELECT r.task_id, p_shard, r.start_time, greatest(v_now + r.ttr, v_closed + 1),
            r.biz_type, 'reserved'
        FROM unnest(p_task_ids, p_start_times, p_delays, p_biz_types)
            WITH ORDINALITY AS r(task_id, start_time, ttr, biz_type, position)
        WHERE r.position = ANY (v_at)
        ORDER BY r.task_id
        ON CONFLICT (task_id) DO UPDATE
        SET due_at = EXCLUDED.due_at, start_time = EXCLUDED.start_time, shard = EXCLUDED.shard,
            reason = EXCLUDED.reason;
    END IF;

    v_at := NULL;
    IF 'finish' = ANY (p_verbs) OR 'bury' = ANY (p_verbs) THEN
        SELECT array_agg(CAST(v.position AS integer) ORDER BY v.position) INTO v_at
        FROM unnest(verdicts, p_verbs) WITH ORDINALITY AS v(verdict, verb, position)
        WHERE v.verdict = 'done' AND v.verb IN ('finish', 'bury');
    END IF;
    IF v_at IS NOT NULL AND p_notice_biz_types IS NULL AND true <> ALL (p_erases) THEN
        PERFORM wheel_settle_final_v1(
            p_slot_lo, p_slot_hi,
            array_agg(p_task_ids[i] ORDER BY i), array_agg(p_shard),
            array_agg(p_start_times[i] ORDER BY i),
            array_agg(CAST(CASE p_verbs[i] WHEN 'finish' THEN 1 ELSE 2 END AS smallint)
                ORDER BY i),
            array_agg(p_attempts[i] ORDER BY i), array_agg(p_revisions[i] ORDER BY i),
            array_agg(p_retentions[i] ORDER BY i), NULL,
            array_agg(p_reasons[i] ORDER BY i), NULL, NULL,
            array_agg(v_started[i] ORDER BY i), array_agg(v_durations[i] ORDER BY i),
            array_agg(v_dues[i] ORDER BY i), array_agg(v_published[i] ORDER BY i), NULL,
            array_agg(p_broker), array_agg(p_config_versions[i] ORDER BY i),
            array_agg(v_lives[i] ORDER BY i)
        )
        FROM unnest(v_at) AS i;
    ELSIF v_at IS NOT NULL THEN
        SELECT array_agg(v_at[n.position]) INTO notices
        FROM unnest((
            SELECT wheel_settle_noted_v1(
                p_slot_lo, p_slot_hi,
                array_agg(p_task_ids[i] ORDER BY i), p_shard,
                array_agg(p_start_times[i] ORDER BY i),
                array_agg(CAST(CASE p_verbs[i] WHEN 'finish' THEN 1 ELSE 2 END AS smallint)
                    ORDER BY i),
                array_agg(p_attempts[i] ORDER BY i), array_agg(p_revisions[i] ORDER BY i),
                array_agg(p_retentions[i] ORDER BY i), NULL,
                array_agg(p_reasons[i] ORDER BY i), NULL, NULL,
                array_agg(v_started[i] ORDER BY i), array_agg(v_durations[i] ORDER BY i),
                array_agg(v_dues[i] ORDER BY i), array_agg(v_published[i] ORDER BY i), NULL,
                array_agg(p_broker), array_agg(p_config_versions[i] ORDER BY i),
                array_agg(v_lives[i] ORDER BY i), array_agg(p_erases[i] ORDER BY i),
                array_agg(p_notice_ids[i] ORDER BY i), array_agg(p_notice_times[i] ORDER BY i),
                array_agg(p_notice_biz_types[i] ORDER BY i),
                array_agg(p_notice_biz_ids[i] ORDER BY i),
                array_agg(p_notice_data[i] ORDER BY i), p_notice_content_type, p_lookahead_ms
            )
            FROM unnest(v_at) AS i
        )) AS n(position);
        notices := coalesce(notices, '{}');
    END IF;

    v_at := NULL;
    IF 'release' = ANY (p_verbs) THEN
        SELECT array_agg(CAST(v.position AS integer) ORDER BY v.position) INTO v_at
        FROM unnest(verdicts, p_verbs) WITH ORDINALITY AS v(verdict, verb, position)
        WHERE v.verdict = 'done' AND v.verb = 'release';
    END IF;
    IF v_at IS NOT NULL THEN
        SELECT array_agg(a.moment ORDER BY r.position) INTO moments
        FROM unnest(p_task_ids) WITH ORDINALITY AS r(task_id, position)
        LEFT JOIN (
            SELECT s.task_id, s.moment
            FROM (
                SELECT
                    array_agg(p_task_ids[i] ORDER BY i) AS ids,
                    array_agg(p_start_times[i] ORDER BY i) AS places,
                    array_agg(CAST('released' AS text)) AS outcomes,
                    array_agg(p_attempts[i] ORDER BY i) AS attempts,
                    array_agg(p_revisions[i] ORDER BY i) AS revisions,
                    array_agg(p_delays[i] ORDER BY i) AS delays,
                    array_agg(p_retentions[i] ORDER BY i) AS retentions,
                    array_agg(p_reasons[i] ORDER BY i) AS reasons,
                    array_agg(v_started[i] ORDER BY i) AS started,
                    array_agg(v_durations[i] ORDER BY i) AS durations,
                    array_agg(v_dues[i] ORDER BY i) AS dues,
                    array_agg(v_published[i] ORDER BY i) AS published,
                    array_agg(p_broker) AS brokers,
                    array_agg(p_config_versions[i] ORDER BY i) AS config_versions,
                    array_agg(v_lives[i] ORDER BY i) AS lives
                FROM unnest(v_at) AS i
            ) AS g
            CROSS JOIN LATERAL wheel_settle_again_v1(
                p_shard, p_slot_lo, p_slot_hi, g.ids, g.places, g.outcomes, g.attempts,
                g.revisions, g.delays, g.retentions, NULL, g.reasons, NULL, NULL, g.started,
                g.durations, g.dues, g.published, NULL, g.brokers, g.config_versions, g.lives,
                p_lookahead_ms, p_latest_ms
            ) AS s
        ) AS a ON a.task_id = r.task_id;
    END IF;
END
$$;
