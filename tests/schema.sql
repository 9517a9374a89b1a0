CREATE TYPE public.wheel_change AS (
	"position" integer,
	verb text,
	task_id uuid,
	from_time bigint,
	home bigint,
	to_time bigint,
	due bigint,
	sets integer,
	biz_data bytea,
	content_type text,
	callback text,
	retry text,
	max_age bigint,
	traceparent text,
	actor text,
	tid tid,
	home_tid tid,
	biz_type text,
	create_time bigint,
	status smallint,
	revision integer,
	attempts integer,
	life smallint,
	lease_until bigint,
	is_delivering boolean,
	lives smallint,
	is_fresh boolean,
	expire_at bigint,
	erases boolean,
	address bigint,
	effect text,
	verdict text
);

CREATE FUNCTION public.wheel_adopt_v1(p_instance text, p_reason text, p_actor text) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'public'
    AS $$
DECLARE
    v_before text;
BEGIN
    PERFORM wheel_configuration_turn_v1();
    IF p_reason IS NOT NULL AND NOT EXISTS (
        SELECT FROM timer_brake AS b WHERE b.reason IS NOT NULL
    ) THEN
        PERFORM wheel_brake_v1(p_actor, p_reason);
    END IF;
    SELECT m.instance INTO v_before FROM timer_meta AS m FOR UPDATE;
    UPDATE timer_meta SET instance = p_instance, restored_at = wheel_now_ms();
    DELETE FROM timer_node;
    INSERT INTO timer_change (time, actor, action, object, old, new)
    VALUES (
        wheel_now_ms(), p_actor, 'wheel.adopt', 'wheel',
        jsonb_build_object('instance', v_before), jsonb_build_object('instance', p_instance)
    );
    RETURN v_before;
END
$$;

CREATE FUNCTION public.wheel_advance_v1(p_shard smallint, p_epoch bigint, p_current bigint) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '1s'
    AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    UPDATE timer_pointer AS p
    SET "current_time" = greatest(p."current_time", p_current)
    WHERE p.shard = p_shard AND p.epoch = p_epoch;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'leadership lost'
            USING ERRCODE = 'WT001', DETAIL = p_shard || ' ' || p_epoch;
    END IF;
END
$$;

CREATE FUNCTION public.wheel_barrier_try_v1(p_shard smallint) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'public'
    AS $$
BEGIN
    RETURN pg_try_advisory_xact_lock(wheel_lock_class('timer_pointer'), p_shard);
END
$$;

CREATE FUNCTION public.wheel_barrier_v1(p_shard smallint, p_wait_ms integer) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'public'
    AS $$
BEGIN
    PERFORM set_config('lock_timeout', CAST(p_wait_ms AS text), true);
    PERFORM pg_advisory_xact_lock(wheel_lock_class('timer_pointer'), p_shard);
END
$$;

CREATE FUNCTION public.wheel_biz_delete_v1(p_actor text, p_biz_type text, p_expected bigint, p_old jsonb, OUT deleted bigint, OUT named_by text) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'public'
    AS $$
DECLARE
    v_now bigint;
BEGIN
    PERFORM wheel_configuration_turn_v1();
    SELECT b.biz_type
    INTO named_by
    FROM timer_biz AS b
    WHERE b.config ->> 'on_failed' = p_biz_type
    ORDER BY b.biz_type
    LIMIT 1;
    IF named_by IS NOT NULL THEN
        RETURN;
    END IF;
    DELETE FROM timer_biz AS b WHERE b.biz_type = p_biz_type AND b.version = p_expected;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM FROM timer_schedule AS s WHERE s.biz_type = p_biz_type
    ORDER BY s.schedule_id FOR UPDATE;
    DELETE FROM timer_schedule AS s WHERE s.biz_type = p_biz_type;
    v_now := wheel_now_ms();
    deleted := nextval('timer_biz_version');
    INSERT INTO timer_biz_history (version, time, biz_type, actor, action, shown)
    VALUES (deleted, v_now, p_biz_type, p_actor, 'biz.delete', NULL);
    INSERT INTO timer_change (time, actor, action, object, old, new)
    VALUES (v_now, p_actor, 'biz.delete', p_biz_type, p_old, NULL);
END
$$;

CREATE FUNCTION public.wheel_biz_put_v1(p_actor text, p_changes jsonb, OUT versions bigint[], OUT unknown text) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'public'
    AS $$
DECLARE
    v_now     bigint;
    v_version bigint;
    v_change  jsonb;
BEGIN
    PERFORM wheel_configuration_turn_v1();
    IF EXISTS (
        SELECT
        FROM jsonb_array_elements(p_changes) AS c (change)
        LEFT JOIN timer_biz AS b ON b.biz_type = c.change ->> 'biz_type'
        WHERE b.version IS DISTINCT FROM CAST(c.change ->> 'expected' AS bigint)
    ) THEN
        RETURN;
    END IF;
    SELECT c.change #>> '{config,on_failed}'
    INTO unknown
    FROM jsonb_array_elements(p_changes) AS c (change)
    WHERE c.change #>> '{config,on_failed}' IS NOT NULL
        AND NOT EXISTS (
            SELECT FROM timer_biz AS b WHERE b.biz_type = c.change #>> '{config,on_failed}'
        )
        AND NOT EXISTS (
            SELECT
            FROM jsonb_array_elements(p_changes) AS o (change)
            WHERE o.change ->> 'biz_type' = c.change #>> '{config,on_failed}'
        )
    LIMIT 1;
    IF unknown IS NOT NULL THEN
        RETURN;
    END IF;
    v_now := wheel_now_ms();
    FOR v_change IN
        SELECT c.change
        FROM jsonb_array_elements(p_changes) WITH ORDINALITY AS c (change, place)
        ORDER BY c.place
    LOOP
        v_version := nextval('timer_biz_version');
        INSERT INTO timer_biz AS b (biz_type, version, config, secrets, create_time, update_time)
        VALUES (
            v_change ->> 'biz_type', v_version, v_change -> 'config', v_change -> 'secrets',
            v_now, v_now
        )
        ON CONFLICT (biz_type) DO UPDATE
        SET version = excluded.version,
            config = excluded.config,
            secrets = excluded.secrets,
            update_time = excluded.update_time;
        INSERT INTO timer_biz_history (version, time, biz_type, actor, action, shown)
        VALUES (
            v_version, v_now, v_change ->> 'biz_type', p_actor, v_change ->> 'action',
            v_change -> 'shown'
        );
        INSERT INTO timer_change (time, actor, action, object, old, new)
        VALUES (
            v_now, p_actor, v_change ->> 'action', v_change ->> 'biz_type',
            nullif(v_change -> 'old', 'null'), nullif(v_change -> 'new', 'null')
        );
        versions := versions || v_version;
    END LOOP;
END
$$;

CREATE FUNCTION public.wheel_biz_window_v1(p_biz_type text, p_firsts integer[], p_afters integer[], p_from bigint, p_to bigint, p_look integer, p_now bigint, OUT looked bigint, OUT due bigint, OUT pending bigint, OUT delivering bigint, OUT finished bigint, OUT failed bigint, OUT cancelled bigint, OUT called bigint, OUT again bigint, OUT lateness_p50 bigint, OUT lateness_p99 bigint) RETURNS record
    LANGUAGE sql STABLE
    SET search_path TO 'public'
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
    SELECT
        count(*),
        count(*) FILTER (WHERE w.is_own),
        count(*) FILTER (WHERE w.is_own AND w.status = 0 AND NOT w.is_leased),
        count(*) FILTER (WHERE w.is_own AND w.status = 0 AND w.is_leased),
        count(*) FILTER (WHERE w.is_own AND w.status = 1),
        count(*) FILTER (WHERE w.is_own AND w.status = 2),
        count(*) FILTER (WHERE w.is_own AND w.status = 3),
        count(*) FILTER (WHERE w.is_own AND w.attempts >= 1),
        count(*) FILTER (WHERE w.is_own AND w.attempts > 1),
        percentile_disc(0.5) WITHIN GROUP (ORDER BY w.lateness) FILTER (WHERE w.is_own),
        percentile_disc(0.99) WITHIN GROUP (ORDER BY w.lateness) FILTER (WHERE w.is_own)
    FROM (
        SELECT
            t.biz_type = p_biz_type AS is_own,
            t.status,
            t.attempts,
            coalesce(t.lease_until, 0) >= p_now AS is_leased,
            t.first_attempt_time - greatest(t.start_time, t.create_time) AS lateness
        FROM unnest(p_firsts, p_afters) AS s(first, after)
        CROSS JOIN LATERAL (
            SELECT
                k.biz_type, k.status, k.attempts, k.lease_until, k.first_attempt_time,
                k.start_time, k.create_time
            FROM timer_task AS k
            WHERE k.slot >= s.first
                AND k.slot < s.after
                AND k.start_time >= p_from
                AND k.start_time < p_to
                AND k.status <> 4
        ) AS t
        LIMIT p_look
    ) AS w
$$;

CREATE FUNCTION public.wheel_brake_v1(p_actor text, p_reason text, OUT since bigint, OUT actor text, OUT reason text) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'public'
    AS $$
DECLARE
    v_old timer_brake;
    v_now bigint;
BEGIN
    PERFORM wheel_configuration_turn_v1();
    SELECT * INTO v_old FROM timer_brake;
    IF v_old.reason IS NOT DISTINCT FROM p_reason THEN
        since := v_old.since;
        actor := v_old.actor;
        reason := v_old.reason;
        RETURN;
    END IF;
    v_now := wheel_now_ms();
    -- A new reason for a brake that is on leaves the moment it was put on.
    since := CASE WHEN v_old.reason IS NULL THEN v_now ELSE v_old.since END;
    actor := p_actor;
    reason := p_reason;
    INSERT INTO timer_brake AS b (version, since, actor, reason)
    VALUES (nextval('timer_biz_version'), wheel_brake_v1.since, p_actor, p_reason)
    ON CONFLICT (one_row) DO UPDATE
    SET version = excluded.version,
        since = excluded.since,
        actor = excluded.actor,
        reason = excluded.reason;
    INSERT INTO timer_change (time, actor, action, object, old, new)
    VALUES (
        v_now,
        p_actor,
        CASE WHEN p_reason IS NULL THEN 'wheel.resume' ELSE 'wheel.pause' END,
        'wheel',
        CASE WHEN v_old.reason IS NOT NULL THEN jsonb_build_object('reason', v_old.reason) END,
        CASE WHEN p_reason IS NOT NULL THEN jsonb_build_object('reason', p_reason) END
    );
END
$$;

CREATE FUNCTION public.wheel_cancel_pending_v1(p_shard smallint, p_task_ids uuid[], p_start_times bigint[], p_revisions integer[], p_retention_ms bigint) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $_$
DECLARE
    v_now       bigint;
    v_slot      integer;
    v_tids      tid[];
    v_ids       uuid[];
    v_biz_types text[];
    v_places    bigint[];
    v_creates   bigint[];
    v_lost      uuid[];
    v_attempts  integer[];
    v_lives     smallint[];
    v_biz_type  text;
    v_part      tid[];
    v_expire_at bigint;
    v_erases    boolean;
    v_ended     uuid[] := '{}';
BEGIN
    PERFORM wheel_fence_v1(p_shard);
    v_now := wheel_now_ms();
    FOR v_slot IN
        SELECT DISTINCT CAST((s.start_time / 1000) % 10000000 / 100000 * 100000 AS integer)
        FROM unnest(p_start_times) AS s(start_time)
        ORDER BY 1
    LOOP
        EXECUTE format(
            'SELECT array_agg(k.tid), array_agg(k.task_id), array_agg(k.biz_type),
                array_agg(k.start_time), array_agg(k.create_time),
                array_agg(k.task_id) FILTER (WHERE k.lease_until IS NOT NULL),
                array_agg(k.attempts) FILTER (WHERE k.lease_until IS NOT NULL),
                array_agg(k.life) FILTER (WHERE k.lease_until IS NOT NULL)
            FROM (
                SELECT CAST((p.place / 1000) %% 10000000 AS integer) AS slot, p.*
                FROM unnest($1, $2, $3) AS p(task_id, place, revision)
                WHERE (p.place / 1000) %% 10000000 / 100000 * 100000 = $6
                ORDER BY 1, p.place, p.task_id
            ) AS r
            CROSS JOIN LATERAL (
                SELECT t.ctid AS tid, t.task_id, t.biz_type, t.start_time, t.create_time,
                    t.lease_until, t.attempts, t.life
                FROM %I AS t
                WHERE t.slot = r.slot
                    AND t.shard = $4
                    AND t.start_time = r.place
                    AND t.task_id = r.task_id
                    AND t.status = 0
                    AND t.revision = r.revision
                    AND (t.lease_until IS NULL OR t.lease_until <= $5)
                LIMIT 1
                FOR NO KEY UPDATE
            ) AS k',
            wheel_partition_v1(v_slot)
        )
        INTO v_tids, v_ids, v_biz_types, v_places, v_creates, v_lost, v_attempts, v_lives
        USING p_task_ids, p_start_times, p_revisions, p_shard, v_now, v_slot;
        CONTINUE WHEN v_ids IS NULL;
        v_ended := v_ended || v_ids;

        FOR v_biz_type, v_part IN
            SELECT g.biz_type, array_agg(g.tid)
            FROM unnest(v_biz_types, v_tids) AS g(biz_type, tid)
            GROUP BY 1
        LOOP
            SELECT CAST(b.config #>> '{retention,cancelled}' AS bigint) * 1000,
                CAST(b.config ->> 'erase_data' AS boolean)
            INTO v_expire_at, v_erases
            FROM timer_biz AS b
            WHERE b.biz_type = v_biz_type;
            EXECUTE format(
                'UPDATE %I AS t
                SET status = 3, finish_time = $2, expire_at = $3,
                    lease_until = NULL, next_at = NULL,
                    content_type = CASE
                        WHEN $4 AND t.biz_data IS NOT NULL THEN ''erased'' ELSE t.content_type
                    END,
                    biz_data = CASE WHEN NOT $4 THEN t.biz_data END
                WHERE t.ctid = ANY ($1)',
                wheel_partition_v1(v_slot)
            ) USING v_part, v_now, v_now + coalesce(v_expire_at, p_retention_ms),
                coalesce(v_erases, false);
        END LOOP;

        PERFORM wheel_ledger_v1(
            array_fill(128, ARRAY[cardinality(v_ids)]), v_biz_types, v_places, v_creates
        );
        IF v_lost IS NOT NULL THEN
            INSERT INTO timer_attempt (task_id, attempt, life, outcome, error_class, error)
            SELECT l.task_id, l.attempt, l.life, 'lost', 'lost',
                'who had it did not report before the lease ran out'
            FROM unnest(v_lost, v_attempts, v_lives) AS l(task_id, attempt, life)
            ON CONFLICT DO NOTHING;
        END IF;
    END LOOP;

    PERFORM FROM timer_requeue AS q WHERE q.task_id = ANY (v_ended) ORDER BY q.task_id FOR UPDATE;
    IF FOUND THEN
        DELETE FROM timer_requeue AS q WHERE q.task_id = ANY (v_ended);
    END IF;
    RETURN cardinality(v_ended);
END
$_$;

CREATE FUNCTION public.wheel_change_v1(p_shard smallint, p_task_ids uuid[], p_start_times bigint[], p_verbs text[], p_revisions integer[], p_to_times bigint[], p_dues bigint[], p_sets integer[], p_biz_data bytea[], p_content_types text[], p_callbacks text[], p_retries text[], p_max_ages bigint[], p_traceparents text[], p_actors text[], p_retention_ms bigint, p_lookahead_ms bigint, OUT verdicts text[], OUT addresses bigint[], OUT near integer[]) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $_$
DECLARE
    v_closed  bigint;
    v_now     bigint;
    v_near_to bigint;
    v_all     wheel_change[];
    v_stay    wheel_change[];
    v_move    wheel_change[];
    v_part    wheel_change[];
    v_slot    integer;
    v_tids    tid[];
    v_expires bigint[];
    v_erases  boolean[];
    v_ids     uuid[];
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    v_now := wheel_now_ms();
    v_near_to := greatest(v_closed, v_now + p_lookahead_ms * 3 / 2);
    IF cardinality(p_task_ids) > 1000 THEN
        RAISE EXCEPTION 'a batch has at most 1000 tasks' USING ERRCODE = '22023';
    END IF;

    v_all := wheel_judge_v1(
        p_shard, p_task_ids, p_start_times, p_verbs, p_revisions, p_to_times, p_dues, p_sets,
        p_biz_data, p_content_types, p_callbacks, p_retries, p_max_ages, p_traceparents, p_actors,
        p_retention_ms, v_now
    );

    SELECT coalesce(array_agg(c.verdict ORDER BY c.position), '{}'),
        coalesce(array_agg(c.address ORDER BY c.position), '{}'),
        coalesce(
            array_agg(c.position ORDER BY c.position)
                FILTER (WHERE c.due IS NULL AND c.to_time <= v_near_to), '{}'
        ),
        array_agg(c) FILTER (WHERE c.effect IN ('stop', 'stay')),
        array_agg(c) FILTER (WHERE c.effect = 'move'),
        array_agg(c.task_id) FILTER (WHERE c.effect = 'cancel' OR c.to_time IS NOT NULL)
    INTO verdicts, addresses, near, v_stay, v_move, v_ids
    FROM unnest(v_all) AS c;

    FOR v_slot, v_tids, v_expires, v_erases IN
        SELECT CAST((c.from_time / 1000) % 10000000 AS integer) / 100000 * 100000,
            array_agg(c.tid), array_agg(c.expire_at), array_agg(c.erases)
        FROM unnest(v_all) AS c
        WHERE c.effect = 'cancel'
        GROUP BY 1
    LOOP
        EXECUTE format(
            'UPDATE %I AS t
            SET status = 3, finish_time = $4, expire_at = c.expire_at,
                lease_until = NULL, next_at = NULL,
                content_type = CASE
                    WHEN c.erases AND t.biz_data IS NOT NULL THEN ''erased'' ELSE t.content_type
                END,
                biz_data = CASE WHEN NOT c.erases THEN t.biz_data END
            FROM unnest($1, $2, $3) AS c(tid, expire_at, erases)
            WHERE t.ctid = c.tid',
            wheel_partition_v1(v_slot)
        ) USING v_tids, v_expires, v_erases, v_now;
    END LOOP;

    -- What a change does to the columns stands twice: here for a row that stays in its place, in
    -- wheel_move_v1 for one that is written anew.
    FOR v_slot, v_part IN
        SELECT CAST((c.from_time / 1000) % 10000000 AS integer) / 100000 * 100000,
            array_agg(CAST(c AS wheel_change))
        FROM unnest(v_stay) AS c
        GROUP BY 1
    LOOP
        EXECUTE format(
            'UPDATE %I AS t
            SET status = CASE c.effect WHEN ''stay'' THEN 0 ELSE t.status END,
                stop = c.effect = ''stop'' OR t.stop AND c.to_time IS NULL,
                revision = t.revision + CASE c.effect WHEN ''stay'' THEN 1 ELSE 0 END,
                life = t.life + c.lives,
                failures = CASE
                    WHEN c.is_fresh THEN 0
                    WHEN c.to_time IS NOT NULL AND t.lease_until IS NOT NULL THEN t.failures + 1
                    ELSE t.failures
                END,
                next_at = CASE WHEN c.to_time IS NULL THEN t.next_at END,
                lease_until = CASE WHEN c.to_time IS NULL THEN t.lease_until END,
                renew_time = CASE WHEN c.to_time IS NULL THEN t.renew_time ELSE $2 END,
                finish_time = NULL,
                expire_at = NULL,
                first_attempt_time = CASE WHEN c.lives = 0 THEN t.first_attempt_time END,
                http_status = CASE WHEN c.lives = 0 THEN t.http_status END,
                last_error = CASE WHEN c.lives = 0 THEN t.last_error END,
                started = CASE WHEN c.to_time IS NULL THEN t.started END,
                duration = CASE WHEN c.to_time IS NULL THEN t.duration END,
                published = CASE WHEN c.to_time IS NULL THEN t.published END,
                biz_data = CASE WHEN c.given & 1 <> 0 THEN c.biz_data ELSE t.biz_data END,
                content_type = CASE WHEN c.given & 32 <> 0 THEN c.content_type
                    ELSE t.content_type END,
                callback = CASE WHEN c.given & 2 <> 0 THEN CAST(c.callback AS jsonb)
                    ELSE t.callback END,
                retry = CASE WHEN c.given & 4 <> 0 THEN CAST(c.retry AS jsonb) ELSE t.retry END,
                max_age = CASE WHEN c.given & 8 <> 0 THEN c.max_age ELSE t.max_age END,
                traceparent = CASE WHEN c.given & 16 <> 0 THEN c.traceparent ELSE t.traceparent END
            FROM (
                SELECT d.*, CASE WHEN d.effect = ''stay'' THEN d.sets ELSE 0 END AS given
                FROM unnest($1) AS d
            ) AS c
            WHERE t.ctid = c.tid',
            wheel_partition_v1(v_slot)
        ) USING v_part, v_now;
    END LOOP;

    IF v_move IS NOT NULL THEN
        PERFORM wheel_move_v1(p_shard, v_move, v_now);
    END IF;

    -- A row that stays and was pending counts for nothing; a stop ends nothing yet.
    INSERT INTO timer_ledger_delta (biz_type, quarter, day, edges, tasks)
    SELECT e.biz_type, e.place / 900000 * 900000, e.create_time / 86400000 * 86400000, e.edges,
        count(*)
    FROM (
        SELECT c.biz_type, c.create_time, c.from_time AS place,
            CASE c.status WHEN 0 THEN 0 WHEN 2 THEN 8 | 16 ELSE 8 END
                | CASE c.effect WHEN 'cancel' THEN 128 WHEN 'move' THEN 4 ELSE 0 END AS edges
        FROM unnest(v_all) AS c
        WHERE c.effect IN ('cancel', 'stay', 'move')
        UNION ALL
        SELECT c.biz_type, c.create_time, c.to_time, 2
        FROM unnest(v_move) AS c
    ) AS e
    WHERE e.edges <> 0
    GROUP BY 1, 2, 3, 4;

    -- Requeue rows: away with those of what ended or went ahead of the hand, and one for each task
    -- whose new moment is closed, or near enough to be published by the caller.
    IF v_ids IS NOT NULL THEN
        PERFORM FROM timer_requeue AS q WHERE q.task_id = ANY (v_ids) ORDER BY q.task_id FOR UPDATE;
        IF FOUND THEN
            DELETE FROM timer_requeue AS q WHERE q.task_id = ANY (v_ids);
        END IF;
        INSERT INTO timer_requeue (task_id, shard, start_time, due_at, biz_type, reason)
        SELECT c.task_id, p_shard, c.to_time,
            CASE
                WHEN c.due IS NULL THEN greatest(c.to_time, v_now, v_closed) + 2000
                ELSE greatest(c.due, c.to_time, v_closed + 1)
            END,
            c.biz_type,
            CASE
                WHEN c.verb IN ('run', 'replay') THEN c.verb
                WHEN c.due IS NULL THEN 'near'
                ELSE 'run'
            END
        FROM unnest(v_all) AS c
        WHERE c.to_time <= v_near_to
        ORDER BY c.task_id;

        -- What the broker that had the lease would have left, had it reported in time.
        INSERT INTO timer_attempt (task_id, attempt, life, outcome, error_class, error)
        SELECT c.task_id, c.attempts, c.life, 'lost', 'lost',
            'who had it did not report before the lease ran out'
        FROM unnest(v_all) AS c
        WHERE c.task_id = ANY (v_ids) AND c.lease_until <= v_now
        ON CONFLICT DO NOTHING;

        PERFORM FROM timer_dead AS d
        WHERE d.task_id = ANY (v_ids)
        ORDER BY d.task_id
        FOR UPDATE;
        IF FOUND THEN
            DELETE FROM timer_dead AS d WHERE d.task_id = ANY (v_ids);
        END IF;
    END IF;

    INSERT INTO timer_change (time, actor, action, object, old, new)
    SELECT v_now, c.actor,
        'task.' || CASE
            WHEN c.effect = 'stop' THEN 'stop'
            WHEN c.effect = 'cancel' AND c.status = 2 THEN 'discard'
            WHEN c.verb IN ('earliest', 'latest') THEN 'replace'
            ELSE c.verb
        END,
        CAST(c.task_id AS text),
        jsonb_build_object(
            'status', CASE
                WHEN c.is_delivering THEN 'delivering'
                ELSE (CAST('{pending,finished,failed,cancelled}' AS text[]))[c.status + 1]
            END,
            'start_time', wheel_time_text_v1(c.from_time),
            'revision', c.revision
        ),
        CASE c.effect
            WHEN 'cancel' THEN jsonb_build_object('status', 'cancelled')
            WHEN 'stop' THEN jsonb_build_object('stop', true)
            ELSE jsonb_build_object(
                'status', 'pending',
                'start_time', wheel_time_text_v1(coalesce(c.to_time, c.from_time)),
                'revision', c.revision + 1,
                'life', c.life + c.lives,
                'fields', to_jsonb(array_remove(ARRAY[
                    CASE WHEN c.sets & 1 <> 0 THEN 'biz_data' END,
                    CASE WHEN c.sets & 2 <> 0 THEN 'callback' END,
                    CASE WHEN c.sets & 4 <> 0 THEN 'retry' END,
                    CASE WHEN c.sets & 8 <> 0 THEN 'max_age' END
                ], NULL))
            )
        END
    FROM unnest(v_all) AS c
    WHERE c.effect IS NOT NULL AND c.actor IS NOT NULL
    ORDER BY c.position;
END
$_$;

CREATE FUNCTION public.wheel_claim_v1(p_slot_lo integer, p_slot_hi integer, p_task_ids uuid[], p_shards smallint[], p_start_times bigint[], p_moments bigint[], p_timeouts bigint[], p_margin_ms bigint, p_early_ms bigint, p_bytes_max bigint, p_published bigint[]) RETURNS TABLE(verdict text, task_id uuid, lease_until bigint, start_time bigint, biz_type text, biz_id text, attempts integer, failures smallint, revision integer, life smallint, stop boolean, create_time bigint, first_attempt_time bigint, biz_data bytea, content_type text, callback text, retry text, max_age bigint, schedule_id uuid, traceparent text, was_lost boolean, scheduled_time bigint, was_called boolean)
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $_$
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
$_$;

CREATE FUNCTION public.wheel_close_v1(p_shard smallint, p_epoch bigint, p_h bigint, p_lookahead_ms bigint, OUT closed_to bigint, OUT closed_before bigint) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '1s'
    AS $$
DECLARE
    v_current bigint;
BEGIN
    -- A close that a crash loses only repeats a range; whoever read its value commits later.
    PERFORM set_config('synchronous_commit', 'off', true);
    SELECT p."current_time" INTO v_current
    FROM timer_pointer AS p
    WHERE p.shard = p_shard AND p.epoch = p_epoch
    FOR UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'leadership lost'
            USING ERRCODE = 'WT001', DETAIL = p_shard || ' ' || p_epoch;
    END IF;
    closed_before := wheel_closed_to_v1(p_shard);
    closed_to := greatest(
        closed_before, v_current, least(p_h, wheel_now_ms() + p_lookahead_ms)
    );
    PERFORM setval(to_regclass('timer_closed_to_' || p_shard), closed_to);
END
$$;

CREATE FUNCTION public.wheel_closed_to_v1(p_shard smallint) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'public'
    AS $$
DECLARE
    v_sequence regclass := to_regclass('timer_closed_to_' || p_shard);
    v_closed   bigint;
BEGIN
    IF v_sequence IS NOT NULL THEN
        v_closed := pg_sequence_last_value(v_sequence);
    END IF;
    IF v_closed IS NULL THEN
        RAISE EXCEPTION 'shard % is not set up in this database; run wheel-timer migrate', p_shard
            USING ERRCODE = 'WT003';
    END IF;
    RETURN v_closed;
END
$$;

CREATE FUNCTION public.wheel_configuration_turn_v1() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'public'
    AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'the configuration needs isolation level read committed'
            USING ERRCODE = 'WT002';
    END IF;
    PERFORM pg_advisory_xact_lock(wheel_lock_class('timer_biz'), 0);
END
$$;

CREATE FUNCTION public.wheel_due_v1(p_shard smallint, p_after bigint, p_to bigint, p_after_time bigint, p_after_id uuid, p_limit integer) RETURNS TABLE(task_id uuid, start_time bigint, biz_type text)
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
    v_now        bigint := wheel_now_ms();
    v_first      bigint := (greatest(p_after + 1, p_after_time)) / 1000;
    v_last       bigint := p_to / 1000;
    v_slot_first integer := v_first % 10000000;
    v_slot_last  integer := v_last % 10000000;
BEGIN
    ASSERT v_last < v_first OR v_slot_first <= v_slot_last, 'the range runs over the ring''s end';
    RETURN QUERY
    SELECT d.task_id, d.start_time, d.biz_type
    FROM generate_series(v_first, v_last) AS s(second)
    CROSS JOIN LATERAL (
        SELECT t.task_id, t.start_time, t.biz_type
        FROM timer_task AS t
        WHERE t.slot BETWEEN v_slot_first AND v_slot_last
            AND t.slot = CAST(s.second % 10000000 AS integer)
            AND t.shard = p_shard
            AND t.start_time > p_after
            AND t.start_time BETWEEN s.second * 1000 AND least(s.second * 1000 + 999, p_to)
            AND (t.start_time, t.task_id) > (p_after_time, p_after_id)
            AND t.status = 0
            AND (t.lease_until IS NULL OR t.lease_until <= v_now)
            AND (t.next_at IS NULL OR t.next_at <= p_to)
        ORDER BY t.slot, t.shard, t.start_time, t.task_id
        LIMIT p_limit
    ) AS d
    LIMIT p_limit;
END
$$;

CREATE FUNCTION public.wheel_fence_break_v1(p_shard smallint, p_older_than_ms bigint) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'public'
    AS $$
DECLARE
    v_ended bigint;
BEGIN
    SELECT count(*) FILTER (WHERE pg_terminate_backend(l.pid)) INTO v_ended
    FROM pg_locks AS l
    JOIN pg_stat_activity AS a ON a.pid = l.pid
    WHERE l.locktype = 'advisory'
        AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
        AND l.classid = CAST('timer_pointer' AS regclass)
        AND l.objid = CAST(p_shard AS integer)
        AND l.objsubid = 2
        AND l.granted
        AND l.mode = 'ShareLock'
        AND a.xact_start < clock_timestamp() - make_interval(secs => p_older_than_ms / 1000.0);
    RETURN v_ended;
END
$$;

CREATE FUNCTION public.wheel_fence_v1(p_shard smallint) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'public'
    AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'the fence needs isolation level read committed'
            USING ERRCODE = 'WT002';
    END IF;
    IF statement_timestamp() - transaction_timestamp() > interval '100 ms' THEN
        RAISE EXCEPTION 'the fence is not for use inside an older transaction'
            USING ERRCODE = 'WT002';
    END IF;
    PERFORM set_config('idle_in_transaction_session_timeout', '1000', true);
    IF current_setting('synchronous_commit') IN ('off', 'local') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    PERFORM pg_advisory_xact_lock_shared(wheel_lock_class('timer_pointer'), p_shard);
    -- In a call of its own, after the lock: the value must be younger than the lock.
    RETURN wheel_closed_to_v1(p_shard);
END
$$;

CREATE FUNCTION public.wheel_fetch_v1(p_shard smallint, p_reason text, p_biz_types text[], p_limits integer[], p_visibility_ms bigint, p_lookahead_ms bigint) RETURNS TABLE(task_id uuid, start_time bigint, moment bigint, fetched bigint, biz_type text)
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_closed  bigint;
    v_now     bigint;
    v_tids    tid[];
    v_moments bigint[];
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    v_now := wheel_now_ms();
    FOR i IN 1..coalesce(cardinality(p_biz_types), 0) LOOP
        SELECT array_agg(w.tid), array_agg(w.moment) INTO v_tids, v_moments
        FROM (
            SELECT q.ctid AS tid, q.due_at - p_visibility_ms AS moment
            FROM timer_requeue AS q
            WHERE q.biz_type = p_biz_types[i] AND q.reason = p_reason AND q.shard = p_shard
                AND q.start_time <= v_now + p_lookahead_ms
            ORDER BY q.due_at, q.task_id
            LIMIT p_limits[i]
            FOR UPDATE SKIP LOCKED
        ) AS w;
        RETURN QUERY
        UPDATE timer_requeue AS q
        SET reason = 'published', due_at = greatest(v_now + p_visibility_ms, v_closed + 1)
        FROM unnest(v_tids, v_moments) AS f(tid, moment)
        WHERE q.ctid = f.tid
        RETURNING q.task_id, q.start_time,
            CASE
                WHEN p_reason = 'held' THEN q.start_time
                WHEN f.moment BETWEEN v_now AND v_now + p_lookahead_ms THEN f.moment
                ELSE q.start_time
            END,
            v_now, q.biz_type;
    END LOOP;
END
$$;

CREATE FUNCTION public.wheel_fill_v1(p_shard smallint, p_epoch bigint, p_biz_type text, p_limit integer) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
    v_closed bigint;
    v_tids   tid[];
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    SELECT array_agg(w.tid) INTO v_tids
    FROM (
        SELECT q.ctid AS tid
        FROM timer_requeue AS q
        WHERE q.biz_type = p_biz_type AND q.reason = 'overflow' AND q.shard = p_shard
            -- What was pulled before, and was not yet read by the hand, stays where it is.
            AND q.due_at > v_closed + 1
        ORDER BY q.due_at, q.task_id
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    ) AS w;
    UPDATE timer_requeue AS q SET due_at = v_closed + 1 WHERE q.ctid = ANY (v_tids);
    PERFORM FROM timer_pointer AS p WHERE p.shard = p_shard AND p.epoch = p_epoch FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'leadership lost'
            USING ERRCODE = 'WT001', DETAIL = p_shard || ' ' || p_epoch;
    END IF;
    RETURN coalesce(cardinality(v_tids), 0);
END
$$;

CREATE TABLE public.timer_task (
    start_time bigint NOT NULL,
    create_time bigint NOT NULL,
    first_attempt_time bigint,
    lease_until bigint,
    next_at bigint,
    finish_time bigint,
    expire_at bigint,
    started bigint,
    published bigint,
    moved_to bigint,
    renew_time bigint,
    max_age bigint,
    scheduled_time bigint,
    slot integer NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    revision integer DEFAULT 1 NOT NULL,
    duration integer,
    shard smallint NOT NULL,
    status smallint DEFAULT 0 NOT NULL,
    failures smallint DEFAULT 0 NOT NULL,
    life smallint DEFAULT 1 NOT NULL,
    http_status smallint,
    stop boolean DEFAULT false NOT NULL,
    task_id uuid NOT NULL,
    schedule_id uuid,
    biz_type text NOT NULL COLLATE pg_catalog."C",
    biz_id text COLLATE pg_catalog."C",
    content_type text,
    last_error text,
    traceparent text,
    callback jsonb,
    retry jsonb,
    biz_data bytea,
    CONSTRAINT timer_task_biz_id CHECK (((octet_length(biz_id) >= 1) AND (octet_length(biz_id) <= 256))),
    CONSTRAINT timer_task_counts CHECK (((attempts >= 0) AND (failures >= 0) AND (revision >= 1) AND (life >= 1) AND (shard >= 0))),
    CONSTRAINT timer_task_slot CHECK ((slot = ((start_time / 1000) % (10000000)::bigint))),
    CONSTRAINT timer_task_start_time CHECK (((start_time >= '946684800000'::bigint) AND (start_time <= '253402300799999'::bigint))),
    CONSTRAINT timer_task_status CHECK (
CASE status
    WHEN 0 THEN ((finish_time IS NULL) AND (expire_at IS NULL) AND (moved_to IS NULL))
    WHEN 4 THEN ((moved_to IS NOT NULL) AND (expire_at IS NULL) AND (lease_until IS NULL))
    ELSE (((status >= 1) AND (status <= 3)) AND (finish_time IS NOT NULL) AND (expire_at IS NOT NULL) AND (lease_until IS NULL) AND (next_at IS NULL) AND (moved_to IS NULL))
END)
)
PARTITION BY RANGE (slot);

CREATE FUNCTION public.wheel_find_v1(p_task_ids uuid[]) RETURNS SETOF public.timer_task
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $_$
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
$_$;

CREATE FUNCTION public.wheel_forecast_quarters_v1(p_biz_types text[], p_from bigint, p_to bigint) RETURNS TABLE(quarter bigint, tasks bigint)
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
BEGIN
    RETURN QUERY
    SELECT p.quarter, CAST(sum(p.pending) AS bigint)
    FROM (
        SELECT a.quarter, a.pending
        FROM timer_ledger_quarter AS a
        WHERE p_biz_types IS NULL AND a.quarter >= p_from AND a.quarter < p_to
        UNION ALL
        SELECT
            l.quarter,
            l.submitted + l.moved_in + l.revived - l.moved_out - l.finished - l.failed
                - l.cancelled - l.purged AS pending
        FROM unnest(p_biz_types) AS b(biz_type)
        CROSS JOIN LATERAL (
            SELECT k.*
            FROM timer_ledger AS k
            WHERE k.biz_type = b.biz_type AND k.quarter >= p_from AND k.quarter < p_to
            -- Read name by name: a range each, whatever the statistics say.
            OFFSET 0
        ) AS l
        UNION ALL
        SELECT
            u.quarter,
            u.submitted + u.moved_in + u.revived - u.moved_out - u.finished - u.failed
                - u.cancelled - u.purged
        FROM timer_ledger_unfolded AS u
        WHERE u.quarter >= p_from
            AND u.quarter < p_to
            AND (p_biz_types IS NULL OR u.biz_type = ANY (p_biz_types))
    ) AS p
    GROUP BY p.quarter
    HAVING sum(p.pending) > 0;
END
$$;

CREATE FUNCTION public.wheel_forecast_v1(p_biz_types text[], p_hots integer[], p_from bigint, p_to bigint, p_slot integer, p_shard smallint, p_time bigint, p_id uuid, p_look integer, OUT looked bigint, OUT slot integer, OUT shard smallint, OUT start_time bigint, OUT task_id uuid, OUT minutes bigint[], OUT minute_tasks integer[], OUT seconds bigint[], OUT second_biz_types text[], OUT second_tasks integer[]) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_nestloop TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
#variable_conflict use_column
DECLARE
    v_first integer := CAST(p_from / 1000 % 10000000 AS integer);
    v_last  integer := CAST((p_to - 1) / 1000 % 10000000 AS integer);
BEGIN
    ASSERT v_first <= v_last, 'the range runs over the ring''s end';
    IF p_slot < v_first THEN
        -- A scan begins at the key, not at the first slot: from -1 on it read half a partition.
        p_slot := v_first;
        p_shard := -1;
    END IF;
    WITH piece AS MATERIALIZED (
        SELECT t.slot, t.shard, t.start_time, t.task_id, t.biz_type, t.status
        FROM timer_task AS t
        WHERE t.slot BETWEEN p_slot AND v_last
            AND (t.slot, t.shard, t.start_time, t.task_id) > (p_slot, p_shard, p_time, p_id)
            AND t.start_time >= p_from
            AND t.start_time < p_to
        ORDER BY t.slot, t.shard, t.start_time, t.task_id
        LIMIT p_look
    ), ends AS (
        SELECT
            count(*) AS looked,
            min(p.slot) AS first_slot,
            max(p.slot) AS last_slot
        FROM piece AS p
    ), last AS (
        SELECT p.slot, p.shard, p.start_time, p.task_id
        FROM piece AS p
        ORDER BY p.slot DESC, p.shard DESC, p.start_time DESC, p.task_id DESC
        LIMIT 1
    ), counted AS MATERIALIZED (
        SELECT
            p.start_time / 1000 AS second, p.slot, p.biz_type, w.hot,
            CAST(count(*) AS integer) AS tasks
        FROM piece AS p
        JOIN unnest(p_biz_types, p_hots) AS w(biz_type, hot) ON w.biz_type = p.biz_type
        WHERE p.status = 0
        GROUP BY 1, 2, 3, 4
    ), by_minute AS MATERIALIZED (
        SELECT c.second / 60 * 60000 AS minute, CAST(sum(c.tasks) AS integer) AS tasks
        FROM counted AS c
        GROUP BY 1
    ), told AS MATERIALIZED (
        SELECT c.second * 1000 AS second, c.biz_type, c.tasks
        FROM counted AS c, ends AS e
        WHERE c.tasks > c.hot OR c.slot = e.first_slot OR c.slot = e.last_slot
    )
    SELECT
        e.looked, l.slot, l.shard, l.start_time, l.task_id,
        (SELECT array_agg(m.minute) FROM by_minute AS m),
        (SELECT array_agg(m.tasks) FROM by_minute AS m),
        (SELECT array_agg(o.second) FROM told AS o),
        (SELECT array_agg(o.biz_type) FROM told AS o),
        (SELECT array_agg(o.tasks) FROM told AS o)
    INTO
        looked, slot, shard, start_time, task_id, minutes, minute_tasks, seconds,
        second_biz_types, second_tasks
    FROM ends AS e
    LEFT JOIN last AS l ON true;
END
$$;

CREATE FUNCTION public.wheel_held_v1() RETURNS SETOF text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'public'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
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

CREATE FUNCTION public.wheel_hold_v1(p_shard smallint, p_slot_lo integer, p_slot_hi integer, p_task_ids uuid[], p_start_times bigint[], p_due_ats bigint[]) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
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

CREATE FUNCTION public.wheel_home_shard_v1(p_task_id uuid) RETURNS smallint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CAST(
        (get_byte(uuid_send(p_task_id), 6) & 15) * 256 + get_byte(uuid_send(p_task_id), 7)
        AS smallint
    )
$$;

CREATE FUNCTION public.wheel_home_v1(p_task_id uuid) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CAST(CAST('x' || encode(substr(uuid_send(p_task_id), 1, 6), 'hex') AS bit(48)) AS bigint)
$$;

CREATE FUNCTION public.wheel_is_alone_v1(p_task_id uuid, p_start_time bigint, p_status smallint, p_attempts integer, p_biz_id text) RETURNS boolean
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT p_biz_id IS NULL
        AND (p_attempts = 0 OR p_attempts = 1 AND p_status = 1)
        AND p_status <> 2
        -- At home: its id begins with the place. By bytes: a fifth of what wheel_home_v1 takes.
        AND substr(uuid_send(p_task_id), 1, 6) = substr(int8send(p_start_time), 3, 6)
$$;

CREATE FUNCTION public.wheel_judge_v1(p_shard smallint, p_task_ids uuid[], p_start_times bigint[], p_verbs text[], p_revisions integer[], p_to_times bigint[], p_dues bigint[], p_sets integer[], p_biz_data bytea[], p_content_types text[], p_callbacks text[], p_retries text[], p_max_ages bigint[], p_traceparents text[], p_actors text[], p_retention_ms bigint, p_now bigint) RETURNS public.wheel_change[]
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_hashjoin TO 'on'
    SET jit TO 'off'
    AS $$
DECLARE
    v_all wheel_change[];
BEGIN
    WITH asked AS MATERIALIZED (
        SELECT r.*, wheel_home_v1(r.task_id) AS home
        FROM unnest(
            p_task_ids, p_start_times, p_verbs, p_revisions, p_to_times, p_dues, p_sets, p_biz_data,
            p_content_types, p_callbacks, p_retries, p_max_ages, p_traceparents, p_actors
        ) WITH ORDINALITY AS r(
            task_id, place, verb, expected, wanted, due, sets, biz_data,
            content_type, callback, retry, max_age, traceparent, actor, position
        )
    ), locked AS MATERIALIZED (
        -- A task that is not at home may be moved on: its home row, which says where it is, too.
        SELECT l.*
        FROM (
            SELECT array_agg(p.task_id) AS task_ids, array_agg(p.place) AS places
            FROM (
                SELECT a.task_id, a.place FROM asked AS a
                UNION ALL
                SELECT a.task_id, a.home FROM asked AS a
                WHERE a.home <> a.place AND a.verb NOT IN ('cancel', 'replay')
            ) AS p
        ) AS g
        CROSS JOIN LATERAL wheel_lock_v1(p_shard, g.task_ids, g.places) AS l
    ), met AS (
        SELECT a.*, k.tid, k.biz_type, k.create_time, k.status, k.revision, k.attempts, k.life,
            k.lease_until, k.stop, k.is_erased, k.moved_to, h.tid AS home_tid,
            coalesce(k.status = 0 AND k.lease_until > p_now, false) AS is_delivering
        FROM asked AS a
        LEFT JOIN locked AS k ON k.task_id = a.task_id AND k.start_time = a.place
        LEFT JOIN locked AS h
            ON h.task_id = a.task_id AND h.start_time = a.home AND a.home <> a.place
    ), judged AS (
        SELECT m.*,
            CASE
                WHEN m.tid IS NULL THEN 'missing'
                WHEN m.status = 4 THEN 'moved'
                WHEN m.expected <> m.revision THEN 'changed'
                WHEN m.verb = 'cancel' THEN CASE
                    WHEN m.is_delivering AND m.sets & 1 = 0 THEN 'delivering'
                    WHEN m.is_delivering THEN 'stopping'
                    WHEN m.status = 3 THEN 'unchanged'
                    WHEN m.status = 0 OR m.status = 2 AND m.sets & 2 <> 0 THEN 'done'
                    ELSE 'settled'
                END
                WHEN m.verb = 'replay' THEN CASE
                    WHEN m.status = 0 THEN 'unchanged'
                    -- erase_data has taken what the callback would carry.
                    WHEN m.is_erased THEN 'settled'
                    ELSE 'done'
                END
                WHEN m.verb = 'replace' THEN
                    CASE WHEN m.status = 0 THEN 'done' ELSE 'revived' END
                WHEN m.verb IN ('earliest', 'latest') THEN CASE
                    WHEN m.status <> 0 OR m.is_delivering THEN 'kept'
                    WHEN m.verb = 'earliest' AND m.wanted < m.place THEN 'done'
                    WHEN m.verb = 'latest' AND m.wanted > m.place THEN 'done'
                    ELSE 'kept'
                END
                WHEN m.is_delivering THEN 'delivering'
                WHEN m.status <> 0 THEN 'settled'
                ELSE 'done'
            END AS verdict
        FROM met AS m
    ), aimed AS (
        SELECT j.*,
            CASE
                WHEN j.verdict NOT IN ('done', 'revived') OR j.verb = 'cancel' THEN NULL
                WHEN j.verb = 'run' THEN least(j.place, p_now)
                WHEN j.verb = 'replay' THEN j.place
                ELSE j.wanted
            END AS to_time
        FROM judged AS j
    )
    SELECT array_agg(
        CAST(ROW(
            m.position, m.verb, m.task_id, m.place, m.home, m.to_time, m.due, coalesce(m.sets, 0),
            m.biz_data, m.content_type, m.callback, m.retry, m.max_age, m.traceparent, m.actor,
            m.tid, m.home_tid, m.biz_type, m.create_time, m.status, m.revision, m.attempts,
            m.life, m.lease_until, m.is_delivering,
            CASE
                WHEN m.to_time IS NULL OR m.life = 32767 THEN 0
                WHEN m.verb = 'replay' AND m.status <> 2 THEN 1
                WHEN m.verb = 'replace' AND (m.status <> 0 OR m.is_delivering) THEN 1
                ELSE 0
            END,
            m.to_time IS NOT NULL AND m.verb IN ('replay', 'replace', 'earliest', 'latest'),
            p_now + coalesce(
                CAST(b.config #>> '{retention,cancelled}' AS bigint) * 1000, p_retention_ms
            ),
            coalesce(CAST(b.config ->> 'erase_data' AS boolean), false),
            CASE m.verdict WHEN 'missing' THEN NULL WHEN 'moved' THEN m.moved_to
                ELSE coalesce(m.to_time, m.place) END,
            CASE
                WHEN m.verdict = 'stopping' AND NOT m.stop THEN 'stop'
                WHEN m.verdict NOT IN ('done', 'revived') THEN NULL
                WHEN m.verb = 'cancel' THEN 'cancel'
                WHEN m.to_time <> m.place THEN 'move'
                ELSE 'stay'
            END,
            m.verdict
        ) AS wheel_change)
        ORDER BY m.position
    )
    INTO v_all
    FROM aimed AS m
    LEFT JOIN timer_biz AS b ON m.verb = 'cancel' AND b.biz_type = m.biz_type;
    RETURN v_all;
END
$$;

CREATE FUNCTION public.wheel_lead_poll_v1(p_shard smallint, OUT locked boolean, OUT expired boolean) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'public'
    AS $$
DECLARE
    v_is_locked boolean;
BEGIN
    SELECT p.lease_until <= wheel_now_ms(), p.is_locked INTO expired, v_is_locked
    FROM timer_pointer AS p
    WHERE p.shard = p_shard;
    locked := pg_try_advisory_lock(wheel_lock_class('timer_requeue'), p_shard);
    IF locked AND NOT (expired OR v_is_locked) THEN
        -- The leader took the shard from one that was frozen, and has not got the lock yet.
        PERFORM pg_advisory_unlock(wheel_lock_class('timer_requeue'), p_shard);
        locked := false;
    END IF;
END
$$;

CREATE FUNCTION public.wheel_lead_raise_v1(p_shard smallint, p_epoch bigint, p_seen bigint) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '1s'
    AS $$
DECLARE
    v_epoch bigint;
BEGIN
    UPDATE timer_pointer AS p
    SET epoch = greatest(p.epoch, p_seen) + 1
    WHERE p.shard = p_shard AND p.epoch = p_epoch
    RETURNING p.epoch INTO v_epoch;
    RETURN v_epoch;
END
$$;

CREATE FUNCTION public.wheel_lead_renew_v1(p_shard smallint, p_epoch bigint, p_lease_ms bigint, p_locked boolean, OUT kept boolean, OUT locked boolean) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '1s'
    AS $$
BEGIN
    locked := p_locked OR (
        p_lease_ms > 0
        AND pg_try_advisory_lock(wheel_lock_class('timer_requeue'), p_shard)
    );
    UPDATE timer_pointer AS p
    SET lease_until = CASE WHEN p_lease_ms = 0 THEN 0 ELSE wheel_now_ms() + p_lease_ms END,
        is_locked = locked
    WHERE p.shard = p_shard AND p.epoch = p_epoch;
    kept := FOUND;
    IF NOT kept AND locked AND NOT p_locked THEN
        PERFORM pg_advisory_unlock(wheel_lock_class('timer_requeue'), p_shard);
        locked := false;
    END IF;
END
$$;

CREATE FUNCTION public.wheel_lead_take_v1(p_shard smallint, p_leader text, p_lease_ms bigint, p_locked boolean) RETURNS TABLE(epoch bigint, "current_time" bigint, sweep_time bigint)
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '1s'
    AS $$
DECLARE
    v_now bigint := wheel_now_ms();
BEGIN
    RETURN QUERY
    UPDATE timer_pointer AS p
    SET leader = p_leader, epoch = p.epoch + 1, lease_until = v_now + p_lease_ms,
        is_locked = p_locked
    WHERE p.shard = p_shard AND (p.lease_until <= v_now OR p_locked AND p.is_locked)
    RETURNING p.epoch, p."current_time", p.sweep_time;
    IF NOT FOUND AND p_locked THEN
        PERFORM pg_advisory_unlock(wheel_lock_class('timer_requeue'), p_shard);
    END IF;
END
$$;

CREATE FUNCTION public.wheel_ledger_coarsen_v1(p_kept bigint, p_biz_type text, p_quarter bigint, p_limit integer, OUT summed integer, OUT next_biz_type text, OUT next_quarter bigint) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
    v_before bigint := wheel_now_ms() - p_kept;
    v_looked integer;
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM FROM timer_ledger_mark FOR UPDATE;
    -- What is still to be folded for a quarter hour begins a new row here, too.
    DELETE FROM timer_ledger_quarter AS q WHERE q.quarter < v_before AND q.pending = 0;
    WITH page AS MATERIALIZED (
        SELECT l.biz_type, l.quarter,
            l.submitted + l.moved_in + l.revived
                = l.moved_out + l.finished + l.failed + l.cancelled + l.purged
            AND l.finished + l.failed + l.cancelled
                = l.revived + l.reaped_finished + l.reaped_failed + l.reaped_cancelled AS is_over
        FROM timer_ledger AS l
        WHERE l.biz_type = p_biz_type AND l.quarter > p_quarter AND l.quarter < v_before
        ORDER BY l.quarter
        LIMIT p_limit
    ), old AS MATERIALIZED (
        SELECT p.biz_type, p.quarter
        FROM page AS p
        WHERE p.is_over AND p.quarter % 86400000 <> 0
    ), gone AS (
        DELETE FROM timer_ledger AS l
        USING old AS o
        WHERE l.biz_type = o.biz_type AND l.quarter = o.quarter
        RETURNING l.*
    ), days AS (
        INSERT INTO timer_ledger AS l (
            biz_type, quarter, submitted, moved_in, moved_out, revived, revived_failed, finished,
            failed, cancelled, purged, reaped_finished, reaped_failed, reaped_cancelled
        )
        SELECT
            g.biz_type, g.quarter / 86400000 * 86400000, sum(g.submitted), sum(g.moved_in),
            sum(g.moved_out), sum(g.revived), sum(g.revived_failed), sum(g.finished),
            sum(g.failed), sum(g.cancelled), sum(g.purged), sum(g.reaped_finished),
            sum(g.reaped_failed), sum(g.reaped_cancelled)
        FROM gone AS g
        GROUP BY 1, 2
        ON CONFLICT (biz_type, quarter) DO UPDATE
        SET submitted = l.submitted + excluded.submitted,
            moved_in = l.moved_in + excluded.moved_in,
            moved_out = l.moved_out + excluded.moved_out,
            revived = l.revived + excluded.revived,
            revived_failed = l.revived_failed + excluded.revived_failed,
            finished = l.finished + excluded.finished,
            failed = l.failed + excluded.failed,
            cancelled = l.cancelled + excluded.cancelled,
            purged = l.purged + excluded.purged,
            reaped_finished = l.reaped_finished + excluded.reaped_finished,
            reaped_failed = l.reaped_failed + excluded.reaped_failed,
            reaped_cancelled = l.reaped_cancelled + excluded.reaped_cancelled
    )
    SELECT (SELECT count(*) FROM gone), count(*), max(p.quarter)
    INTO summed, v_looked, next_quarter
    FROM page AS p;
    next_biz_type := p_biz_type;
    IF v_looked < p_limit THEN
        SELECT l.biz_type, 0 INTO next_biz_type, next_quarter
        FROM timer_ledger AS l
        WHERE l.biz_type > p_biz_type
        ORDER BY l.biz_type
        LIMIT 1;
    END IF;
END
$$;

CREATE FUNCTION public.wheel_ledger_fold_v1(p_epoch bigint, p_limit integer) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
    v_mark   timer_ledger_mark;
    v_high   bigint;
    v_open   text[];
    v_final  bigint;
    v_to     bigint;
    v_folded integer := 0;
BEGIN
    IF p_epoch IS NOT NULL THEN
        -- A fold that is lost in a crash leaves its deltas; so nobody has to wait for the disk.
        PERFORM set_config('synchronous_commit', 'off', true);
    END IF;
    PERFORM FROM timer_ledger_mark AS m
    WHERE m.folded_to < pg_sequence_last_value('timer_ledger_delta_delta_id_seq');
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    SELECT * INTO v_mark FROM timer_ledger_mark FOR UPDATE;
    v_high := pg_sequence_last_value('timer_ledger_delta_delta_id_seq');
    -- A statement each, in this order: the id, who may have drawn one up to it, the rows.
    SELECT coalesce(array_agg(l.virtualtransaction), '{}') INTO v_open
    FROM pg_locks AS l
    WHERE l.locktype = 'relation'
        AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
        AND l.relation = CAST('timer_ledger_delta' AS regclass)
        AND l.mode = 'RowExclusiveLock'
        AND l.pid IS DISTINCT FROM pg_backend_pid();
    v_final := CASE
        WHEN v_open = '{}' THEN v_high
        WHEN v_mark.open && v_open THEN v_mark.folded_to
        ELSE v_mark.high_to
    END;

    SELECT d.delta_id INTO v_to
    FROM timer_ledger_delta AS d
    WHERE d.delta_id > v_mark.folded_to
    ORDER BY d.delta_id
    OFFSET p_limit - 1
    LIMIT 1;
    v_to := coalesce(v_to, v_high);

    WITH taken AS (
        DELETE FROM timer_ledger_delta AS d
        WHERE d.delta_id > v_mark.folded_to AND d.delta_id <= v_to
        RETURNING d.biz_type, d.quarter, d.day, d.edges, d.tasks
    ), summed AS MATERIALIZED (
        SELECT
            t.biz_type, t.quarter, t.day, count(*) AS deltas,
            coalesce(sum(t.tasks) FILTER (WHERE t.edges & 1 <> 0), 0) AS submitted,
            coalesce(sum(t.tasks) FILTER (WHERE t.edges & 2 <> 0), 0) AS moved_in,
            coalesce(sum(t.tasks) FILTER (WHERE t.edges & 4 <> 0), 0) AS moved_out,
            coalesce(sum(t.tasks) FILTER (WHERE t.edges & 8 <> 0), 0) AS revived,
            coalesce(sum(t.tasks) FILTER (WHERE t.edges & 16 <> 0), 0) AS revived_failed,
            coalesce(sum(t.tasks) FILTER (WHERE t.edges & 32 <> 0), 0) AS finished,
            coalesce(sum(t.tasks) FILTER (WHERE t.edges & 64 <> 0), 0) AS failed,
            coalesce(sum(t.tasks) FILTER (WHERE t.edges & 128 <> 0), 0) AS cancelled,
            coalesce(sum(t.tasks) FILTER (WHERE t.edges & 256 <> 0), 0) AS purged,
            coalesce(sum(t.tasks) FILTER (WHERE t.edges & 512 <> 0), 0) AS reaped_finished,
            coalesce(sum(t.tasks) FILTER (WHERE t.edges & 1024 <> 0), 0) AS reaped_failed,
            coalesce(sum(t.tasks) FILTER (WHERE t.edges & 2048 <> 0), 0) AS reaped_cancelled
        FROM taken AS t
        GROUP BY t.biz_type, t.quarter, t.day
    ), quarters AS (
        INSERT INTO timer_ledger AS l (
            biz_type, quarter, submitted, moved_in, moved_out, revived, revived_failed, finished,
            failed, cancelled, purged, reaped_finished, reaped_failed, reaped_cancelled
        )
        SELECT
            s.biz_type, s.quarter, sum(s.submitted), sum(s.moved_in), sum(s.moved_out),
            sum(s.revived), sum(s.revived_failed), sum(s.finished), sum(s.failed),
            sum(s.cancelled), sum(s.purged), sum(s.reaped_finished), sum(s.reaped_failed),
            sum(s.reaped_cancelled)
        FROM summed AS s
        GROUP BY s.biz_type, s.quarter
        ON CONFLICT (biz_type, quarter) DO UPDATE
        SET submitted = l.submitted + excluded.submitted,
            moved_in = l.moved_in + excluded.moved_in,
            moved_out = l.moved_out + excluded.moved_out,
            revived = l.revived + excluded.revived,
            revived_failed = l.revived_failed + excluded.revived_failed,
            finished = l.finished + excluded.finished,
            failed = l.failed + excluded.failed,
            cancelled = l.cancelled + excluded.cancelled,
            purged = l.purged + excluded.purged,
            reaped_finished = l.reaped_finished + excluded.reaped_finished,
            reaped_failed = l.reaped_failed + excluded.reaped_failed,
            reaped_cancelled = l.reaped_cancelled + excluded.reaped_cancelled
    ), days AS (
        INSERT INTO timer_ledger_day AS l (
            biz_type, day, submitted, moved_in, moved_out, revived, revived_failed, finished,
            failed, cancelled, purged, reaped_finished, reaped_failed, reaped_cancelled
        )
        SELECT
            s.biz_type, s.day, sum(s.submitted), sum(s.moved_in), sum(s.moved_out),
            sum(s.revived), sum(s.revived_failed), sum(s.finished), sum(s.failed),
            sum(s.cancelled), sum(s.purged), sum(s.reaped_finished), sum(s.reaped_failed),
            sum(s.reaped_cancelled)
        FROM summed AS s
        GROUP BY s.biz_type, s.day
        ON CONFLICT (biz_type, day) DO UPDATE
        SET submitted = l.submitted + excluded.submitted,
            moved_in = l.moved_in + excluded.moved_in,
            moved_out = l.moved_out + excluded.moved_out,
            revived = l.revived + excluded.revived,
            revived_failed = l.revived_failed + excluded.revived_failed,
            finished = l.finished + excluded.finished,
            failed = l.failed + excluded.failed,
            cancelled = l.cancelled + excluded.cancelled,
            purged = l.purged + excluded.purged,
            reaped_finished = l.reaped_finished + excluded.reaped_finished,
            reaped_failed = l.reaped_failed + excluded.reaped_failed,
            reaped_cancelled = l.reaped_cancelled + excluded.reaped_cancelled
    ), totals AS (
        INSERT INTO timer_ledger_total AS l (biz_type, pending, dead)
        SELECT
            s.biz_type,
            sum(s.submitted + s.moved_in + s.revived - s.moved_out - s.finished - s.failed
                - s.cancelled - s.purged),
            sum(s.failed - s.revived_failed - s.reaped_failed)
        FROM summed AS s
        GROUP BY s.biz_type
        ON CONFLICT (biz_type) DO UPDATE
        SET pending = l.pending + excluded.pending,
            dead = l.dead + excluded.dead
    ), of_all AS (
        INSERT INTO timer_ledger_quarter AS l (quarter, pending)
        SELECT
            s.quarter,
            sum(s.submitted + s.moved_in + s.revived - s.moved_out - s.finished - s.failed
                - s.cancelled - s.purged)
        FROM summed AS s
        GROUP BY s.quarter
        ON CONFLICT (quarter) DO UPDATE
        SET pending = l.pending + excluded.pending
    )
    SELECT coalesce(sum(s.deltas), 0) INTO v_folded FROM summed AS s;

    UPDATE timer_ledger_mark
    SET folded_to = greatest(folded_to, least(v_final, v_to)),
        high_to = CASE WHEN v_mark.open && v_open THEN high_to ELSE v_high END,
        open = CASE WHEN v_mark.open && v_open THEN open ELSE v_open END;

    IF p_epoch IS NOT NULL THEN
        PERFORM FROM timer_pointer AS p WHERE p.shard = 0 AND p.epoch = p_epoch FOR SHARE;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'leadership lost' USING ERRCODE = 'WT001', DETAIL = '0 ' || p_epoch;
        END IF;
    END IF;
    RETURN v_folded;
END
$$;

CREATE FUNCTION public.wheel_ledger_v1(p_edges integer[], p_biz_types text[], p_places bigint[], p_create_times bigint[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
BEGIN
    INSERT INTO timer_ledger_delta (biz_type, quarter, day, edges, tasks)
    SELECT r.biz_type, r.place / 900000 * 900000, r.create_time / 86400000 * 86400000, r.edges,
        count(*)
    FROM unnest(p_edges, p_biz_types, p_places, p_create_times)
        AS r(edges, biz_type, place, create_time)
    GROUP BY 1, 2, 3, 4;
END
$$;

CREATE FUNCTION public.wheel_lines_v1(p_shard smallint) RETURNS TABLE(biz_type text, last_due bigint, first_start bigint)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'public'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
BEGIN
    biz_type := '';
    LOOP
        SELECT q.biz_type INTO biz_type
        FROM timer_requeue AS q
        WHERE q.reason = 'overflow' AND q.biz_type > wheel_lines_v1.biz_type
        ORDER BY q.biz_type
        LIMIT 1;
        EXIT WHEN NOT FOUND;
        SELECT q.due_at INTO last_due
        FROM timer_requeue AS q
        WHERE q.biz_type = wheel_lines_v1.biz_type AND q.reason = 'overflow' AND q.shard = p_shard
        ORDER BY q.due_at DESC, q.task_id DESC
        LIMIT 1;
        IF FOUND THEN
            SELECT q.start_time INTO first_start
            FROM timer_requeue AS q
            WHERE q.biz_type = wheel_lines_v1.biz_type AND q.reason = 'overflow'
                AND q.shard = p_shard
            ORDER BY q.due_at, q.task_id
            LIMIT 1;
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;

CREATE FUNCTION public.wheel_lock_class(p_table regclass) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CAST(CAST(CAST(p_table AS oid) AS bigint)
        - CASE WHEN CAST(CAST(p_table AS oid) AS bigint) > 2147483647 THEN 4294967296 ELSE 0 END
        AS integer)
$$;

CREATE FUNCTION public.wheel_lock_v1(p_shard smallint, p_task_ids uuid[], p_start_times bigint[]) RETURNS TABLE(task_id uuid, start_time bigint, tid tid, status smallint, moved_to bigint, revision integer, attempts integer, life smallint, lease_until bigint, stop boolean, biz_type text, create_time bigint, is_erased boolean)
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $_$
DECLARE
    v_slot integer;
BEGIN
    FOR v_slot IN
        SELECT DISTINCT CAST((s.start_time / 1000) % 10000000 / 100000 * 100000 AS integer)
        FROM unnest(p_start_times) AS s(start_time)
        ORDER BY 1
    LOOP
        RETURN QUERY EXECUTE format(
            'SELECT k.*
            FROM (
                SELECT DISTINCT CAST((p.start_time / 1000) %% 10000000 AS integer) AS slot,
                    p.start_time, p.task_id
                FROM unnest($1, $2) AS p(task_id, start_time)
                WHERE (p.start_time / 1000) %% 10000000 / 100000 * 100000 = $4
                ORDER BY 1, 2, 3
            ) AS r
            CROSS JOIN LATERAL (
                SELECT t.task_id, t.start_time, t.ctid, t.status, t.moved_to, t.revision,
                    t.attempts, t.life, t.lease_until, t.stop, t.biz_type, t.create_time,
                    coalesce(t.content_type = ''erased'', false)
                FROM %I AS t
                WHERE t.slot = r.slot
                    AND t.shard = $3
                    AND t.start_time = r.start_time
                    AND t.task_id = r.task_id
                LIMIT 1
                FOR NO KEY UPDATE
            ) AS k',
            wheel_partition_v1(v_slot)
        ) USING p_task_ids, p_start_times, p_shard, v_slot;
    END LOOP;
END
$_$;

CREATE FUNCTION public.wheel_look_v1(p_shard smallint, p_after bigint, p_to bigint) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'public'
    AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM timer_requeue AS q
        WHERE q.shard = p_shard AND q.due_at > p_after AND q.due_at <= p_to
    ) OR EXISTS (
        SELECT FROM wheel_due_v1(
            p_shard, p_after, p_to, p_after, CAST('00000000-0000-0000-0000-000000000000' AS uuid), 1
        )
    );
END
$$;

CREATE FUNCTION public.wheel_masked_v1(p_callback jsonb) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $_$
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
$_$;

CREATE FUNCTION public.wheel_move_v1(p_shard smallint, p_moves public.wheel_change[], p_now bigint) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $_$
DECLARE
    v_slot  integer;
    v_part  wheel_change[];
    v_leave wheel_change[];
    v_end   tid[];
BEGIN
    -- The rows at home of those that are away: where the new place is the home, the forwarding row
    -- makes room; else it forwards to there.
    FOR v_slot, v_part IN
        SELECT CAST((c.home / 1000) % 10000000 AS integer) / 100000 * 100000,
            array_agg(CAST(c AS wheel_change))
        FROM unnest(p_moves) AS c
        WHERE c.home_tid IS NOT NULL
        GROUP BY 1
    LOOP
        EXECUTE format(
            'DELETE FROM %I AS t
            USING unnest($1) AS c
            WHERE t.ctid = c.home_tid AND c.to_time = c.home',
            wheel_partition_v1(v_slot)
        ) USING v_part;
        EXECUTE format(
            'UPDATE %I AS t
            SET moved_to = c.to_time, revision = c.revision + 1, life = c.life + c.lives
            FROM unnest($1) AS c
            WHERE t.ctid = c.home_tid AND c.to_time <> c.home',
            wheel_partition_v1(v_slot)
        ) USING v_part;
    END LOOP;

    FOR v_slot, v_part, v_leave, v_end IN
        SELECT CAST((c.from_time / 1000) % 10000000 AS integer) / 100000 * 100000,
            array_agg(CAST(c AS wheel_change)),
            array_agg(CAST(c AS wheel_change)) FILTER (WHERE c.from_time = c.home),
            array_agg(c.tid) FILTER (WHERE c.from_time <> c.home)
        FROM unnest(p_moves) AS c
        GROUP BY 1
    LOOP
        EXECUTE format(
            'INSERT INTO timer_task (
                slot, shard, start_time, task_id, create_time, renew_time, first_attempt_time,
                attempts, revision, life, failures, http_status, last_error, biz_type, biz_id,
                schedule_id, scheduled_time, biz_data, content_type, callback, retry, max_age,
                traceparent
            )
            SELECT
                (c.to_time / 1000) %% 10000000, t.shard, c.to_time, t.task_id, t.create_time, $2,
                CASE WHEN c.lives = 0 THEN t.first_attempt_time END,
                t.attempts, t.revision + 1, t.life + c.lives,
                CASE
                    WHEN c.is_fresh THEN 0
                    WHEN t.lease_until IS NOT NULL THEN t.failures + 1
                    ELSE t.failures
                END,
                CASE WHEN c.lives = 0 THEN t.http_status END,
                CASE WHEN c.lives = 0 THEN t.last_error END,
                t.biz_type, t.biz_id, t.schedule_id, t.scheduled_time,
                CASE WHEN c.sets & 1 <> 0 THEN c.biz_data ELSE t.biz_data END,
                CASE WHEN c.sets & 32 <> 0 THEN c.content_type ELSE t.content_type END,
                CASE WHEN c.sets & 2 <> 0 THEN CAST(c.callback AS jsonb) ELSE t.callback END,
                CASE WHEN c.sets & 4 <> 0 THEN CAST(c.retry AS jsonb) ELSE t.retry END,
                CASE WHEN c.sets & 8 <> 0 THEN c.max_age ELSE t.max_age END,
                CASE WHEN c.sets & 16 <> 0 THEN c.traceparent ELSE t.traceparent END
            FROM unnest($1) AS c
            JOIN %I AS t ON t.ctid = c.tid
            ORDER BY (c.to_time / 1000) %% 10000000, c.to_time, t.task_id',
            wheel_partition_v1(v_slot)
        ) USING v_part, p_now;
        IF v_end IS NOT NULL THEN
            EXECUTE format(
                'DELETE FROM %I AS t WHERE t.ctid = ANY ($1)', wheel_partition_v1(v_slot)
            ) USING v_end;
        END IF;
        IF v_leave IS NOT NULL THEN
            EXECUTE format(
                'UPDATE %I AS t
                SET status = 4, moved_to = c.to_time, revision = t.revision + 1,
                    life = t.life + c.lives, stop = false, lease_until = NULL, next_at = NULL,
                    finish_time = NULL, expire_at = NULL, http_status = NULL, last_error = NULL,
                    first_attempt_time = NULL, started = NULL, duration = NULL, published = NULL,
                    biz_data = NULL, content_type = NULL, callback = NULL, retry = NULL,
                    max_age = NULL, traceparent = NULL
                FROM unnest($1) AS c
                WHERE t.ctid = c.tid',
                wheel_partition_v1(v_slot)
            ) USING v_leave;
        END IF;
    END LOOP;
END
$_$;

CREATE FUNCTION public.wheel_now_ms() RETURNS bigint
    LANGUAGE plpgsql PARALLEL SAFE
    SET search_path TO 'public'
    AS $$
BEGIN
    RETURN wheel_now_us() / 1000;
END
$$;

CREATE FUNCTION public.wheel_now_us() RETURNS bigint
    LANGUAGE plpgsql PARALLEL SAFE
    SET search_path TO 'public'
    AS $$
DECLARE
    v_real  bigint := date_part('epoch', clock_timestamp()) * 1000000;
    v_shown bigint;
BEGIN
    SELECT CASE WHEN c.frozen THEN c.shown_us ELSE c.shown_us + v_real - c.set_at_us END
    INTO v_shown
    FROM timer_clock AS c;
    RETURN coalesce(v_shown, v_real);
END
$$;

CREATE FUNCTION public.wheel_operate_v1(p_operation_id uuid, p_step integer, p_key jsonb, p_is_done boolean, p_shard smallint, p_verb text, p_sets integer, p_task_ids uuid[], p_start_times bigint[], p_revisions integer[], p_shift_ms bigint, p_due bigint, p_gap_ms double precision, p_retention_ms bigint, p_lookahead_ms bigint) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'public'
    AS $$
DECLARE
    v_to_times bigint[];
    v_dues     bigint[];
    v_verdicts text[];
    v_done     bigint;
BEGIN
    IF p_verb = 'purge' THEN
        v_done := wheel_purge_v1(p_shard, p_task_ids, p_start_times, p_revisions);
    ELSIF p_verb = 'cancel' AND p_sets = 0 THEN
        v_done := wheel_cancel_pending_v1(
            p_shard, p_task_ids, p_start_times, p_revisions, p_retention_ms
        );
    ELSE
        IF p_verb <> 'cancel' THEN
            SELECT
                array_agg(
                    CASE
                        WHEN p_shift_ms IS NOT NULL THEN
                            least(greatest(s.place + p_shift_ms, 946684800000), 253402300799999)
                    END ORDER BY s.position
                ),
                array_agg(
                    p_due + CAST(floor((s.position - 1) * p_gap_ms) AS bigint) ORDER BY s.position
                )
            INTO v_to_times, v_dues
            FROM unnest(p_start_times) WITH ORDINALITY AS s(place, position);
        END IF;
        SELECT c.verdicts INTO v_verdicts
        FROM wheel_change_v1(
            p_shard, p_task_ids, p_start_times,
            array_fill(p_verb, ARRAY[cardinality(p_task_ids)]), p_revisions, v_to_times, v_dues,
            array_fill(p_sets, ARRAY[cardinality(p_task_ids)]), NULL, NULL, NULL, NULL, NULL, NULL,
            NULL, p_retention_ms, p_lookahead_ms
        ) AS c;
        SELECT count(*) INTO v_done
        FROM unnest(v_verdicts) AS d(verdict)
        WHERE d.verdict IN ('done', 'revived', 'stopping');
    END IF;
    PERFORM wheel_operation_step_v1(
        p_operation_id, p_step, cardinality(p_task_ids), v_done, 0, p_key, p_is_done
    );
    RETURN v_done;
END
$$;

CREATE FUNCTION public.wheel_operation_step_v1(p_operation_id uuid, p_step integer, p_matched bigint, p_done bigint, p_errors bigint, p_key jsonb, p_is_done boolean) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'public'
    AS $$
BEGIN
    UPDATE timer_operation AS o
    SET step = o.step + 1,
        matched = o.matched + p_matched,
        done = o.done + p_done,
        errors = o.errors + p_errors,
        skipped = o.skipped + p_matched - p_done - p_errors,
        key = coalesce(p_key, o.key),
        state = CASE WHEN p_is_done THEN 'done' ELSE o.state END,
        finish_time = CASE WHEN p_is_done THEN wheel_now_ms() END
    WHERE o.operation_id = p_operation_id AND o.step = p_step AND o.state = 'running';
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the operation is not at this step' USING ERRCODE = 'WT004';
    END IF;
END
$$;

CREATE FUNCTION public.wheel_overflow_v1(p_shard smallint, p_epoch bigint, p_slot_lo integer, p_slot_hi integer, p_task_ids uuid[], p_start_times bigint[], p_due_ats bigint[]) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
    v_closed  bigint;
    v_written integer;
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    WITH there AS MATERIALIZED (
        SELECT k.*, r.due_at
        FROM unnest(p_task_ids, p_start_times, p_due_ats) AS r(task_id, start_time, due_at)
        CROSS JOIN LATERAL (
            SELECT t.task_id, t.start_time, t.biz_type
            FROM timer_task AS t
            WHERE t.slot BETWEEN p_slot_lo AND p_slot_hi
                AND t.slot = CAST((r.start_time / 1000) % 10000000 AS integer)
                AND t.shard = p_shard
                AND t.start_time = r.start_time
                AND t.task_id = r.task_id
                AND t.status = 0
            LIMIT 1
            FOR SHARE
        ) AS k
    ), written AS (
        INSERT INTO timer_requeue AS q (task_id, shard, start_time, due_at, biz_type, reason)
        SELECT h.task_id, p_shard, h.start_time, greatest(h.due_at, v_closed + 1), h.biz_type,
            'overflow'
        FROM there AS h
        ORDER BY h.task_id
        ON CONFLICT (task_id) DO UPDATE
        SET due_at = EXCLUDED.due_at, start_time = EXCLUDED.start_time, shard = EXCLUDED.shard,
            reason = EXCLUDED.reason
        WHERE q.reason NOT IN ('retry', 'release', 'held')
        RETURNING q.task_id
    )
    SELECT count(*) INTO v_written FROM written;
    PERFORM FROM timer_pointer AS p WHERE p.shard = p_shard AND p.epoch = p_epoch FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'leadership lost'
            USING ERRCODE = 'WT001', DETAIL = p_shard || ' ' || p_epoch;
    END IF;
    RETURN v_written;
END
$$;

CREATE FUNCTION public.wheel_partition_v1(p_slot integer) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT 'timer_task_' || lpad(CAST(p_slot / 100000 AS text), 2, '0')
$$;

CREATE FUNCTION public.wheel_pending_v1(p_biz_type text) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
BEGIN
    RETURN (
        SELECT coalesce(sum(p.pending), 0)
        FROM (
            SELECT t.pending FROM timer_ledger_total AS t WHERE t.biz_type = p_biz_type
            UNION ALL
            SELECT u.submitted + u.moved_in + u.revived - u.moved_out - u.finished - u.failed
                - u.cancelled - u.purged
            FROM timer_ledger_unfolded AS u
            WHERE u.biz_type = p_biz_type
        ) AS p
    );
END
$$;

CREATE FUNCTION public.wheel_pull_v1(p_shard smallint, p_epoch bigint, p_after_due bigint, p_after_id uuid, p_limit integer, OUT seen integer, OUT pulled integer, OUT last_due bigint, OUT last_id uuid) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
    v_closed bigint;
    v_ids    uuid[];
    v_tids   tid[];
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    SELECT count(*), array_agg(r.task_id) FILTER (WHERE r.reason = 'published'),
        (array_agg(r.due_at))[count(*)], (array_agg(r.task_id))[count(*)]
    INTO seen, v_ids, last_due, last_id
    FROM (
        SELECT q.task_id, q.due_at, q.reason
        FROM timer_requeue AS q
        WHERE q.shard = p_shard AND q.due_at >= p_after_due
            AND (q.due_at, uuid_send(q.task_id)) > (p_after_due, uuid_send(p_after_id))
        ORDER BY q.shard, q.due_at, uuid_send(q.task_id)
        LIMIT p_limit
    ) AS r;

    SELECT array_agg(l.tid) FILTER (WHERE l.reason = 'published' AND l.due_at > v_closed + 1)
    INTO v_tids
    FROM (
        SELECT w.ctid AS tid, w.reason, w.due_at
        FROM timer_requeue AS w
        WHERE w.task_id = ANY (v_ids)
        ORDER BY w.task_id
        FOR UPDATE
    ) AS l;
    UPDATE timer_requeue AS q SET due_at = v_closed + 1 WHERE q.ctid = ANY (v_tids);
    GET DIAGNOSTICS pulled = ROW_COUNT;

    PERFORM FROM timer_pointer AS p WHERE p.shard = p_shard AND p.epoch = p_epoch FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'leadership lost'
            USING ERRCODE = 'WT001', DETAIL = p_shard || ' ' || p_epoch;
    END IF;
END
$$;

CREATE FUNCTION public.wheel_purge_v1(p_shard smallint, p_task_ids uuid[], p_start_times bigint[], p_revisions integer[]) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $_$
DECLARE
    v_now       bigint;
    v_biz_types text[];
    v_biz_ids   text[];
    v_tids      tid[];
    v_places    bigint[];
    v_ids       uuid[];
    v_slot      integer;
    v_edges     integer[];
    v_types     text[];
    v_from      bigint[];
    v_creates   bigint[];
BEGIN
    PERFORM wheel_fence_v1(p_shard);
    v_now := wheel_now_ms();

    -- A key is locked before its task; whether it is this task's, the key alone says.
    SELECT array_agg(l.biz_type), array_agg(l.biz_id) INTO v_biz_types, v_biz_ids
    FROM (
        SELECT t.biz_type, t.biz_id, t.task_id
        FROM wheel_find_v1(p_task_ids) AS t
        WHERE t.biz_id IS NOT NULL
        ORDER BY t.biz_type, t.biz_id
    ) AS w
    CROSS JOIN LATERAL (
        SELECT k.biz_type, k.biz_id
        FROM timer_key AS k
        WHERE k.biz_type = w.biz_type AND k.biz_id = w.biz_id AND k.task_id = w.task_id
        FOR UPDATE
    ) AS l;

    WITH asked AS MATERIALIZED (
        SELECT r.task_id, r.place, r.revision, wheel_home_v1(r.task_id) AS home
        FROM unnest(p_task_ids, p_start_times, p_revisions) AS r(task_id, place, revision)
    ), locked AS MATERIALIZED (
        SELECT l.*
        FROM (
            SELECT array_agg(p.task_id) AS task_ids, array_agg(p.place) AS places
            FROM (
                SELECT a.task_id, a.place FROM asked AS a
                UNION
                SELECT a.task_id, a.home FROM asked AS a
            ) AS p
        ) AS g
        CROSS JOIN LATERAL wheel_lock_v1(p_shard, g.task_ids, g.places) AS l
    ), gone AS MATERIALIZED (
        SELECT k.task_id
        FROM asked AS a
        JOIN locked AS k ON k.task_id = a.task_id AND k.start_time = a.place
        WHERE k.status <> 4
            AND k.revision = a.revision
            AND (
                k.status <> 0 OR k.lease_until IS NULL OR k.lease_until <= v_now
                OR NOT EXISTS (SELECT FROM timer_biz AS b WHERE b.biz_type = k.biz_type)
            )
    )
    SELECT array_agg(DISTINCT g.task_id), array_agg(l.tid), array_agg(l.start_time),
        array_agg(256 << l.status) FILTER (WHERE l.status <> 4),
        array_agg(l.biz_type) FILTER (WHERE l.status <> 4),
        array_agg(l.start_time) FILTER (WHERE l.status <> 4),
        array_agg(l.create_time) FILTER (WHERE l.status <> 4)
    INTO v_ids, v_tids, v_places, v_edges, v_types, v_from, v_creates
    FROM gone AS g
    JOIN locked AS l ON l.task_id = g.task_id;
    IF v_ids IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM wheel_ledger_v1(v_edges, v_types, v_from, v_creates);

    FOR v_slot IN
        SELECT DISTINCT CAST((p.place / 1000) % 10000000 AS integer) / 100000 * 100000
        FROM unnest(v_places) AS p(place)
    LOOP
        EXECUTE format(
            'DELETE FROM %I AS t
            USING unnest($1, $2) AS c(tid, place)
            WHERE t.ctid = c.tid
                AND CAST((c.place / 1000) %% 10000000 AS integer) / 100000 * 100000 = $3',
            wheel_partition_v1(v_slot)
        ) USING v_tids, v_places, v_slot;
    END LOOP;

    PERFORM FROM timer_requeue AS q WHERE q.task_id = ANY (v_ids) ORDER BY q.task_id FOR UPDATE;
    DELETE FROM timer_requeue AS q WHERE q.task_id = ANY (v_ids);
    PERFORM FROM timer_dead AS d WHERE d.task_id = ANY (v_ids) ORDER BY d.task_id FOR UPDATE;
    DELETE FROM timer_dead AS d WHERE d.task_id = ANY (v_ids);
    DELETE FROM timer_attempt AS a WHERE a.task_id = ANY (v_ids);
    DELETE FROM timer_key AS k
    USING unnest(v_biz_types, v_biz_ids) AS w(biz_type, biz_id)
    WHERE k.biz_type = w.biz_type AND k.biz_id = w.biz_id AND k.task_id = ANY (v_ids);
    RETURN cardinality(v_ids);
END
$_$;

CREATE FUNCTION public.wheel_quota_turn_v1(p_biz_types text[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'public'
    AS $$
DECLARE
    v_key integer;
BEGIN
    FOR v_key IN SELECT DISTINCT hashtext(b) FROM unnest(p_biz_types) AS b ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock(wheel_lock_class('timer_ledger_total'), v_key);
    END LOOP;
END
$$;

CREATE FUNCTION public.wheel_quota_v1(p_task_ids uuid[], p_biz_types text[], p_taken integer[], p_limited text[], p_limits bigint[]) RETURNS integer[]
    LANGUAGE plpgsql
    SET search_path TO 'public'
    AS $$
DECLARE
    v_rooms bigint[];
    v_known uuid[];
BEGIN
    -- While no daemon leads nobody folds, and each count would take longer than the one before.
    PERFORM wheel_ledger_fold_v1(NULL, 50000)
    FROM timer_ledger_mark AS m
    WHERE pg_sequence_last_value('timer_ledger_delta_delta_id_seq') - m.folded_to > 50000;

    SELECT array_agg(greatest(l.max - wheel_pending_v1(l.biz_type), 0) ORDER BY l.position)
    INTO v_rooms
    FROM unnest(p_limited, p_limits) WITH ORDINALITY AS l(biz_type, max, position);

    -- Most calls end here: all find room.
    SELECT array_agg(n.task_id) INTO v_known
    FROM (
        SELECT r.task_id, count(*) OVER (PARTITION BY r.biz_type) AS tasks, l.room
        FROM unnest(p_task_ids, p_biz_types) WITH ORDINALITY AS r(task_id, biz_type, position)
        JOIN unnest(p_limited, v_rooms) AS l(biz_type, room) ON l.biz_type = r.biz_type
        WHERE r.position <> ALL (p_taken)
    ) AS n
    WHERE n.tasks > n.room;
    IF v_known IS NULL THEN
        RETURN '{}';
    END IF;
    SELECT coalesce(array_agg(f.task_id), '{}') INTO v_known FROM wheel_find_v1(v_known) AS f;

    RETURN ARRAY(
        SELECT n.position
        FROM (
            SELECT CAST(r.position AS integer) AS position, l.room,
                row_number() OVER (PARTITION BY r.biz_type ORDER BY r.position) AS nth
            FROM unnest(p_task_ids, p_biz_types) WITH ORDINALITY AS r(task_id, biz_type, position)
            JOIN unnest(p_limited, v_rooms) AS l(biz_type, room) ON l.biz_type = r.biz_type
            WHERE r.position <> ALL (p_taken) AND r.task_id <> ALL (v_known)
        ) AS n
        WHERE n.nth > n.room
    );
END
$$;

CREATE FUNCTION public.wheel_reap_advance_v1(p_epoch bigint, p_reaped bigint) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '1s'
    AS $$
BEGIN
    PERFORM wheel_reap_begin_v1(p_epoch);
    PERFORM FROM timer_pointer AS p ORDER BY p.shard FOR NO KEY UPDATE;
    UPDATE timer_pointer AS p SET reap_time = p_reaped WHERE p.reap_time < p_reaped;
END
$$;

CREATE FUNCTION public.wheel_reap_begin_v1(p_epoch bigint) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'public'
    AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'the reap hand needs isolation level read committed'
            USING ERRCODE = 'WT002';
    END IF;
    PERFORM set_config('synchronous_commit', 'off', true);
    PERFORM FROM timer_pointer AS p WHERE p.shard = 0 AND p.epoch = p_epoch;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'leadership lost' USING ERRCODE = 'WT001', DETAIL = '0 ' || p_epoch;
    END IF;
    RETURN wheel_now_ms();
END
$$;

CREATE FUNCTION public.wheel_reap_look_v1(p_slot_lo integer, p_block_lo bigint, p_block_hi bigint, OUT expired bigint, OUT entwined bigint, OUT lasting bigint, OUT open bigint, OUT earliest bigint, OUT latest bigint, OUT overdue bigint) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET enable_seqscan TO 'off'
    SET enable_indexscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $_$
BEGIN
    EXECUTE format(
        'SELECT count(*) FILTER (WHERE t.expire_at <= $3),
            count(*) FILTER (WHERE t.expire_at <= $3 AND NOT wheel_is_alone_v1(
                t.task_id, t.start_time, t.status, t.attempts, t.biz_id
            )),
            count(*) FILTER (WHERE t.expire_at > $3),
            count(*) FILTER (WHERE t.expire_at IS NULL),
            min(t.expire_at),
            max(t.expire_at),
            min(t.expire_at + (t.expire_at - t.finish_time) / 10)
        FROM %I AS t
        WHERE t.ctid >= $1 AND t.ctid < $2',
        wheel_partition_v1(p_slot_lo)
    )
    INTO expired, entwined, lasting, open, earliest, latest, overdue
    USING CAST('(' || p_block_lo || ',0)' AS tid), CAST('(' || p_block_hi || ',0)' AS tid),
        wheel_now_ms();
END
$_$;

CREATE FUNCTION public.wheel_reap_partitions_v1() RETURNS TABLE(slot_lo integer, pages bigint, index_pages bigint, updates bigint, is_under_hands boolean)
    LANGUAGE sql
    SET search_path TO 'public'
    AS $$
    SELECT p.slot_lo,
        pg_relation_size(p.name) / CAST(current_setting('block_size') AS bigint),
        pg_indexes_size(p.name) / CAST(current_setting('block_size') AS bigint),
        pg_stat_get_tuples_updated(p.name),
        wheel_under_hands_v1(p.slot_lo)
    FROM (
        SELECT CAST(g.first AS integer) AS slot_lo,
            to_regclass(wheel_partition_v1(CAST(g.first AS integer))) AS name
        FROM generate_series(0, 9900000, 100000) AS g(first)
    ) AS p
$$;

CREATE FUNCTION public.wheel_reap_truncate_v1(p_epoch bigint, p_slot_lo integer, p_carry_max integer, p_carry_bytes_max bigint, p_hold_ms integer, OUT verdict text, OUT carried integer, OUT finished bigint, OUT failed bigint, OUT cancelled bigint) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '50ms'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_indexscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $_$
DECLARE
    -- 16 MB: some ten thousand rows, some milliseconds.
    c_blocks    CONSTANT integer := 2048;
    v_now       bigint := wheel_reap_begin_v1(p_epoch);
    v_partition text := wheel_partition_v1(p_slot_lo);
    v_until     timestamptz;
    v_blocks    bigint;
    v_first     bigint := 0;
    v_bytes_all bigint := 0;
    v_rows      timer_task[];
    v_carried   timer_task[] := '{}';
    v_biz_types text[] := '{}';
    v_quarters  bigint[] := '{}';
    v_days      bigint[] := '{}';
    v_statuses  smallint[] := '{}';
    v_counts    bigint[] := '{}';
    v_group     record;
BEGIN
    carried := 0;
    finished := 0;
    failed := 0;
    cancelled := 0;
    EXECUTE format('LOCK TABLE %I IN ACCESS EXCLUSIVE MODE', v_partition);
    v_until := clock_timestamp() + p_hold_ms * interval '1 millisecond';
    IF wheel_under_hands_v1(p_slot_lo) THEN
        verdict := 'hands';
        RETURN;
    END IF;
    v_blocks := pg_relation_size(to_regclass(v_partition))
        / CAST(current_setting('block_size') AS bigint);

    WHILE v_first < v_blocks LOOP
        IF clock_timestamp() > v_until THEN
            verdict := 'slow';
            RETURN;
        END IF;
        -- In one pass: how much stays, and what the ledger is told of what goes.
        EXECUTE format(
            'SELECT coalesce(sum(g.tasks) FILTER (WHERE g.is_alive), 0) AS alive,
                coalesce(sum(g.bytes), 0) AS bytes,
                coalesce(array_agg(g.biz_type) FILTER (WHERE NOT g.is_alive), ''{}'') AS biz_types,
                coalesce(array_agg(g.quarter) FILTER (WHERE NOT g.is_alive), ''{}'') AS quarters,
                coalesce(array_agg(g.day) FILTER (WHERE NOT g.is_alive), ''{}'') AS days,
                coalesce(array_agg(g.status) FILTER (WHERE NOT g.is_alive), ''{}'') AS statuses,
                coalesce(array_agg(g.tasks) FILTER (WHERE NOT g.is_alive), ''{}'') AS counts
            FROM (
                SELECT a.is_alive, a.biz_type, a.start_time / 900000 * 900000 AS quarter,
                    a.create_time / 86400000 * 86400000 AS day, a.status, count(*) AS tasks,
                    sum(octet_length(a.biz_data)) FILTER (WHERE a.is_alive) AS bytes
                FROM (
                    SELECT t.biz_type, t.start_time, t.create_time, t.status, t.biz_data,
                        t.expire_at IS NULL OR t.expire_at > $3 OR NOT wheel_is_alone_v1(
                            t.task_id, t.start_time, t.status, t.attempts, t.biz_id
                        ) AS is_alive
                    FROM %I AS t
                    WHERE t.ctid >= $1 AND t.ctid < $2
                ) AS a
                GROUP BY 1, 2, 3, 4, 5
            ) AS g',
            v_partition
        )
        INTO v_group
        USING CAST('(' || v_first || ',0)' AS tid),
            CAST('(' || v_first + c_blocks || ',0)' AS tid), v_now;
        carried := carried + v_group.alive;
        v_bytes_all := v_bytes_all + v_group.bytes;
        IF carried > p_carry_max OR v_bytes_all > p_carry_bytes_max THEN
            verdict := 'alive';
            RETURN;
        END IF;
        v_biz_types := v_biz_types || v_group.biz_types;
        v_quarters := v_quarters || v_group.quarters;
        v_days := v_days || v_group.days;
        v_statuses := v_statuses || v_group.statuses;
        v_counts := v_counts || v_group.counts;
        IF v_group.alive > 0 THEN
            EXECUTE format(
                'SELECT array_agg(CAST(t AS timer_task))
                FROM %I AS t
                WHERE t.ctid >= $1 AND t.ctid < $2
                    AND (t.expire_at IS NULL OR t.expire_at > $3 OR NOT wheel_is_alone_v1(
                        t.task_id, t.start_time, t.status, t.attempts, t.biz_id
                    ))',
                v_partition
            )
            INTO v_rows
            USING CAST('(' || v_first || ',0)' AS tid),
                CAST('(' || v_first + c_blocks || ',0)' AS tid), v_now;
            v_carried := v_carried || v_rows;
        END IF;
        v_first := v_first + c_blocks;
    END LOOP;

    WITH gone AS (
        SELECT g.biz_type, g.quarter, g.day, g.status, CAST(sum(g.tasks) AS integer) AS tasks
        FROM unnest(v_biz_types, v_quarters, v_days, v_statuses, v_counts)
            AS g(biz_type, quarter, day, status, tasks)
        GROUP BY 1, 2, 3, 4
    ), told AS (
        INSERT INTO timer_ledger_delta (biz_type, quarter, day, edges, tasks)
        SELECT g.biz_type, g.quarter, g.day, 256 << g.status, g.tasks FROM gone AS g
    )
    SELECT coalesce(sum(g.tasks) FILTER (WHERE g.status = 1), 0),
        coalesce(sum(g.tasks) FILTER (WHERE g.status = 2), 0),
        coalesce(sum(g.tasks) FILTER (WHERE g.status = 3), 0)
    INTO finished, failed, cancelled
    FROM gone AS g;

    EXECUTE format('TRUNCATE ONLY %I', v_partition);
    INSERT INTO timer_task SELECT u.* FROM unnest(v_carried) AS u;
    verdict := 'done';
END
$_$;

CREATE FUNCTION public.wheel_reap_v1(p_epoch bigint, p_shard smallint, p_slot_lo integer, p_block_lo bigint, p_block_hi bigint, p_is_whole boolean, p_limit integer, OUT looked bigint, OUT finished bigint, OUT failed bigint, OUT cancelled bigint) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '1s'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $_$
DECLARE
    v_now       bigint := wheel_reap_begin_v1(p_epoch);
    v_partition text := wheel_partition_v1(p_slot_lo);
    v_ids       uuid[];
    v_places    bigint[];
    v_biz_types text[];
    v_biz_ids   text[];
    v_tids      tid[];
    v_homes     bigint[];
    v_home_tids tid[];
    v_gone      uuid[];
    v_types     text[];
    v_starts    bigint[];
    v_creates   bigint[];
    v_edges     integer[];
    v_slot      integer;
BEGIN
    ASSERT p_limit <= 1000, 'a batch has at most 1000 tasks';
    finished := 0;
    failed := 0;
    cancelled := 0;
    EXECUTE format(
        'SELECT coalesce(array_agg(e.task_id), ''{}''), array_agg(e.start_time),
            array_agg(e.biz_type) FILTER (WHERE e.biz_id IS NOT NULL),
            array_agg(e.biz_id) FILTER (WHERE e.biz_id IS NOT NULL)
        FROM (
            SELECT t.task_id, t.start_time, t.biz_type, t.biz_id
            FROM %I AS t
            WHERE t.ctid >= $1 AND t.ctid < $2
                AND t.expire_at <= $3
                AND t.shard = $4
                AND ($5 OR NOT wheel_is_alone_v1(
                    t.task_id, t.start_time, t.status, t.attempts, t.biz_id
                ))
            LIMIT $6
        ) AS e',
        v_partition
    )
    INTO v_ids, v_places, v_biz_types, v_biz_ids
    USING CAST('(' || p_block_lo || ',0)' AS tid), CAST('(' || p_block_hi || ',0)' AS tid), v_now,
        p_shard, p_is_whole, p_limit;
    looked := cardinality(v_ids);
    IF looked = 0 THEN
        RETURN;
    END IF;

    IF v_biz_ids IS NOT NULL THEN
        PERFORM FROM (
            SELECT w.biz_type, w.biz_id
            FROM unnest(v_biz_types, v_biz_ids) AS w(biz_type, biz_id)
            ORDER BY w.biz_type COLLATE "C", w.biz_id COLLATE "C"
        ) AS w
        CROSS JOIN LATERAL (
            SELECT FROM timer_key AS k
            WHERE k.biz_type = w.biz_type AND k.biz_id = w.biz_id
            FOR UPDATE
        ) AS l;
    END IF;
    SELECT array_agg(l.tid) FILTER (WHERE l.status BETWEEN 1 AND 3),
        array_agg(l.tid) FILTER (WHERE l.status = 4),
        array_agg(l.start_time) FILTER (WHERE l.status = 4)
    INTO v_tids, v_home_tids, v_homes
    FROM (
        SELECT array_agg(a.task_id) AS task_ids, array_agg(a.place) AS places
        FROM (
            SELECT r.task_id, r.place FROM unnest(v_ids, v_places) AS r(task_id, place)
            UNION ALL
            SELECT r.task_id, wheel_home_v1(r.task_id)
            FROM unnest(v_ids, v_places) AS r(task_id, place)
            WHERE r.place <> wheel_home_v1(r.task_id)
        ) AS a
    ) AS p
    CROSS JOIN LATERAL wheel_lock_v1(p_shard, p.task_ids, p.places) AS l;

    EXECUTE format(
        'WITH gone AS (
            DELETE FROM %I AS t
            USING unnest($1) AS l(tid)
            WHERE t.ctid = l.tid AND t.status BETWEEN 1 AND 3 AND t.expire_at <= $2
            RETURNING t.task_id, t.biz_type, t.start_time, t.create_time, t.status
        )
        SELECT coalesce(array_agg(g.task_id ORDER BY g.task_id), ''{}''),
            array_agg(g.biz_type ORDER BY g.task_id),
            array_agg(g.start_time ORDER BY g.task_id),
            array_agg(g.create_time ORDER BY g.task_id),
            array_agg(256 << g.status ORDER BY g.task_id),
            count(*) FILTER (WHERE g.status = 1),
            count(*) FILTER (WHERE g.status = 2),
            count(*) FILTER (WHERE g.status = 3)
        FROM gone AS g',
        v_partition
    )
    INTO v_gone, v_types, v_starts, v_creates, v_edges, finished, failed, cancelled
    USING v_tids, v_now;
    IF v_gone = '{}' THEN
        RETURN;
    END IF;

    FOR v_slot IN
        SELECT DISTINCT CAST((h.home / 1000) % 10000000 / 100000 * 100000 AS integer)
        FROM unnest(v_homes) AS h(home)
    LOOP
        EXECUTE format(
            'DELETE FROM %I AS t
            USING unnest($1, $2) AS h(tid, home)
            WHERE t.ctid = h.tid
                AND (h.home / 1000) %% 10000000 / 100000 * 100000 = $3
                AND t.status = 4
                AND t.task_id = ANY ($4)',
            wheel_partition_v1(v_slot)
        ) USING v_home_tids, v_homes, v_slot, v_gone;
    END LOOP;

    PERFORM FROM timer_requeue AS q WHERE q.task_id = ANY (v_gone) ORDER BY q.task_id FOR UPDATE;
    IF FOUND THEN
        DELETE FROM timer_requeue AS q WHERE q.task_id = ANY (v_gone);
    END IF;
    IF failed > 0 THEN
        PERFORM FROM timer_dead AS d WHERE d.task_id = ANY (v_gone) ORDER BY d.task_id FOR UPDATE;
        DELETE FROM timer_dead AS d WHERE d.task_id = ANY (v_gone);
    END IF;
    DELETE FROM timer_attempt AS a WHERE a.task_id = ANY (v_gone);
    IF v_biz_ids IS NOT NULL THEN
        DELETE FROM timer_key AS k
        USING unnest(v_biz_types, v_biz_ids) AS w(biz_type, biz_id)
        WHERE k.biz_type = w.biz_type AND k.biz_id = w.biz_id AND k.task_id = ANY (v_gone);
    END IF;
    PERFORM wheel_ledger_v1(v_edges, v_types, v_starts, v_creates);
END
$_$;

CREATE FUNCTION public.wheel_rearm_v1(p_shard smallint, p_epoch bigint, p_to bigint, p_task_ids uuid[], p_again bigint[], p_reasons text[]) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
    v_closed  bigint;
    v_dropped integer;
    v_moved   integer;
    v_drops   tid[];
    v_tids    tid[];
    v_again   bigint[];
    v_reasons text[];
BEGIN
    v_closed := wheel_fence_v1(p_shard);

    -- Here and wherever requeue rows are looked up: by task_id and nothing else, then by where the
    -- lock holds them. Any other condition, or a join that can be turned round, is another way for
    -- a planner who believes the table to be empty (see timer_requeue_due); and a condition around
    -- a SELECT without LIMIT is moved into it.
    SELECT array_agg(k.tid) FILTER (WHERE r.again IS NULL),
        array_agg(k.tid) FILTER (WHERE r.again IS NOT NULL),
        array_agg(r.again) FILTER (WHERE r.again IS NOT NULL),
        array_agg(r.reason) FILTER (WHERE r.again IS NOT NULL)
    INTO v_drops, v_tids, v_again, v_reasons
    FROM (
        SELECT *
        FROM unnest(p_task_ids, p_again, p_reasons) AS u(task_id, again, reason)
        ORDER BY u.task_id
    ) AS r
    CROSS JOIN LATERAL (
        SELECT q.ctid AS tid, q.due_at
        FROM timer_requeue AS q
        WHERE q.task_id = r.task_id
        LIMIT 1
        FOR UPDATE
    ) AS k
    WHERE k.due_at <= p_to;

    DELETE FROM timer_requeue AS q WHERE q.ctid = ANY (v_drops);
    GET DIAGNOSTICS v_dropped = ROW_COUNT;

    UPDATE timer_requeue AS q
    SET due_at = greatest(r.again, v_closed + 1),
        reason = coalesce(r.reason, q.reason)
    FROM unnest(v_tids, v_again, v_reasons) AS r(tid, again, reason)
    WHERE q.ctid = r.tid;
    GET DIAGNOSTICS v_moved = ROW_COUNT;

    PERFORM FROM timer_pointer AS p WHERE p.shard = p_shard AND p.epoch = p_epoch FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'leadership lost'
            USING ERRCODE = 'WT001', DETAIL = p_shard || ' ' || p_epoch;
    END IF;
    RETURN v_dropped + v_moved;
END
$$;

CREATE FUNCTION public.wheel_recall_v1(p_shard smallint, p_biz_type text, p_spread_ms bigint, p_limit integer) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $_$
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
$_$;

CREATE FUNCTION public.wheel_repair_lost_v1(p_shard smallint, p_task_ids uuid[], p_start_times bigint[], p_actor text) RETURNS uuid[]
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
    v_closed   bigint;
    v_repaired uuid[];
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    WITH pending AS MATERIALIZED (
        SELECT k.*
        FROM (
            SELECT u.task_id, u.start_time
            FROM unnest(p_task_ids, p_start_times) AS u(task_id, start_time)
            ORDER BY u.start_time, u.task_id
        ) AS r
        CROSS JOIN LATERAL (
            SELECT t.task_id, t.start_time, t.biz_type, t.lease_until, t.next_at
            FROM timer_task AS t
            WHERE t.slot = CAST((r.start_time / 1000) % 10000000 AS integer)
                AND t.shard = p_shard
                AND t.start_time = r.start_time
                AND t.task_id = r.task_id
                AND t.status = 0
            LIMIT 1
            FOR SHARE
        ) AS k
    ), covered AS (
        INSERT INTO timer_requeue AS q (task_id, shard, start_time, due_at, biz_type, reason)
        SELECT g.task_id, p_shard, g.start_time,
            greatest(v_closed + 1, g.lease_until, g.next_at), g.biz_type, 'sweep'
        FROM pending AS g
        JOIN timer_pointer AS p ON p.shard = p_shard
        WHERE g.start_time <= p.sweep_time
        ORDER BY g.task_id
        ON CONFLICT (task_id) DO UPDATE
        SET due_at = excluded.due_at, start_time = excluded.start_time, shard = excluded.shard,
            reason = excluded.reason
        WHERE q.due_at <= (SELECT p."current_time" FROM timer_pointer AS p WHERE p.shard = p_shard)
        RETURNING q.task_id
    )
    SELECT coalesce(array_agg(c.task_id), '{}') INTO v_repaired FROM covered AS c;

    INSERT INTO timer_change (time, actor, action, object, new)
    SELECT wheel_now_ms(), p_actor, 'audit.repair', CAST(i.task_id AS text),
        jsonb_build_object('audit', 'lost', 'did', 'given a requeue row')
    FROM unnest(v_repaired) AS i(task_id);
    RETURN v_repaired;
END
$$;

CREATE FUNCTION public.wheel_repair_misplaced_v1(p_what text, p_task_ids uuid[], p_actor text) RETURNS uuid[]
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_custom_plan'
    SET jit TO 'off'
    AS $$
DECLARE
    v_keep    uuid[];
    v_dropped uuid[];
BEGIN
    IF p_what = 'key' THEN
        PERFORM FROM timer_key AS k
        WHERE k.task_id = ANY (p_task_ids) ORDER BY k.task_id FOR UPDATE;
        SELECT array_agg(f.task_id) INTO v_keep FROM wheel_find_v1(p_task_ids) AS f;
        WITH dropped AS (
            DELETE FROM timer_key AS k
            WHERE k.task_id = ANY (p_task_ids) AND k.task_id <> ALL (coalesce(v_keep, '{}'))
            RETURNING k.task_id
        )
        SELECT array_agg(d.task_id) INTO v_dropped FROM dropped AS d;
    ELSIF p_what = 'dead' THEN
        PERFORM FROM timer_dead AS d
        WHERE d.task_id = ANY (p_task_ids) ORDER BY d.task_id FOR UPDATE;
        SELECT array_agg(f.task_id) INTO v_keep
        FROM wheel_find_v1(p_task_ids) AS f
        WHERE f.status = 2;
        WITH dropped AS (
            DELETE FROM timer_dead AS d
            WHERE d.task_id = ANY (p_task_ids) AND d.task_id <> ALL (coalesce(v_keep, '{}'))
            RETURNING d.task_id
        )
        SELECT array_agg(d.task_id) INTO v_dropped FROM dropped AS d;
    ELSE
        ASSERT p_what = 'address', p_what;
        PERFORM FROM unnest(p_task_ids) AS i(task_id)
        CROSS JOIN LATERAL (
            SELECT
            FROM timer_task AS h
            WHERE h.slot = CAST(wheel_home_v1(i.task_id) / 1000 % 10000000 AS integer)
                AND h.shard = wheel_home_shard_v1(i.task_id)
                AND h.start_time = wheel_home_v1(i.task_id)
                AND h.task_id = i.task_id
                AND h.status = 4
            FOR UPDATE
        ) AS l;
        SELECT array_agg(f.task_id) INTO v_keep FROM wheel_find_v1(p_task_ids) AS f;
        WITH dropped AS (
            DELETE FROM timer_task AS h
            USING unnest(p_task_ids) AS i(task_id)
            WHERE h.slot = CAST(wheel_home_v1(i.task_id) / 1000 % 10000000 AS integer)
                AND h.shard = wheel_home_shard_v1(i.task_id)
                AND h.start_time = wheel_home_v1(i.task_id)
                AND h.task_id = i.task_id
                AND h.status = 4
                AND h.task_id <> ALL (coalesce(v_keep, '{}'))
            RETURNING h.task_id
        )
        SELECT array_agg(d.task_id) INTO v_dropped FROM dropped AS d;
    END IF;

    INSERT INTO timer_change (time, actor, action, object, new)
    SELECT wheel_now_ms(), p_actor, 'audit.repair', CAST(i.task_id AS text),
        jsonb_build_object('audit', 'misplaced', 'did', 'dropped its ' || p_what)
    FROM unnest(v_dropped) AS i(task_id);
    RETURN coalesce(v_dropped, '{}');
END
$$;

CREATE FUNCTION public.wheel_repair_orphans_v1(p_shard smallint, p_task_ids uuid[], p_actor text) RETURNS uuid[]
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
    v_closed   bigint;
    v_locked   uuid[];
    v_present  uuid[];
    v_repaired uuid[];
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    SELECT coalesce(array_agg(l.task_id), '{}') INTO v_locked
    FROM (
        SELECT q.task_id
        FROM timer_requeue AS q
        WHERE q.task_id = ANY (p_task_ids) AND q.shard = p_shard
        ORDER BY q.task_id
        FOR UPDATE
    ) AS l;
    -- Of a task that stands elsewhere the row is of no use either: `lost` sees to that task.
    SELECT coalesce(array_agg(q.task_id), '{}') INTO v_present
    FROM timer_requeue AS q
    CROSS JOIN LATERAL (
        SELECT
        FROM timer_task AS t
        WHERE t.slot = CAST((q.start_time / 1000) % 10000000 AS integer)
            AND t.shard = p_shard
            AND t.start_time = q.start_time
            AND t.task_id = q.task_id
            AND t.status <> 4
        LIMIT 1
    ) AS k
    WHERE q.task_id = ANY (v_locked);

    WITH dropped AS (
        DELETE FROM timer_requeue AS q
        WHERE q.task_id = ANY (v_locked) AND q.task_id <> ALL (v_present)
        RETURNING q.task_id
    ), passed AS (
        UPDATE timer_requeue AS q
        SET due_at = v_closed + 1
        WHERE q.task_id = ANY (v_present)
            AND q.due_at <= (
                SELECT p."current_time" FROM timer_pointer AS p WHERE p.shard = p_shard
            )
        RETURNING q.task_id
    ), repaired AS (
        SELECT d.task_id, 'dropped' AS did FROM dropped AS d
        UNION ALL
        SELECT a.task_id, 'put ahead of the due hand' FROM passed AS a
    ), recorded AS (
        INSERT INTO timer_change (time, actor, action, object, new)
        SELECT wheel_now_ms(), p_actor, 'audit.repair', CAST(r.task_id AS text),
            jsonb_build_object('audit', 'orphaned_requeue', 'did', r.did)
        FROM repaired AS r
    )
    SELECT coalesce(array_agg(r.task_id), '{}') INTO v_repaired FROM repaired AS r;
    RETURN v_repaired;
END
$$;

CREATE FUNCTION public.wheel_report_v1(p_shard smallint, p_slot_lo integer, p_slot_hi integer, p_task_ids uuid[], p_start_times bigint[], p_biz_types text[], p_verbs text[], p_attempts integer[], p_revisions integer[], p_delays bigint[], p_retentions bigint[], p_reasons text[], p_broker text, p_config_versions bigint[], p_erases boolean[], p_notice_ids uuid[], p_notice_times bigint[], p_notice_biz_types text[], p_notice_biz_ids text[], p_notice_data bytea[], p_notice_content_type text, p_lookahead_ms bigint, p_latest_ms bigint, OUT verdicts text[], OUT moments bigint[], OUT notices integer[]) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $_$
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
$_$;

CREATE FUNCTION public.wheel_requeue_due_v1(p_shard smallint, p_again boolean, p_after bigint, p_to bigint, p_after_due bigint, p_after_id uuid, p_limit integer) RETURNS TABLE(task_id uuid, start_time bigint, due_at bigint, biz_type text, reason text, status smallint, lease_until bigint, next_at bigint)
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $_$
DECLARE
    v_ids        uuid[];
    v_starts     bigint[];
    v_dues       bigint[];
    v_biz_types  text[];
    v_reasons    text[];
    v_first_slot integer;
BEGIN
    SELECT array_agg(q.task_id), array_agg(q.start_time), array_agg(q.due_at),
        array_agg(q.biz_type), array_agg(q.reason)
    INTO v_ids, v_starts, v_dues, v_biz_types, v_reasons
    FROM (
        SELECT r.task_id, r.start_time, r.due_at, r.biz_type, r.reason
        FROM timer_requeue AS r
        WHERE r.shard = p_shard
            AND r.due_at > p_after
            AND r.due_at <= p_to
            AND (r.due_at, uuid_send(r.task_id)) > (p_after_due, uuid_send(p_after_id))
            AND (r.reason IN ('retry', 'release', 'run', 'replay')) = p_again
        ORDER BY r.shard, r.due_at, uuid_send(r.task_id)
        LIMIT p_limit
    ) AS q;

    FOR v_first_slot IN
        SELECT DISTINCT CAST((s.start_time / 1000) % 10000000 / 100000 * 100000 AS integer)
        FROM unnest(v_starts) AS s(start_time)
    LOOP
        RETURN QUERY EXECUTE format(
            'SELECT r.task_id, r.start_time, r.due_at, r.biz_type, r.reason,
                t.status, t.lease_until, t.next_at
            FROM unnest($1, $2, $3, $4, $5) AS r(task_id, start_time, due_at, biz_type, reason)
            LEFT JOIN LATERAL (
                SELECT k.status, k.lease_until, k.next_at
                FROM %I AS k
                WHERE k.slot = CAST((r.start_time / 1000) %% 10000000 AS integer)
                    AND k.shard = $6
                    AND k.start_time = r.start_time
                    AND k.task_id = r.task_id
                LIMIT 1
            ) AS t ON true
            WHERE (r.start_time / 1000) %% 10000000 / 100000 * 100000 = $7',
            wheel_partition_v1(v_first_slot)
        ) USING v_ids, v_starts, v_dues, v_biz_types, v_reasons, p_shard, v_first_slot;
    END LOOP;
END
$_$;

CREATE FUNCTION public.wheel_rescue_v1(p_shard smallint, p_epoch bigint) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
    v_closed  bigint;
    v_current bigint;
    v_ids     uuid[];
    v_tids    tid[];
    v_rescued integer := 0;
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    SELECT p."current_time" INTO v_current FROM timer_pointer AS p WHERE p.shard = p_shard;
    -- By the index on due_at: most rows lie ahead, and there may be millions of them.
    SELECT array_agg(b.task_id) INTO v_ids
    FROM (
        SELECT r.task_id
        FROM timer_requeue AS r
        WHERE r.shard = p_shard AND r.due_at <= v_current
        ORDER BY r.shard, r.due_at, uuid_send(r.task_id)
        LIMIT 1000
    ) AS b;
    IF v_ids IS NOT NULL THEN
        SELECT array_agg(l.tid) FILTER (WHERE l.due_at <= v_current) INTO v_tids
        FROM (
            SELECT r.ctid AS tid, r.due_at
            FROM timer_requeue AS r
            WHERE r.task_id = ANY (v_ids)
            ORDER BY r.task_id
            FOR UPDATE
        ) AS l;
        UPDATE timer_requeue AS q SET due_at = v_closed + 1 WHERE q.ctid = ANY (v_tids);
        GET DIAGNOSTICS v_rescued = ROW_COUNT;
    END IF;
    PERFORM FROM timer_pointer AS p WHERE p.shard = p_shard AND p.epoch = p_epoch FOR SHARE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'leadership lost'
            USING ERRCODE = 'WT001', DETAIL = p_shard || ' ' || p_epoch;
    END IF;
    RETURN v_rescued;
END
$$;

CREATE FUNCTION public.wheel_reserve_v1(p_shard smallint, p_slot_lo integer, p_slot_hi integer, p_biz_type text, p_reserved_max integer, p_task_ids uuid[], p_start_times bigint[], p_moments bigint[], p_ttrs bigint[], p_published bigint[], p_bytes_max bigint, p_shown_bytes bigint) RETURNS TABLE(verdict text, task_id uuid, lease_until bigint, start_time bigint, biz_type text, biz_id text, attempts integer, failures smallint, revision integer, life smallint, stop boolean, create_time bigint, first_attempt_time bigint, biz_data bytea, content_type text, callback text, retry text, max_age bigint, schedule_id uuid, traceparent text, was_lost boolean, scheduled_time bigint, was_called boolean)
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
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

CREATE FUNCTION public.wheel_reserved_v1(p_biz_type text, p_now bigint, p_limit integer) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET plan_cache_mode TO 'force_generic_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
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

CREATE FUNCTION public.wheel_schedule_admit_v1(p_schedule_ids uuid[], p_task_ids uuid[]) RETURNS uuid[]
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    AS $$
DECLARE
    v_schedule_id uuid;
    v_task_id     uuid;
    v_running     uuid;
    v_skipped     uuid[] := '{}';
BEGIN
    FOR v_schedule_id, v_task_id IN
        SELECT r.schedule_id, r.task_id
        FROM unnest(p_schedule_ids, p_task_ids)
            WITH ORDINALITY AS r(schedule_id, task_id, position)
        ORDER BY r.schedule_id, r.position
    LOOP
        SELECT s.running INTO v_running
        FROM timer_schedule AS s
        WHERE s.schedule_id = v_schedule_id AND s.overlap = 'skip'
        FOR NO KEY UPDATE;
        CONTINUE WHEN NOT FOUND OR v_running = v_task_id;
        IF v_running IS NOT NULL THEN
            PERFORM FROM wheel_find_v1(ARRAY[v_running]) AS t WHERE t.status = 0;
            IF FOUND THEN
                v_skipped := v_skipped || v_task_id;
                CONTINUE;
            END IF;
        END IF;
        UPDATE timer_schedule AS s SET running = v_task_id WHERE s.schedule_id = v_schedule_id;
    END LOOP;
    RETURN v_skipped;
END
$$;

CREATE FUNCTION public.wheel_schedule_delete_v1(p_shard smallint, p_schedule_id uuid, p_expected bigint, p_limit integer, p_actor text, p_old jsonb, p_retention_ms bigint, p_lookahead_ms bigint, OUT verdict text, OUT under_way bigint) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    AS $$
DECLARE
    v_object  text;
    v_is_more boolean;
BEGIN
    PERFORM wheel_fence_v1(p_shard);
    under_way := 0;
    SELECT s.biz_type || '/' || s.name INTO v_object
    FROM timer_schedule AS s
    WHERE s.schedule_id = p_schedule_id AND s.version = p_expected
    FOR UPDATE;
    IF NOT FOUND THEN
        verdict := 'overtaken';
        RETURN;
    END IF;
    SELECT t.is_more, t.under_way INTO v_is_more, under_way
    FROM wheel_schedule_take_v1(
        p_shard, p_schedule_id, NULL, p_limit, p_retention_ms, p_lookahead_ms
    ) AS t;
    IF v_is_more THEN
        verdict := 'more';
        RETURN;
    END IF;
    DELETE FROM timer_schedule AS s WHERE s.schedule_id = p_schedule_id;
    INSERT INTO timer_change (time, actor, action, object, old, new)
    VALUES (wheel_now_ms(), p_actor, 'schedule.delete', v_object, p_old, NULL);
    verdict := 'written';
END
$$;

CREATE FUNCTION public.wheel_schedule_forget_v1(p_shard smallint, p_limit integer) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'public'
    AS $$
DECLARE
    v_now  bigint := wheel_now_ms();
    v_ids  uuid[];
    v_open uuid[];
BEGIN
    SELECT array_agg(l.task_id) INTO v_ids
    FROM (
        SELECT o.task_id
        FROM timer_occurrence AS o
        WHERE o.shard = p_shard AND o.look_at <= v_now
        ORDER BY o.look_at
        LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    ) AS l;
    IF v_ids IS NULL THEN
        RETURN 0;
    END IF;
    SELECT coalesce(array_agg(u.task_id), '{}') INTO v_open FROM wheel_uncalled_v1(v_ids) AS u;
    UPDATE timer_occurrence AS o
    SET look_at = v_now + 600000
    WHERE o.shard = p_shard AND o.look_at <= v_now AND o.task_id = ANY (v_open);
    DELETE FROM timer_occurrence AS o
    WHERE o.shard = p_shard AND o.look_at <= v_now AND o.task_id = ANY (v_ids)
        AND o.task_id <> ALL (v_open);
    RETURN cardinality(v_ids);
END
$$;

CREATE FUNCTION public.wheel_schedule_generate_v1(p_shard smallint, p_schedule_ids uuid[], p_versions bigint[], p_seen bigint[], p_next_times bigint[], p_owners integer[], p_task_ids uuid[], p_start_times bigint[], p_scheduled_times bigint[], p_lookahead_ms bigint, OUT near uuid[], OUT moved uuid[]) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    AS $$
DECLARE
    v_schedules uuid[];
    v_ids       uuid[];
    v_starts    bigint[];
    v_moments   bigint[];
BEGIN
    PERFORM wheel_fence_v1(p_shard);
    SELECT coalesce(array_agg(l.schedule_id), '{}') INTO moved
    FROM (
        SELECT s.schedule_id
        FROM unnest(p_schedule_ids, p_versions, p_seen) AS r(schedule_id, version, seen)
        JOIN timer_schedule AS s ON s.schedule_id = r.schedule_id
        WHERE s.enabled AND s.version = r.version AND s.next_time = r.seen
        ORDER BY s.schedule_id
        FOR NO KEY UPDATE OF s
    ) AS l;

    SELECT array_agg(p_schedule_ids[o.owner] ORDER BY o.position),
        array_agg(o.task_id ORDER BY o.position),
        array_agg(o.start_time ORDER BY o.position),
        array_agg(o.scheduled_time ORDER BY o.position)
    INTO v_schedules, v_ids, v_starts, v_moments
    FROM unnest(p_owners, p_task_ids, p_start_times, p_scheduled_times)
        WITH ORDINALITY AS o(owner, task_id, start_time, scheduled_time, position)
    WHERE p_schedule_ids[o.owner] = ANY (moved);
    near := wheel_schedule_put_on_v1(
        p_shard, v_schedules, v_ids, v_starts, v_moments, p_lookahead_ms
    );

    UPDATE timer_schedule AS s
    SET next_time = r.next_time
    FROM unnest(p_schedule_ids, p_next_times) AS r(schedule_id, next_time)
    WHERE s.schedule_id = r.schedule_id AND s.schedule_id = ANY (moved);
END
$$;

CREATE FUNCTION public.wheel_schedule_put_on_v1(p_shard smallint, p_schedule_ids uuid[], p_task_ids uuid[], p_start_times bigint[], p_scheduled_times bigint[], p_lookahead_ms bigint) RETURNS uuid[]
    LANGUAGE plpgsql
    SET search_path TO 'public'
    AS $$
DECLARE
    v_near uuid[];
BEGIN
    IF coalesce(cardinality(p_task_ids), 0) = 0 THEN
        RETURN '{}';
    END IF;
    SELECT ARRAY(SELECT p_task_ids[n] FROM unnest(w.near) AS n) INTO v_near
    FROM (
        SELECT array_agg(s.biz_type ORDER BY r.position) AS biz_types,
            array_agg(s.biz_data ORDER BY r.position) AS biz_data,
            array_agg(s.content_type ORDER BY r.position) AS content_types,
            array_agg(CAST(s.callback AS text) ORDER BY r.position) AS callbacks
        FROM unnest(p_schedule_ids) WITH ORDINALITY AS r(schedule_id, position)
        JOIN timer_schedule AS s ON s.schedule_id = r.schedule_id
    ) AS c
    CROSS JOIN LATERAL wheel_submit_v1(
        p_shard, p_task_ids, p_start_times, c.biz_types, NULL, c.biz_data, c.content_types,
        c.callbacks, NULL, NULL, NULL, p_lookahead_ms, NULL, NULL, p_schedule_ids,
        p_scheduled_times
    ) AS w;
    INSERT INTO timer_occurrence (
        schedule_id, shard, start_time, scheduled_time, task_id, look_at
    )
    SELECT r.schedule_id, p_shard, r.start_time, r.scheduled_time, r.task_id,
        greatest(r.start_time, wheel_now_ms()) + 60000
    FROM unnest(p_schedule_ids, p_task_ids, p_start_times, p_scheduled_times)
        AS r(schedule_id, task_id, start_time, scheduled_time)
    ON CONFLICT DO NOTHING;
    RETURN v_near;
END
$$;

CREATE FUNCTION public.wheel_schedule_put_v1(p_shard smallint, p_schedule_id uuid, p_expected bigint, p_biz_type text, p_name text, p_settings jsonb, p_biz_data bytea, p_now bigint, p_cut bigint, p_limit integer, p_next_time bigint, p_task_ids uuid[], p_start_times bigint[], p_scheduled_times bigint[], p_actor text, p_action text, p_old jsonb, p_new jsonb, p_retention_ms bigint, p_lookahead_ms bigint, OUT verdict text, OUT near uuid[], OUT under_way bigint) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    AS $$
DECLARE
    v_is_more boolean;
BEGIN
    PERFORM wheel_fence_v1(p_shard);
    near := '{}';
    under_way := 0;
    PERFORM FROM timer_biz AS b WHERE b.biz_type = p_biz_type FOR KEY SHARE;
    IF NOT FOUND THEN
        verdict := 'unknown';
        RETURN;
    END IF;
    IF p_expected IS NULL THEN
        INSERT INTO timer_schedule (
            schedule_id, shard, biz_type, name, version, create_time, update_time, next_time,
            enabled, cron, timezone, start_after, end_before, misfire, misfire_after, overlap,
            jitter, content_type, callback, biz_data
        )
        SELECT p_schedule_id, p_shard, p_biz_type, p_name, 1, p_now, p_now, p_next_time,
            s.enabled, s.cron, s.timezone, s.start_after, s.end_before, s.misfire,
            s.misfire_after, s.overlap, s.jitter, s.content_type, s.callback, p_biz_data
        FROM jsonb_to_record(p_settings) AS s(
            enabled boolean, cron text, timezone text, start_after bigint, end_before bigint,
            misfire text, misfire_after bigint, overlap text, jitter bigint, content_type text,
            callback jsonb
        )
        ON CONFLICT (biz_type, name) DO NOTHING;
        IF NOT FOUND THEN
            verdict := 'overtaken';
            RETURN;
        END IF;
    ELSE
        PERFORM
        FROM timer_schedule AS s
        WHERE s.schedule_id = p_schedule_id AND s.version = p_expected
        FOR UPDATE;
        IF NOT FOUND THEN
            verdict := 'overtaken';
            RETURN;
        END IF;
        SELECT t.is_more, t.under_way INTO v_is_more, under_way
        FROM wheel_schedule_take_v1(
            p_shard, p_schedule_id, p_cut, p_limit, p_retention_ms, p_lookahead_ms
        ) AS t;
        IF v_is_more THEN
            verdict := 'more';
            RETURN;
        END IF;
        UPDATE timer_schedule AS t
        SET version = t.version + 1, update_time = p_now, next_time = p_next_time,
            enabled = s.enabled, cron = s.cron, timezone = s.timezone,
            start_after = s.start_after, end_before = s.end_before, misfire = s.misfire,
            misfire_after = s.misfire_after, overlap = s.overlap, jitter = s.jitter,
            content_type = s.content_type, callback = s.callback, biz_data = p_biz_data
        FROM jsonb_to_record(p_settings) AS s(
            enabled boolean, cron text, timezone text, start_after bigint, end_before bigint,
            misfire text, misfire_after bigint, overlap text, jitter bigint, content_type text,
            callback jsonb
        )
        WHERE t.schedule_id = p_schedule_id;
    END IF;
    near := wheel_schedule_put_on_v1(
        p_shard, array_fill(p_schedule_id, ARRAY[coalesce(cardinality(p_task_ids), 0)]),
        p_task_ids, p_start_times, p_scheduled_times, p_lookahead_ms
    );
    INSERT INTO timer_change (time, actor, action, object, old, new)
    VALUES (p_now, p_actor, p_action, p_biz_type || '/' || p_name, p_old, p_new);
    verdict := 'written';
END
$$;

CREATE FUNCTION public.wheel_schedule_run_v1(p_shard smallint, p_schedule_id uuid, p_task_id uuid, p_now bigint, p_actor text, p_lookahead_ms bigint, OUT is_found boolean, OUT is_near boolean) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    AS $$
DECLARE
    v_object text;
BEGIN
    PERFORM wheel_fence_v1(p_shard);
    SELECT s.biz_type || '/' || s.name INTO v_object
    FROM timer_schedule AS s
    WHERE s.schedule_id = p_schedule_id
    FOR SHARE;
    is_found := FOUND;
    IF NOT is_found THEN
        RETURN;
    END IF;
    is_near := p_task_id = ANY (wheel_schedule_put_on_v1(
        p_shard, ARRAY[p_schedule_id], ARRAY[p_task_id], ARRAY[p_now], ARRAY[p_now], p_lookahead_ms
    ));
    INSERT INTO timer_change (time, actor, action, object, old, new)
    VALUES (
        wheel_now_ms(), p_actor, 'schedule.run', v_object, NULL,
        jsonb_build_object('task_id', p_task_id)
    );
END
$$;

CREATE FUNCTION public.wheel_schedule_take_v1(p_shard smallint, p_schedule_id uuid, p_after bigint, p_limit integer, p_retention_ms bigint, p_lookahead_ms bigint, OUT is_more boolean, OUT under_way bigint) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'public'
    AS $$
DECLARE
    v_ids       uuid[];
    v_open      uuid[];
    v_places    bigint[];
    v_revisions integer[];
    v_count     bigint;
BEGIN
    under_way := 0;
    SELECT array_agg(o.task_id ORDER BY o.start_time, o.task_id) INTO v_ids
    FROM (
        SELECT k.task_id, k.start_time
        FROM timer_occurrence AS k
        WHERE k.schedule_id = p_schedule_id AND (p_after IS NULL OR k.scheduled_time > p_after)
        ORDER BY k.start_time, k.task_id
        LIMIT p_limit + 1
    ) AS o;
    is_more := coalesce(cardinality(v_ids) > p_limit, false);
    v_ids := v_ids[1:p_limit];

    FOR v_first IN 1..coalesce(cardinality(v_ids), 0) BY 1000 LOOP
        SELECT array_agg(u.task_id), array_agg(u.start_time), array_agg(u.revision)
        INTO v_open, v_places, v_revisions
        FROM wheel_uncalled_v1(v_ids[v_first:v_first + 999]) AS u;
        CONTINUE WHEN v_open IS NULL;
        PERFORM wheel_cancel_pending_v1(p_shard, v_open, v_places, v_revisions, p_retention_ms);
        -- What is left is being claimed, or somebody has just moved it: look again.
        FOR round IN 1..10 LOOP
            SELECT array_agg(u.task_id), array_agg(u.start_time) INTO v_open, v_places
            FROM wheel_uncalled_v1(v_open) AS u
            WHERE NOT u.stop;
            EXIT WHEN v_open IS NULL;
            SELECT count(*) FILTER (WHERE d.verdict = 'stopping') INTO v_count
            FROM wheel_change_v1(
                p_shard, v_open, v_places, array_fill(CAST('cancel' AS text),
                ARRAY[cardinality(v_open)]), NULL, NULL, NULL,
                array_fill(1, ARRAY[cardinality(v_open)]), NULL, NULL, NULL, NULL, NULL, NULL,
                NULL, p_retention_ms, p_lookahead_ms
            ) AS c
            CROSS JOIN LATERAL unnest(c.verdicts) AS d(verdict);
            under_way := under_way + v_count;
        END LOOP;
    END LOOP;
    DELETE FROM timer_occurrence AS o
    WHERE o.schedule_id = p_schedule_id AND o.task_id = ANY (v_ids);
END
$$;

CREATE FUNCTION public.wheel_select_dead_v1(p_biz_type text, p_from bigint, p_to bigint, p_key_time bigint, p_key_id uuid, p_limit integer) RETURNS TABLE(task_id uuid, finish_time bigint, biz_type text, http_status smallint)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'public'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
BEGIN
    IF p_biz_type IS NULL THEN
        RETURN QUERY
        SELECT d.task_id, d.finish_time, d.biz_type, d.http_status
        FROM timer_dead AS d
        WHERE d.finish_time >= p_from
            AND d.finish_time < p_to
            AND (d.finish_time, d.task_id) > (p_key_time, p_key_id)
        ORDER BY d.finish_time, d.task_id
        LIMIT p_limit;
    ELSE
        RETURN QUERY
        SELECT d.task_id, d.finish_time, d.biz_type, d.http_status
        FROM timer_dead AS d
        WHERE d.biz_type = p_biz_type
            AND d.finish_time >= p_from
            AND d.finish_time < p_to
            AND (d.finish_time, d.task_id) > (p_key_time, p_key_id)
        ORDER BY d.biz_type, d.finish_time, d.task_id
        LIMIT p_limit;
    END IF;
END
$$;

CREATE FUNCTION public.wheel_select_keys_v1(p_biz_type text, p_first text, p_end text, p_after text, p_limit integer) RETURNS TABLE(biz_id text, task_id uuid)
    LANGUAGE plpgsql STABLE
    SET search_path TO 'public'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
BEGIN
    RETURN QUERY
    SELECT k.biz_id, k.task_id
    FROM timer_key AS k
    WHERE k.biz_type = p_biz_type
        AND k.biz_id >= p_first
        AND (p_end IS NULL OR k.biz_id < p_end)
        AND k.biz_id > p_after
    ORDER BY k.biz_type, k.biz_id
    LIMIT p_limit;
END
$$;

CREATE FUNCTION public.wheel_select_v1(p_slot_lo integer, p_slot_hi integer, p_from bigint, p_to bigint, p_key_time bigint, p_key_id uuid, p_shards integer, p_biz_type text, p_biz_types text[], p_status smallint, p_is_leased boolean, p_finish_from bigint, p_finish_to bigint, p_http_status smallint, p_schedule_id uuid, p_asked_at bigint, p_limit integer, p_looked_max integer) RETURNS TABLE(task_id uuid, start_time bigint, revision integer, looked integer, last_slot integer, last_time bigint, last_id uuid, is_done boolean)
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $_$
#variable_conflict use_column
DECLARE
    v_now   bigint := wheel_now_ms();
    v_row   record;
    v_found integer := 0;
BEGIN
    looked := 0;
    is_done := true;
    FOR v_row IN EXECUTE format(
        'WITH RECURSIVE occupied(slot) AS (
            (SELECT t.slot FROM %1$I AS t WHERE t.slot BETWEEN $1 AND $2 ORDER BY t.slot LIMIT 1)
            UNION ALL
            SELECT n.slot
            FROM occupied AS o
            CROSS JOIN LATERAL (
                SELECT t.slot FROM %1$I AS t
                WHERE t.slot > o.slot AND t.slot <= $2
                ORDER BY t.slot
                LIMIT 1
            ) AS n
        )
        SELECT o.slot, r.start_time, r.task_id, r.revision, r.fits
        FROM occupied AS o
        LEFT JOIN LATERAL (
            SELECT k.start_time, k.task_id, k.revision, k.fits
            FROM generate_series(0, $7 - 1) AS h(shard)
            CROSS JOIN LATERAL (
                SELECT t.start_time, t.task_id, t.revision,
                    t.status <> 4
                    AND ($8 IS NULL OR t.biz_type = $8)
                    AND ($9 IS NULL OR t.biz_type LIKE ANY ($9))
                    AND ($10 IS NULL OR t.status = $10)
                    AND ($11 IS NULL OR coalesce(t.lease_until > $12, false) = $11)
                    AND ($13 IS NULL OR t.finish_time >= $13)
                    AND ($14 IS NULL OR t.finish_time < $14)
                    AND ($15 IS NULL OR t.http_status = $15)
                    AND ($16 IS NULL OR t.schedule_id = $16)
                    AND ($17 IS NULL OR t.create_time <= $17)
                    AND ($17 IS NULL OR t.renew_time IS NULL OR t.renew_time < $17) AS fits
                FROM %1$I AS t
                WHERE t.slot = o.slot
                    AND t.shard = CAST(h.shard AS smallint)
                    AND t.start_time < $4
                    AND (t.start_time, t.task_id) > (
                        CASE WHEN o.slot = $1 THEN greatest($5, $3 - 1) ELSE $3 - 1 END,
                        CASE
                            WHEN o.slot = $1 AND $5 >= $3 THEN $6
                            ELSE CAST(''ffffffff-ffff-ffff-ffff-ffffffffffff'' AS uuid)
                        END
                    )
                ORDER BY t.slot, t.shard, t.start_time, t.task_id
                LIMIT $18
            ) AS k
            ORDER BY k.start_time, k.task_id
            LIMIT $18
        ) AS r ON true
        LIMIT $18',
        wheel_partition_v1(p_slot_lo)
    ) USING p_slot_lo, p_slot_hi, p_from, p_to, p_key_time, p_key_id, p_shards, p_biz_type,
        p_biz_types, p_status, p_is_leased, v_now, p_finish_from, p_finish_to, p_http_status,
        p_schedule_id, p_asked_at, p_looked_max
    LOOP
        looked := looked + 1;
        last_slot := v_row.slot;
        last_time := v_row.start_time;
        last_id := v_row.task_id;
        is_done := looked < p_looked_max;
        IF v_row.fits THEN
            task_id := v_row.task_id;
            start_time := v_row.start_time;
            revision := v_row.revision;
            RETURN NEXT;
            v_found := v_found + 1;
            IF v_found = p_limit THEN
                is_done := false;
                EXIT;
            END IF;
        END IF;
    END LOOP;
    task_id := NULL;
    start_time := NULL;
    revision := NULL;
    RETURN NEXT;
END
$_$;

CREATE FUNCTION public.wheel_settle_again_v1(p_shard smallint, p_slot_lo integer, p_slot_hi integer, p_task_ids uuid[], p_start_times bigint[], p_outcomes text[], p_attempts integer[], p_revisions integer[], p_delays bigint[], p_retentions bigint[], p_http_statuses smallint[], p_errors text[], p_error_classes text[], p_excerpts text[], p_started bigint[], p_durations integer[], p_dues bigint[], p_published bigint[], p_addresses text[], p_brokers text[], p_config_versions bigint[], p_lives smallint[], p_lookahead_ms bigint, p_latest_ms bigint) RETURNS TABLE(task_id uuid, start_time bigint, moment bigint, biz_type text)
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $_$
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
$_$;

CREATE FUNCTION public.wheel_settle_final_v1(p_slot_lo integer, p_slot_hi integer, p_task_ids uuid[], p_shards smallint[], p_start_times bigint[], p_statuses smallint[], p_attempts integer[], p_revisions integer[], p_retentions bigint[], p_http_statuses smallint[], p_errors text[], p_error_classes text[], p_excerpts text[], p_started bigint[], p_durations integer[], p_dues bigint[], p_published bigint[], p_addresses text[], p_brokers text[], p_config_versions bigint[], p_lives smallint[]) RETURNS uuid[]
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $_$
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
$_$;

CREATE FUNCTION public.wheel_settle_noted_v1(p_slot_lo integer, p_slot_hi integer, p_task_ids uuid[], p_shard smallint, p_start_times bigint[], p_statuses smallint[], p_attempts integer[], p_revisions integer[], p_retentions bigint[], p_http_statuses smallint[], p_errors text[], p_error_classes text[], p_excerpts text[], p_started bigint[], p_durations integer[], p_dues bigint[], p_published bigint[], p_addresses text[], p_brokers text[], p_config_versions bigint[], p_lives smallint[], p_erases boolean[], p_notice_ids uuid[], p_notice_times bigint[], p_notice_biz_types text[], p_notice_biz_ids text[], p_notice_data bytea[], p_notice_content_type text, p_lookahead_ms bigint) RETURNS integer[]
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    AS $_$
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
$_$;

CREATE FUNCTION public.wheel_show_v1(p_shard smallint, p_task_ids uuid[], p_places bigint[], p_bytes_max integer) RETURNS SETOF public.timer_task
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $_$
DECLARE
    v_slot  integer;
    v_row   timer_task;
    v_bytes bigint := 0;
BEGIN
    IF p_bytes_max = 0 THEN
        RETURN;
    END IF;
    FOR v_slot IN
        SELECT DISTINCT CAST((p.place / 1000) % 10000000 / 100000 * 100000 AS integer)
        FROM unnest(p_places) AS p(place)
        WHERE p.place IS NOT NULL
    LOOP
        FOR v_row IN EXECUTE format(
            'SELECT k.*
            FROM unnest($1, $2) AS r(task_id, place)
            CROSS JOIN LATERAL (
                SELECT t.*
                FROM %I AS t
                WHERE t.slot = CAST((r.place / 1000) %% 10000000 AS integer)
                    AND t.shard = $3
                    AND t.start_time = r.place
                    AND t.task_id = r.task_id
                LIMIT 1
            ) AS k
            WHERE (r.place / 1000) %% 10000000 / 100000 * 100000 = $4 AND k.status <> 4',
            wheel_partition_v1(v_slot)
        ) USING p_task_ids, p_places, p_shard, v_slot
        LOOP
            v_bytes := v_bytes + 500 + coalesce(octet_length(v_row.biz_data), 0)
                + coalesce(pg_column_size(v_row.callback), 0)
                + coalesce(pg_column_size(v_row.retry), 0)
                + coalesce(octet_length(v_row.last_error), 0);
            IF v_bytes > p_bytes_max THEN
                RETURN;
            END IF;
            RETURN NEXT v_row;
        END LOOP;
    END LOOP;
END
$_$;

CREATE FUNCTION public.wheel_skip_v1(p_first bigint, p_last bigint) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
    v_slot_first integer := p_first % 10000000;
    v_slot_last  integer := p_last % 10000000;
    v_slot       integer;
BEGIN
    ASSERT v_slot_first <= v_slot_last, 'the range runs over the ring''s end';
    SELECT t.slot INTO v_slot
    FROM timer_task AS t
    WHERE t.slot BETWEEN v_slot_first AND v_slot_last
    ORDER BY t.slot
    LIMIT 1;
    RETURN p_first + (v_slot - v_slot_first);
END
$$;

CREATE FUNCTION public.wheel_submit_v1(p_shard smallint, p_task_ids uuid[], p_start_times bigint[], p_biz_types text[], p_biz_ids text[], p_biz_data bytea[], p_content_types text[], p_callbacks text[], p_retries text[], p_max_ages bigint[], p_traceparents text[], p_lookahead_ms bigint, p_limited text[] DEFAULT NULL::text[], p_limits bigint[] DEFAULT NULL::bigint[], p_schedule_ids uuid[] DEFAULT NULL::uuid[], p_scheduled_times bigint[] DEFAULT NULL::bigint[], OUT near integer[], OUT duplicate integer[], OUT existing uuid[], OUT refused integer[]) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    AS $$
DECLARE
    v_closed  bigint;
    v_now     bigint;
    v_near_to bigint;
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    v_now := wheel_now_ms();
    v_near_to := greatest(v_closed, v_now + p_lookahead_ms * 3 / 2);
    IF cardinality(p_task_ids) > 1000 THEN
        RAISE EXCEPTION 'a batch has at most 1000 tasks' USING ERRCODE = '22023';
    END IF;

    duplicate := '{}';
    existing := '{}';
    refused := '{}';
    IF p_limited IS NOT NULL THEN
        PERFORM wheel_quota_turn_v1(p_limited);
    END IF;
    IF EXISTS (SELECT FROM unnest(p_biz_ids) AS b(biz_id) WHERE b.biz_id IS NOT NULL) THEN
        INSERT INTO timer_key (biz_type, biz_id, task_id)
        SELECT r.biz_type, r.biz_id, r.task_id
        FROM unnest(p_task_ids, p_biz_types, p_biz_ids)
            WITH ORDINALITY AS r(task_id, biz_type, biz_id, position)
        WHERE r.biz_id IS NOT NULL
        ORDER BY r.biz_type COLLATE "C", r.biz_id COLLATE "C", r.position
        ON CONFLICT DO NOTHING;

        SELECT coalesce(array_agg(CAST(r.position AS integer)), '{}'),
            coalesce(array_agg(k.task_id), '{}')
        INTO duplicate, existing
        FROM unnest(p_task_ids, p_biz_types, p_biz_ids)
            WITH ORDINALITY AS r(task_id, biz_type, biz_id, position)
        JOIN timer_key AS k ON k.biz_type = r.biz_type AND k.biz_id = r.biz_id
        WHERE k.task_id <> r.task_id;
    END IF;

    IF p_limited IS NOT NULL THEN
        refused := wheel_quota_v1(p_task_ids, p_biz_types, duplicate, p_limited, p_limits);
        IF refused <> '{}' THEN
            -- Their biz_ids go with them, and so does who has the same one in this very call.
            DELETE FROM timer_key AS k
            USING unnest(refused) AS u(position)
            WHERE k.biz_type = p_biz_types[u.position]
                AND k.biz_id = p_biz_ids[u.position]
                AND k.task_id = p_task_ids[u.position];
            SELECT coalesce(array_agg(d.position) FILTER (WHERE NOT d.is_gone), '{}'),
                coalesce(array_agg(d.holder) FILTER (WHERE NOT d.is_gone), '{}'),
                refused || coalesce(array_agg(d.position) FILTER (WHERE d.is_gone), '{}')
            INTO duplicate, existing, refused
            FROM (
                SELECT u.position, u.holder,
                    u.holder IN (SELECT p_task_ids[g.position] FROM unnest(refused) AS g(position))
                        AS is_gone
                FROM unnest(duplicate, existing) AS u(position, holder)
            ) AS d;
        END IF;
    END IF;

    -- The net is for tasks that this very call puts on the wheel: of one that is there already,
    -- nobody knows here where it is by now.
    WITH inserted AS (
        INSERT INTO timer_task (
            slot, shard, start_time, task_id, create_time, biz_type, biz_id, biz_data,
            content_type, callback, retry, max_age, traceparent, schedule_id, scheduled_time
        )
        SELECT
            (r.start_time / 1000) % 10000000, p_shard, r.start_time, r.task_id, v_now, r.biz_type,
            r.biz_id, r.biz_data, r.content_type, CAST(r.callback AS jsonb),
            CAST(r.retry AS jsonb), r.max_age, r.traceparent, r.schedule_id, r.scheduled_time
        FROM unnest(
            p_task_ids, p_start_times, p_biz_types, p_biz_ids, p_biz_data, p_content_types,
            p_callbacks, p_retries, p_max_ages, p_traceparents, p_schedule_ids, p_scheduled_times
        ) WITH ORDINALITY AS r(
            task_id, start_time, biz_type, biz_id, biz_data, content_type,
            callback, retry, max_age, traceparent, schedule_id, scheduled_time, position
        )
        WHERE r.position <> ALL (duplicate || refused)
        ORDER BY (r.start_time / 1000) % 10000000, r.start_time, r.task_id
        ON CONFLICT (slot, shard, start_time, task_id) DO NOTHING
        RETURNING timer_task.task_id, timer_task.start_time, timer_task.biz_type
    ), counted AS (
        INSERT INTO timer_ledger_delta (biz_type, quarter, day, edges, tasks)
        SELECT i.biz_type, i.start_time / 900000 * 900000, v_now / 86400000 * 86400000, 1, count(*)
        FROM inserted AS i
        GROUP BY 1, 2
    )
    INSERT INTO timer_requeue (task_id, shard, start_time, due_at, biz_type, reason)
    SELECT i.task_id, p_shard, i.start_time, greatest(i.start_time, v_now, v_closed) + 2000,
        i.biz_type, 'near'
    FROM inserted AS i
    WHERE i.start_time <= v_near_to
    ORDER BY i.task_id;

    SELECT coalesce(array_agg(CAST(r.position AS integer)), '{}') INTO near
    FROM unnest(p_start_times) WITH ORDINALITY AS r(start_time, position)
    WHERE r.start_time <= v_near_to AND r.position <> ALL (duplicate || refused);
END
$$;

CREATE FUNCTION public.wheel_sweep_v1(p_shard smallint, p_epoch bigint, p_from bigint, p_to bigint, p_after_time bigint, p_after_id uuid, p_limit integer, p_slow text[], p_waits bigint[], OUT seen integer, OUT added integer, OUT last_time bigint, OUT last_id uuid, OUT swept_to bigint) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
    v_closed     bigint;
    v_now        bigint;
    v_first      bigint := (greatest(p_from + 1, p_after_time)) / 1000;
    v_last       bigint := p_to / 1000;
    v_slot_first integer := v_first % 10000000;
    v_slot_last  integer := v_last % 10000000;
    v_leased     integer;
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    v_now := wheel_now_ms();
    ASSERT v_last < v_first OR v_slot_first <= v_slot_last, 'the range runs over the ring''s end';

    WITH page AS MATERIALIZED (
        SELECT d.*
        FROM generate_series(v_first, v_last) AS s(second)
        CROSS JOIN LATERAL (
            SELECT t.task_id, t.start_time, t.biz_type, t.lease_until, t.next_at
            FROM timer_task AS t
            WHERE t.slot BETWEEN v_slot_first AND v_slot_last
                AND t.slot = CAST(s.second % 10000000 AS integer)
                AND t.shard = p_shard
                AND t.start_time > p_from
                AND t.start_time BETWEEN s.second * 1000 AND least(s.second * 1000 + 999, p_to)
                AND (t.start_time, t.task_id) > (p_after_time, p_after_id)
                AND t.status = 0
            ORDER BY t.slot, t.shard, t.start_time, t.task_id
            LIMIT p_limit
            -- Still pending at this place when its row is written: a task that was moved meanwhile
            -- would be hidden from the next sweep by a row that names its old place.
            FOR SHARE
        ) AS d
        LIMIT p_limit
    ), inserted AS (
        INSERT INTO timer_requeue (task_id, shard, start_time, due_at, biz_type, reason)
        SELECT g.task_id, p_shard, g.start_time,
            greatest(
                v_closed + 1, g.lease_until, g.next_at,
                v_now + 2 * p_waits[array_position(p_slow, g.biz_type)]
            ),
            g.biz_type,
            CASE WHEN g.biz_type = ANY (p_slow) THEN 'published' ELSE 'sweep' END
        FROM page AS g
        ORDER BY g.task_id
        ON CONFLICT (task_id) DO NOTHING
        RETURNING timer_requeue.task_id
    ), latest AS (
        SELECT g.start_time, g.task_id
        FROM page AS g
        ORDER BY g.start_time DESC, g.task_id DESC
        LIMIT 1
    )
    SELECT
        (SELECT count(*) FROM page),
        (SELECT count(*) FROM inserted AS i JOIN page AS g USING (task_id)
            WHERE (g.lease_until IS NULL OR g.lease_until <= v_now)
                AND g.biz_type <> ALL (p_slow)),
        (SELECT e.start_time FROM latest AS e),
        (SELECT e.task_id FROM latest AS e)
    INTO seen, added, last_time, last_id;

    UPDATE timer_pointer AS p
    SET sweep_time = greatest(
        p.sweep_time, least(
            p."current_time", CASE WHEN seen < p_limit THEN p_to ELSE last_time - 1 END
        )
    )
    WHERE p.shard = p_shard AND p.epoch = p_epoch
    RETURNING p.sweep_time INTO swept_to;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'leadership lost'
            USING ERRCODE = 'WT001', DETAIL = p_shard || ' ' || p_epoch;
    END IF;
END
$$;

CREATE FUNCTION public.wheel_time_text_v1(p_ms bigint) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$
    SELECT to_char(
        to_timestamp(p_ms / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'
    )
$$;

CREATE FUNCTION public.wheel_time_v1(p_ms bigint) RETURNS timestamp with time zone
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    SELECT CAST('1970-01-01 00:00:00+00' AS timestamptz) + p_ms * interval '1 millisecond'
$$;

CREATE FUNCTION public.wheel_uncalled_v1(p_task_ids uuid[]) RETURNS TABLE(task_id uuid, start_time bigint, revision integer, stop boolean)
    LANGUAGE plpgsql
    SET search_path TO 'public'
    AS $$
BEGIN
    RETURN QUERY
    SELECT t.task_id, t.start_time, t.revision, t.stop
    FROM wheel_find_v1(p_task_ids) AS t
    WHERE t.status = 0 AND t.failures = 0 AND t.started IS NULL;
END
$$;

CREATE FUNCTION public.wheel_under_hands_v1(p_slot_lo integer) RETURNS boolean
    LANGUAGE sql STABLE
    SET search_path TO 'public'
    AS $$
    SELECT coalesce(bool_or(
        h.last - h.first >= 9900000
        OR (h.first + o.by) % 10000000 / 100000 * 100000 = p_slot_lo
    ), false)
    FROM (
        SELECT p.sweep_time / 1000 AS first,
            greatest(wheel_closed_to_v1(p.shard), wheel_now_ms()) / 1000 + 600 AS last
        FROM timer_pointer AS p
    ) AS h
    CROSS JOIN LATERAL (
        SELECT g.by FROM generate_series(0, least(h.last - h.first, 9900000), 100000) AS g(by)
        UNION ALL
        SELECT h.last - h.first
    ) AS o(by)
$$;

CREATE FUNCTION public.wheel_unfetch_v1(p_shard smallint, p_task_ids uuid[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'public'
    SET lock_timeout TO '5s'
    SET plan_cache_mode TO 'force_custom_plan'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
DECLARE
    v_closed bigint;
    v_tids   tid[];
BEGIN
    v_closed := wheel_fence_v1(p_shard);
    SELECT array_agg(l.tid) FILTER (
        WHERE l.reason = 'published' AND l.shard = p_shard AND l.due_at > v_closed + 1
    )
    INTO v_tids
    FROM (
        SELECT w.ctid AS tid, w.shard, w.reason, w.due_at
        FROM timer_requeue AS w
        WHERE w.task_id = ANY (p_task_ids)
        ORDER BY w.task_id
        FOR UPDATE
    ) AS l;
    UPDATE timer_requeue AS q SET due_at = v_closed + 1 WHERE q.ctid = ANY (v_tids);
END
$$;

CREATE TABLE public.timer_attempt (
    task_id uuid NOT NULL,
    attempt integer NOT NULL,
    life smallint NOT NULL,
    outcome text NOT NULL COLLATE pg_catalog."C",
    due_time bigint,
    published_time bigint,
    started_time bigint,
    duration_ms integer,
    config_version bigint,
    http_status smallint,
    error_class text COLLATE pg_catalog."C",
    error text,
    response_excerpt text,
    remote_address text COLLATE pg_catalog."C",
    broker text COLLATE pg_catalog."C",
    CONSTRAINT timer_attempt_outcome_check CHECK ((outcome = ANY (ARRAY['retry'::text, 'released'::text, 'failed'::text, 'cancelled'::text, 'lost'::text, 'superseded'::text])))
);

CREATE VIEW public.timer_attempt_view AS
 SELECT task_id,
    attempt,
    life,
    outcome,
    public.wheel_time_v1(due_time) AS due_time,
    public.wheel_time_v1(published_time) AS published_time,
    public.wheel_time_v1(started_time) AS started_time,
    duration_ms,
    error_class,
    error,
    http_status,
    response_excerpt,
    remote_address,
    broker,
    config_version
   FROM public.timer_attempt a;

CREATE TABLE public.timer_audit_run (
    audit text NOT NULL COLLATE pg_catalog."C",
    begun bigint,
    ended bigint,
    took bigint,
    found integer,
    columns text[],
    sample jsonb,
    error text
);

CREATE TABLE public.timer_biz (
    biz_type text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    config jsonb NOT NULL,
    secrets jsonb DEFAULT '[]'::jsonb NOT NULL,
    create_time bigint NOT NULL,
    update_time bigint NOT NULL
);

CREATE TABLE public.timer_biz_history (
    version bigint NOT NULL,
    "time" bigint NOT NULL,
    biz_type text NOT NULL COLLATE pg_catalog."C",
    actor text NOT NULL COLLATE pg_catalog."C",
    action text NOT NULL COLLATE pg_catalog."C",
    shown jsonb
);

CREATE SEQUENCE public.timer_biz_version
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE public.timer_brake (
    one_row boolean DEFAULT true NOT NULL,
    version bigint NOT NULL,
    since bigint NOT NULL,
    actor text NOT NULL COLLATE pg_catalog."C",
    reason text,
    CONSTRAINT timer_brake_one_row_check CHECK (one_row)
);

CREATE TABLE public.timer_change (
    change_id bigint NOT NULL,
    "time" bigint NOT NULL,
    actor text NOT NULL COLLATE pg_catalog."C",
    action text NOT NULL COLLATE pg_catalog."C",
    object text NOT NULL COLLATE pg_catalog."C",
    old jsonb,
    new jsonb
);

ALTER TABLE public.timer_change ALTER COLUMN change_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.timer_change_change_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE VIEW public.timer_change_view AS
 SELECT change_id,
    to_timestamp(((("time")::numeric / 1000.0))::double precision) AS "time",
    actor,
    action,
    object,
    old,
    new
   FROM public.timer_change c;

CREATE TABLE public.timer_clock (
    one_row boolean DEFAULT true NOT NULL,
    shown_us bigint NOT NULL,
    set_at_us bigint NOT NULL,
    frozen boolean DEFAULT false NOT NULL,
    CONSTRAINT timer_clock_one_row_check CHECK (one_row)
);

CREATE SEQUENCE public.timer_closed_to_0
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE TABLE public.timer_dead (
    task_id uuid NOT NULL,
    finish_time bigint NOT NULL,
    biz_type text NOT NULL COLLATE pg_catalog."C",
    http_status smallint
);

CREATE TABLE public.timer_key (
    biz_type text NOT NULL COLLATE pg_catalog."C",
    biz_id text NOT NULL COLLATE pg_catalog."C",
    task_id uuid NOT NULL
);

CREATE TABLE public.timer_key_api (
    key_id text NOT NULL COLLATE pg_catalog."C",
    version bigint NOT NULL,
    name text NOT NULL,
    scopes text[] NOT NULL,
    biz_types text[] NOT NULL,
    secret bytea NOT NULL,
    previous bytea,
    previous_until bigint,
    expire_at bigint,
    create_time bigint NOT NULL,
    rotate_time bigint,
    revoke_time bigint
);

CREATE TABLE public.timer_lane_time (
    hour bigint NOT NULL,
    biz_type text NOT NULL COLLATE pg_catalog."C",
    reason text NOT NULL COLLATE pg_catalog."C",
    held_ms bigint NOT NULL,
    CONSTRAINT timer_lane_time_reason_check CHECK ((reason = ANY (ARRAY['paused'::text, 'breaker_open'::text, 'rate_limited'::text, 'concurrency'::text])))
);

CREATE TABLE public.timer_ledger (
    quarter bigint NOT NULL,
    submitted bigint NOT NULL,
    moved_in bigint NOT NULL,
    moved_out bigint NOT NULL,
    revived bigint NOT NULL,
    revived_failed bigint NOT NULL,
    finished bigint NOT NULL,
    failed bigint NOT NULL,
    cancelled bigint NOT NULL,
    purged bigint NOT NULL,
    reaped_finished bigint NOT NULL,
    reaped_failed bigint NOT NULL,
    reaped_cancelled bigint NOT NULL,
    biz_type text NOT NULL COLLATE pg_catalog."C"
)
WITH (fillfactor='70');

CREATE TABLE public.timer_ledger_day (
    day bigint NOT NULL,
    submitted bigint NOT NULL,
    moved_in bigint NOT NULL,
    moved_out bigint NOT NULL,
    revived bigint NOT NULL,
    revived_failed bigint NOT NULL,
    finished bigint NOT NULL,
    failed bigint NOT NULL,
    cancelled bigint NOT NULL,
    purged bigint NOT NULL,
    reaped_finished bigint NOT NULL,
    reaped_failed bigint NOT NULL,
    reaped_cancelled bigint NOT NULL,
    biz_type text NOT NULL COLLATE pg_catalog."C"
)
WITH (fillfactor='70');

CREATE TABLE public.timer_ledger_delta (
    delta_id bigint NOT NULL,
    quarter bigint NOT NULL,
    day bigint NOT NULL,
    edges integer NOT NULL,
    tasks integer NOT NULL,
    biz_type text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT timer_ledger_delta_edges_check CHECK (((edges >= 1) AND (edges <= 4095))),
    CONSTRAINT timer_ledger_delta_tasks_check CHECK ((tasks > 0))
)
WITH (autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.timer_ledger_mark (
    one_row boolean DEFAULT true NOT NULL,
    folded_to bigint DEFAULT 0 NOT NULL,
    high_to bigint DEFAULT 0 NOT NULL,
    open text[] DEFAULT '{}'::text[] NOT NULL,
    CONSTRAINT timer_ledger_mark_one_row_check CHECK (one_row)
)
WITH (fillfactor='10');

CREATE VIEW public.timer_ledger_unfolded AS
 SELECT biz_type,
    quarter,
    day,
    (tasks * (edges & 1)) AS submitted,
    (tasks * ((edges >> 1) & 1)) AS moved_in,
    (tasks * ((edges >> 2) & 1)) AS moved_out,
    (tasks * ((edges >> 3) & 1)) AS revived,
    (tasks * ((edges >> 4) & 1)) AS revived_failed,
    (tasks * ((edges >> 5) & 1)) AS finished,
    (tasks * ((edges >> 6) & 1)) AS failed,
    (tasks * ((edges >> 7) & 1)) AS cancelled,
    (tasks * ((edges >> 8) & 1)) AS purged,
    (tasks * ((edges >> 9) & 1)) AS reaped_finished,
    (tasks * ((edges >> 10) & 1)) AS reaped_failed,
    (tasks * ((edges >> 11) & 1)) AS reaped_cancelled
   FROM public.timer_ledger_delta d
  WHERE (delta_id > ( SELECT m.folded_to
           FROM public.timer_ledger_mark m));

CREATE VIEW public.timer_ledger_day_view AS
 SELECT biz_type,
    ((public.wheel_time_v1(day) AT TIME ZONE 'UTC'::text))::date AS day,
    submitted,
    moved_in,
    moved_out,
    revived,
    finished,
    failed,
    cancelled,
    purged,
    (((((((submitted + moved_in) + revived) - moved_out) - finished) - failed) - cancelled) - purged) AS pending,
    reaped_finished,
    reaped_failed,
    reaped_cancelled
   FROM ( SELECT l.biz_type,
            l.day,
            (sum(l.submitted))::bigint AS submitted,
            (sum(l.moved_in))::bigint AS moved_in,
            (sum(l.moved_out))::bigint AS moved_out,
            (sum(l.revived))::bigint AS revived,
            (sum(l.finished))::bigint AS finished,
            (sum(l.failed))::bigint AS failed,
            (sum(l.cancelled))::bigint AS cancelled,
            (sum(l.purged))::bigint AS purged,
            (sum(l.reaped_finished))::bigint AS reaped_finished,
            (sum(l.reaped_failed))::bigint AS reaped_failed,
            (sum(l.reaped_cancelled))::bigint AS reaped_cancelled
           FROM ( SELECT f.biz_type,
                    f.day,
                    f.submitted,
                    f.moved_in,
                    f.moved_out,
                    f.revived,
                    f.finished,
                    f.failed,
                    f.cancelled,
                    f.purged,
                    f.reaped_finished,
                    f.reaped_failed,
                    f.reaped_cancelled
                   FROM public.timer_ledger_day f
                UNION ALL
                 SELECT u.biz_type,
                    u.day,
                    u.submitted,
                    u.moved_in,
                    u.moved_out,
                    u.revived,
                    u.finished,
                    u.failed,
                    u.cancelled,
                    u.purged,
                    u.reaped_finished,
                    u.reaped_failed,
                    u.reaped_cancelled
                   FROM public.timer_ledger_unfolded u) l
          GROUP BY l.biz_type, l.day) s;

ALTER TABLE public.timer_ledger_delta ALTER COLUMN delta_id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.timer_ledger_delta_delta_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.timer_ledger_quarter (
    quarter bigint NOT NULL,
    pending bigint NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE public.timer_ledger_total (
    biz_type text NOT NULL COLLATE pg_catalog."C",
    pending bigint NOT NULL,
    dead bigint NOT NULL
)
WITH (fillfactor='50');

CREATE VIEW public.timer_ledger_view AS
 SELECT biz_type,
    public.wheel_time_v1(quarter) AS quarter,
    submitted,
    moved_in,
    moved_out,
    revived,
    finished,
    failed,
    cancelled,
    purged,
    (((((((submitted + moved_in) + revived) - moved_out) - finished) - failed) - cancelled) - purged) AS pending,
    reaped_finished,
    reaped_failed,
    reaped_cancelled
   FROM ( SELECT l.biz_type,
            l.quarter,
            (sum(l.submitted))::bigint AS submitted,
            (sum(l.moved_in))::bigint AS moved_in,
            (sum(l.moved_out))::bigint AS moved_out,
            (sum(l.revived))::bigint AS revived,
            (sum(l.finished))::bigint AS finished,
            (sum(l.failed))::bigint AS failed,
            (sum(l.cancelled))::bigint AS cancelled,
            (sum(l.purged))::bigint AS purged,
            (sum(l.reaped_finished))::bigint AS reaped_finished,
            (sum(l.reaped_failed))::bigint AS reaped_failed,
            (sum(l.reaped_cancelled))::bigint AS reaped_cancelled
           FROM ( SELECT f.biz_type,
                    f.quarter,
                    f.submitted,
                    f.moved_in,
                    f.moved_out,
                    f.revived,
                    f.finished,
                    f.failed,
                    f.cancelled,
                    f.purged,
                    f.reaped_finished,
                    f.reaped_failed,
                    f.reaped_cancelled
                   FROM public.timer_ledger f
                UNION ALL
                 SELECT u.biz_type,
                    u.quarter,
                    u.submitted,
                    u.moved_in,
                    u.moved_out,
                    u.revived,
                    u.finished,
                    u.failed,
                    u.cancelled,
                    u.purged,
                    u.reaped_finished,
                    u.reaped_failed,
                    u.reaped_cancelled
                   FROM public.timer_ledger_unfolded u) l
          GROUP BY l.biz_type, l.quarter) s;

CREATE TABLE public.timer_meta (
    one_row boolean DEFAULT true NOT NULL,
    cluster_id uuid DEFAULT gen_random_uuid() NOT NULL,
    shards smallint NOT NULL,
    instance text COLLATE pg_catalog."C",
    restored_at bigint,
    jumps_accepted bigint DEFAULT 0 NOT NULL,
    jump_ahead bigint DEFAULT 0 NOT NULL,
    CONSTRAINT timer_meta_one_row_check CHECK (one_row),
    CONSTRAINT timer_meta_shards_check CHECK (((shards >= 1) AND (shards <= 4096)))
);

CREATE TABLE public.timer_migration (
    number integer NOT NULL,
    name text NOT NULL,
    checksum text NOT NULL,
    breaking boolean NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);

CREATE TABLE public.timer_node (
    node text NOT NULL COLLATE pg_catalog."C",
    role text NOT NULL COLLATE pg_catalog."C",
    version text NOT NULL,
    started bigint NOT NULL,
    heartbeat bigint NOT NULL,
    clock_jump bigint,
    CONSTRAINT timer_node_role_check CHECK ((role = ANY (ARRAY['daemon'::text, 'broker'::text])))
);

CREATE TABLE public.timer_occurrence (
    start_time bigint NOT NULL,
    scheduled_time bigint NOT NULL,
    look_at bigint NOT NULL,
    schedule_id uuid NOT NULL,
    task_id uuid NOT NULL,
    shard smallint NOT NULL
);

CREATE TABLE public.timer_operation (
    operation_id uuid NOT NULL,
    create_time bigint NOT NULL,
    finish_time bigint,
    matched bigint DEFAULT 0 NOT NULL,
    done bigint DEFAULT 0 NOT NULL,
    skipped bigint DEFAULT 0 NOT NULL,
    errors bigint DEFAULT 0 NOT NULL,
    shift_ms bigint,
    rate double precision,
    over_ms bigint,
    step integer DEFAULT 0 NOT NULL,
    action text NOT NULL COLLATE pg_catalog."C",
    state text DEFAULT 'running'::text NOT NULL COLLATE pg_catalog."C",
    actor text NOT NULL COLLATE pg_catalog."C",
    error text,
    filter jsonb NOT NULL,
    key jsonb,
    CONSTRAINT timer_operation_action_check CHECK ((action = ANY (ARRAY['cancel'::text, 'shift'::text, 'replay'::text, 'run'::text, 'purge'::text]))),
    CONSTRAINT timer_operation_end CHECK (((state = 'running'::text) = (finish_time IS NULL))),
    CONSTRAINT timer_operation_state_check CHECK ((state = ANY (ARRAY['running'::text, 'done'::text, 'stopped'::text, 'failed'::text])))
);

CREATE VIEW public.timer_payload_view AS
 SELECT task_id,
    biz_type,
    biz_id,
    content_type,
    biz_data,
    slot
   FROM public.timer_task t
  WHERE (status <> 4);

CREATE TABLE public.timer_pointer (
    shard smallint NOT NULL,
    "current_time" bigint NOT NULL,
    sweep_time bigint NOT NULL,
    reap_time bigint NOT NULL,
    leader text,
    epoch bigint DEFAULT 0 NOT NULL,
    lease_until bigint DEFAULT 0 NOT NULL,
    is_locked boolean DEFAULT false NOT NULL,
    CONSTRAINT timer_pointer_order CHECK ((sweep_time <= "current_time")),
    CONSTRAINT timer_pointer_shard_check CHECK (((shard >= 0) AND (shard <= 4095)))
)
WITH (fillfactor='10');

CREATE TABLE public.timer_requeue (
    task_id uuid NOT NULL,
    due_at bigint NOT NULL,
    start_time bigint NOT NULL,
    shard smallint NOT NULL,
    biz_type text NOT NULL COLLATE pg_catalog."C",
    reason text NOT NULL COLLATE pg_catalog."C",
    CONSTRAINT timer_requeue_reason_check CHECK ((reason = ANY (ARRAY['near'::text, 'retry'::text, 'release'::text, 'sweep'::text, 'overflow'::text, 'run'::text, 'replay'::text, 'held'::text, 'published'::text, 'reserved'::text])))
)
WITH (fillfactor='70', autovacuum_vacuum_scale_factor='0.02', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='0');

CREATE TABLE public.timer_schedule (
    next_time bigint,
    version bigint NOT NULL,
    create_time bigint NOT NULL,
    update_time bigint NOT NULL,
    start_after bigint,
    end_before bigint,
    misfire_after bigint NOT NULL,
    jitter bigint NOT NULL,
    shard smallint NOT NULL,
    enabled boolean NOT NULL,
    schedule_id uuid NOT NULL,
    running uuid,
    biz_type text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    cron text NOT NULL,
    timezone text NOT NULL,
    misfire text NOT NULL COLLATE pg_catalog."C",
    overlap text NOT NULL COLLATE pg_catalog."C",
    content_type text,
    callback jsonb,
    biz_data bytea,
    CONSTRAINT timer_schedule_misfire_check CHECK ((misfire = ANY (ARRAY['once'::text, 'skip'::text, 'all'::text]))),
    CONSTRAINT timer_schedule_overlap_check CHECK ((overlap = ANY (ARRAY['allow'::text, 'skip'::text])))
)
WITH (fillfactor='70');

CREATE VIEW public.timer_schedule_view AS
 SELECT schedule_id,
    biz_type,
    name,
    version,
    cron,
    timezone,
    enabled,
    public.wheel_time_v1(next_time) AS next_time,
    public.wheel_time_v1(start_after) AS start_after,
    public.wheel_time_v1(end_before) AS end_before,
    misfire,
    misfire_after AS misfire_after_ms,
    overlap,
    jitter AS jitter_ms,
    running,
    content_type,
    public.wheel_masked_v1(callback) AS callback,
    public.wheel_time_v1(create_time) AS create_time,
    public.wheel_time_v1(update_time) AS update_time,
    shard
   FROM public.timer_schedule s;

CREATE TABLE public.timer_task_00 (
    start_time bigint CONSTRAINT timer_task_start_time_not_null NOT NULL,
    create_time bigint CONSTRAINT timer_task_create_time_not_null NOT NULL,
    first_attempt_time bigint,
    lease_until bigint,
    next_at bigint,
    finish_time bigint,
    expire_at bigint,
    started bigint,
    published bigint,
    moved_to bigint,
    renew_time bigint,
    max_age bigint,
    scheduled_time bigint,
    slot integer CONSTRAINT timer_task_slot_not_null NOT NULL,
    attempts integer DEFAULT 0 CONSTRAINT timer_task_attempts_not_null NOT NULL,
    revision integer DEFAULT 1 CONSTRAINT timer_task_revision_not_null NOT NULL,
    duration integer,
    shard smallint CONSTRAINT timer_task_shard_not_null NOT NULL,
    status smallint DEFAULT 0 CONSTRAINT timer_task_status_not_null NOT NULL,
    failures smallint DEFAULT 0 CONSTRAINT timer_task_failures_not_null NOT NULL,
    life smallint DEFAULT 1 CONSTRAINT timer_task_life_not_null NOT NULL,
    http_status smallint,
    stop boolean DEFAULT false CONSTRAINT timer_task_stop_not_null NOT NULL,
    task_id uuid CONSTRAINT timer_task_task_id_not_null NOT NULL,
    schedule_id uuid,
    biz_type text CONSTRAINT timer_task_biz_type_not_null NOT NULL COLLATE pg_catalog."C",
    biz_id text COLLATE pg_catalog."C",
    content_type text,
    last_error text,
    traceparent text,
    callback jsonb,
    retry jsonb,
    biz_data bytea,
    CONSTRAINT timer_task_biz_id CHECK (((octet_length(biz_id) >= 1) AND (octet_length(biz_id) <= 256))),
    CONSTRAINT timer_task_counts CHECK (((attempts >= 0) AND (failures >= 0) AND (revision >= 1) AND (life >= 1) AND (shard >= 0))),
    CONSTRAINT timer_task_slot CHECK ((slot = ((start_time / 1000) % (10000000)::bigint))),
    CONSTRAINT timer_task_start_time CHECK (((start_time >= '946684800000'::bigint) AND (start_time <= '253402300799999'::bigint))),
    CONSTRAINT timer_task_status CHECK (
CASE status
    WHEN 0 THEN ((finish_time IS NULL) AND (expire_at IS NULL) AND (moved_to IS NULL))
    WHEN 4 THEN ((moved_to IS NOT NULL) AND (expire_at IS NULL) AND (lease_until IS NULL))
    ELSE (((status >= 1) AND (status <= 3)) AND (finish_time IS NOT NULL) AND (expire_at IS NOT NULL) AND (lease_until IS NULL) AND (next_at IS NULL) AND (moved_to IS NULL))
END)
)
WITH (fillfactor='70');

CREATE VIEW public.timer_task_view AS
 SELECT t.task_id,
    t.biz_type,
    t.biz_id,
        CASE
            WHEN (t.status = 1) THEN 'finished'::text
            WHEN (t.status = 2) THEN 'failed'::text
            WHEN (t.status = 3) THEN 'cancelled'::text
            WHEN (t.lease_until > n.now_ms) THEN 'delivering'::text
            ELSE 'pending'::text
        END AS status,
    public.wheel_time_v1(t.start_time) AS start_time,
    public.wheel_time_v1(t.create_time) AS create_time,
    t.life,
    t.revision,
    t.attempts,
    t.failures,
    t.stop,
    public.wheel_time_v1(t.first_attempt_time) AS first_attempt_time,
        CASE
            WHEN (t.status = 0) THEN public.wheel_time_v1(GREATEST(t.next_at, t.start_time))
            ELSE NULL::timestamp with time zone
        END AS next_attempt_time,
    public.wheel_time_v1(t.lease_until) AS lease_until,
    public.wheel_time_v1(t.finish_time) AS finish_time,
    public.wheel_time_v1(t.expire_at) AS expire_time,
    t.http_status,
    t.last_error,
    public.wheel_time_v1(t.published) AS published_time,
    public.wheel_time_v1(t.started) AS started_time,
    t.duration AS duration_ms,
    t.content_type,
    public.wheel_masked_v1(t.callback) AS callback,
    t.retry,
    t.max_age AS max_age_ms,
    t.schedule_id,
    public.wheel_time_v1(t.scheduled_time) AS scheduled_time,
    t.slot,
    t.shard
   FROM (public.timer_task t
     CROSS JOIN ( SELECT public.wheel_now_ms() AS now_ms) n)
  WHERE (t.status <> 4);

ALTER TABLE ONLY public.timer_task ATTACH PARTITION public.timer_task_00 FOR VALUES FROM (0) TO (100000);

ALTER TABLE ONLY public.timer_attempt
    ADD CONSTRAINT timer_attempt_pkey PRIMARY KEY (task_id, attempt);

ALTER TABLE ONLY public.timer_audit_run
    ADD CONSTRAINT timer_audit_run_pkey PRIMARY KEY (audit);

ALTER TABLE ONLY public.timer_biz_history
    ADD CONSTRAINT timer_biz_history_pkey PRIMARY KEY (version);

ALTER TABLE ONLY public.timer_biz
    ADD CONSTRAINT timer_biz_pkey PRIMARY KEY (biz_type);

ALTER TABLE ONLY public.timer_biz
    ADD CONSTRAINT timer_biz_version_key UNIQUE (version);

ALTER TABLE ONLY public.timer_brake
    ADD CONSTRAINT timer_brake_pkey PRIMARY KEY (one_row);

ALTER TABLE ONLY public.timer_change
    ADD CONSTRAINT timer_change_pkey PRIMARY KEY ("time", change_id);

ALTER TABLE ONLY public.timer_clock
    ADD CONSTRAINT timer_clock_pkey PRIMARY KEY (one_row);

ALTER TABLE ONLY public.timer_dead
    ADD CONSTRAINT timer_dead_pkey PRIMARY KEY (task_id);

ALTER TABLE ONLY public.timer_key_api
    ADD CONSTRAINT timer_key_api_pkey PRIMARY KEY (key_id);

ALTER TABLE ONLY public.timer_key_api
    ADD CONSTRAINT timer_key_api_version_key UNIQUE (version);

ALTER TABLE ONLY public.timer_key
    ADD CONSTRAINT timer_key_pkey PRIMARY KEY (biz_type, biz_id);

ALTER TABLE ONLY public.timer_lane_time
    ADD CONSTRAINT timer_lane_time_pkey PRIMARY KEY (hour, biz_type, reason);

ALTER TABLE ONLY public.timer_ledger_day
    ADD CONSTRAINT timer_ledger_day_pkey PRIMARY KEY (biz_type, day);

ALTER TABLE ONLY public.timer_ledger_delta
    ADD CONSTRAINT timer_ledger_delta_pkey PRIMARY KEY (delta_id);

ALTER TABLE ONLY public.timer_ledger_mark
    ADD CONSTRAINT timer_ledger_mark_pkey PRIMARY KEY (one_row);

ALTER TABLE ONLY public.timer_ledger
    ADD CONSTRAINT timer_ledger_pkey PRIMARY KEY (biz_type, quarter);

ALTER TABLE ONLY public.timer_ledger_quarter
    ADD CONSTRAINT timer_ledger_quarter_pkey PRIMARY KEY (quarter);

ALTER TABLE ONLY public.timer_ledger_total
    ADD CONSTRAINT timer_ledger_total_pkey PRIMARY KEY (biz_type);

ALTER TABLE ONLY public.timer_meta
    ADD CONSTRAINT timer_meta_pkey PRIMARY KEY (one_row);

ALTER TABLE ONLY public.timer_migration
    ADD CONSTRAINT timer_migration_pkey PRIMARY KEY (number);

ALTER TABLE ONLY public.timer_node
    ADD CONSTRAINT timer_node_pkey PRIMARY KEY (node);

ALTER TABLE ONLY public.timer_occurrence
    ADD CONSTRAINT timer_occurrence_pkey PRIMARY KEY (schedule_id, start_time, task_id);

ALTER TABLE ONLY public.timer_operation
    ADD CONSTRAINT timer_operation_pkey PRIMARY KEY (operation_id);

ALTER TABLE ONLY public.timer_pointer
    ADD CONSTRAINT timer_pointer_pkey PRIMARY KEY (shard);

ALTER TABLE ONLY public.timer_requeue
    ADD CONSTRAINT timer_requeue_pkey PRIMARY KEY (task_id);

ALTER TABLE ONLY public.timer_schedule
    ADD CONSTRAINT timer_schedule_biz_type_name_key UNIQUE (biz_type, name);

ALTER TABLE ONLY public.timer_schedule
    ADD CONSTRAINT timer_schedule_pkey PRIMARY KEY (schedule_id);

ALTER TABLE ONLY public.timer_task
    ADD CONSTRAINT timer_task_pkey PRIMARY KEY (slot, shard, start_time, task_id);

ALTER TABLE ONLY public.timer_task_00
    ADD CONSTRAINT timer_task_00_pkey PRIMARY KEY (slot, shard, start_time, task_id);

CREATE INDEX timer_biz_history_biz_type ON public.timer_biz_history USING btree (biz_type, version);

CREATE INDEX timer_change_object ON public.timer_change USING btree (object, "time", change_id);

CREATE INDEX timer_dead_finish ON public.timer_dead USING btree (biz_type, finish_time, task_id);

CREATE INDEX timer_dead_time ON public.timer_dead USING btree (finish_time, task_id);

CREATE INDEX timer_occurrence_look ON public.timer_occurrence USING btree (shard, look_at);

CREATE INDEX timer_operation_running ON public.timer_operation USING btree (create_time) WHERE (state = 'running'::text);

CREATE INDEX timer_operation_time ON public.timer_operation USING btree (create_time, operation_id);

CREATE INDEX timer_requeue_due ON public.timer_requeue USING btree (shard, due_at, uuid_send(task_id));

CREATE INDEX timer_requeue_held ON public.timer_requeue USING btree (biz_type, shard, due_at, task_id) WHERE (reason = 'held'::text);

CREATE INDEX timer_requeue_overflow ON public.timer_requeue USING btree (biz_type, shard, due_at, task_id) WHERE (reason = 'overflow'::text);

CREATE INDEX timer_requeue_reserved ON public.timer_requeue USING btree (biz_type, due_at) WHERE (reason = 'reserved'::text);

CREATE INDEX timer_requeue_retry ON public.timer_requeue USING btree (biz_type, shard, due_at, task_id) WHERE (reason = 'retry'::text);

CREATE INDEX timer_schedule_next ON public.timer_schedule USING btree (shard, next_time) WHERE enabled;

ALTER INDEX public.timer_task_pkey ATTACH PARTITION public.timer_task_00_pkey;
