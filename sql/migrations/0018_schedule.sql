-- breaking: no
-- Locks: none; creates tables, functions and a view.
--
-- Schedules: timers that come back by a calendar. What a cron means is computed outside
-- (wheel_timer/cron.py); here are its occurrences, which are tasks like any other.
--
-- All occurrences of a schedule live on its shard, so what changes it and what it has put on the
-- wheel change in one transaction. Whoever writes either locks the schedule's row first, right
-- behind the fence: a daemon that has computed occurrences of an older version writes none of them.
-- Lock order: fence, the biz_type's row, schedules by id, task rows by place, requeue rows.

-- next_time: the first moment by the cron of which nothing was decided yet; null: none comes.
-- running: under overlap `skip`, the last occurrence that was called, or is to be.
-- misfire_after, jitter: ms.
CREATE TABLE timer_schedule (
    next_time     bigint,
    version       bigint   NOT NULL,
    create_time   bigint   NOT NULL,
    update_time   bigint   NOT NULL,
    start_after   bigint,
    end_before    bigint,
    misfire_after bigint   NOT NULL,
    jitter        bigint   NOT NULL,
    shard         smallint NOT NULL,
    enabled       boolean  NOT NULL,
    schedule_id   uuid     PRIMARY KEY,
    running       uuid,
    biz_type      text     COLLATE "C" NOT NULL,
    name          text     COLLATE "C" NOT NULL,
    cron          text     NOT NULL,
    timezone      text     NOT NULL,
    misfire       text     COLLATE "C" NOT NULL CHECK (misfire IN ('once', 'skip', 'all')),
    overlap       text     COLLATE "C" NOT NULL CHECK (overlap IN ('allow', 'skip')),
    content_type  text,
    callback      jsonb,
    biz_data      bytea,
    UNIQUE (biz_type, name)
) WITH (fillfactor = 70);
CREATE INDEX timer_schedule_next ON timer_schedule (shard, next_time) WHERE enabled;

-- Occurrences on the wheel that may not have been called yet: what is to be taken back when their
-- schedule changes. A row is forgotten some time after its task was called; look_at: when to see
-- whether it was.
CREATE TABLE timer_occurrence (
    start_time     bigint   NOT NULL,
    scheduled_time bigint   NOT NULL,
    look_at        bigint   NOT NULL,
    schedule_id    uuid     NOT NULL,
    task_id        uuid     NOT NULL,
    shard          smallint NOT NULL,
    PRIMARY KEY (schedule_id, start_time, task_id)
);
CREATE INDEX timer_occurrence_look ON timer_occurrence (shard, look_at);

-- Schedules for people: times as timestamptz, no payload, headers masked.
CREATE VIEW timer_schedule_view AS
SELECT
    s.schedule_id,
    s.biz_type,
    s.name,
    s.version,
    s.cron,
    s.timezone,
    s.enabled,
    wheel_time_v1(s.next_time) AS next_time,
    wheel_time_v1(s.start_after) AS start_after,
    wheel_time_v1(s.end_before) AS end_before,
    s.misfire,
    s.misfire_after AS misfire_after_ms,
    s.overlap,
    s.jitter AS jitter_ms,
    s.running,
    s.content_type,
    wheel_masked_v1(s.callback) AS callback,
    wheel_time_v1(s.create_time) AS create_time,
    wheel_time_v1(s.update_time) AS update_time,
    s.shard
FROM timer_schedule AS s;

-- Of these tasks those that nobody was called for yet, wherever they are now. One in a call counts
-- as not called: it may be given back unstarted.
CREATE FUNCTION wheel_uncalled_v1(p_task_ids uuid[]) RETURNS TABLE (
    task_id uuid, start_time bigint, revision integer, stop boolean
)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN QUERY
    SELECT t.task_id, t.start_time, t.revision, t.stop
    FROM wheel_find_v1(p_task_ids) AS t
    WHERE t.status = 0 AND t.failures = 0 AND t.started IS NULL;
END
$$;

-- Take back occurrences of a schedule that were not called yet: those scheduled after p_after, or
-- all of them (null), at most p_limit, the earliest first. One that is being claimed right now is
-- stopped: it gets no attempt but the one that may be under way.
-- Out: is_more: some are left; under_way: how many were being called.
-- The caller is in the fence and has locked the schedule.
-- Edge:  pending -> cancelled
-- Locks: task rows by place and requeue rows by task_id, a thousand at a time
CREATE FUNCTION wheel_schedule_take_v1(
    p_shard smallint, p_schedule_id uuid, p_after bigint, p_limit integer,
    p_retention_ms bigint, p_lookahead_ms bigint,
    OUT is_more boolean, OUT under_way bigint
)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
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

-- Put occurrences on the wheel, in the order given, at most 1,000, with what their schedules say
-- they carry. Out: the task_ids of those that are near, which the caller publishes.
-- Whatever the max_pending of their biz_types: there is nobody who could be told of a refusal.
-- The caller is in the fence and has locked the schedules.
-- Edge:  none -> pending
CREATE FUNCTION wheel_schedule_put_on_v1(
    p_shard smallint, p_schedule_ids uuid[], p_task_ids uuid[], p_start_times bigint[],
    p_scheduled_times bigint[], p_lookahead_ms bigint
) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
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

-- Create a schedule, or change the one that is at version p_expected (null: there is none yet);
-- take back what the version before has put on the wheel, and begin with what the new one brings.
--
-- In:  p_settings: the columns cron, timezone, enabled, start_after, end_before, misfire,
--      misfire_after, overlap, jitter, content_type, callback. p_now: the moment of the change, by
--      the database's clock as the caller knows it. p_cut: up to here the version
--      before goes on, from there on this one; null: nothing of it goes on. p_limit: what is taken
--      back at most; is there more, only that is done, and the caller comes again.
--      p_next_time, p_task_ids, ...: its first occurrences, and where the rest begins.
-- Out: verdict: written; more; overtaken (it has another version); unknown (no such biz_type).
--      near: as wheel_schedule_put_on_v1. under_way: as wheel_schedule_take_v1
-- Locks: fence shared, the biz_type (KEY SHARE), the schedule, then as the two functions above
CREATE FUNCTION wheel_schedule_put_v1(
    p_shard smallint, p_schedule_id uuid, p_expected bigint, p_biz_type text, p_name text,
    p_settings jsonb, p_biz_data bytea, p_now bigint, p_cut bigint, p_limit integer,
    p_next_time bigint,
    p_task_ids uuid[], p_start_times bigint[], p_scheduled_times bigint[],
    p_actor text, p_action text, p_old jsonb, p_new jsonb,
    p_retention_ms bigint, p_lookahead_ms bigint,
    OUT verdict text, OUT near uuid[], OUT under_way bigint
)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '5s'
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

-- Delete the schedule that is at version p_expected; what it has put on the wheel and nobody was
-- called for is taken back. Out and locks as wheel_schedule_put_v1.
CREATE FUNCTION wheel_schedule_delete_v1(
    p_shard smallint, p_schedule_id uuid, p_expected bigint, p_limit integer,
    p_actor text, p_old jsonb, p_retention_ms bigint, p_lookahead_ms bigint,
    OUT verdict text, OUT under_way bigint
)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '5s'
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

-- Put the occurrences on the wheel that a daemon has computed for some schedules, and note how far
-- that goes.
--
-- In:  for each schedule, each once: its version and next_time as they were read, and the next_time
--      from now on; for each occurrence, at most 1,000: its schedule as a position among these.
-- Out: near: as wheel_schedule_put_on_v1; moved: the schedules. One that has changed since, or that
--      somebody else was at, is left out with all of its occurrences.
-- Locks: fence shared, schedules by id, then as wheel_submit_v1
CREATE FUNCTION wheel_schedule_generate_v1(
    p_shard smallint, p_schedule_ids uuid[], p_versions bigint[], p_seen bigint[],
    p_next_times bigint[], p_owners integer[], p_task_ids uuid[], p_start_times bigint[],
    p_scheduled_times bigint[], p_lookahead_ms bigint,
    OUT near uuid[], OUT moved uuid[]
)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '5s'
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

-- One more occurrence of a schedule, now, whatever its cron and whether it is enabled.
-- Out: whether there is such a schedule, and whether the task is near: the caller publishes it.
-- Locks: fence shared, the schedule (SHARE), then as wheel_submit_v1
CREATE FUNCTION wheel_schedule_run_v1(
    p_shard smallint, p_schedule_id uuid, p_task_id uuid, p_now bigint, p_actor text,
    p_lookahead_ms bigint, OUT is_found boolean, OUT is_near boolean
)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '5s'
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

-- Of these occurrences, claimed just now, say which may be called: under overlap `skip` none while
-- the one called before it is not settled. One a row; of one schedule in the order of their
-- moments. Returns the task_ids that are to be skipped.
-- Locks: schedules by id
CREATE FUNCTION wheel_schedule_admit_v1(p_schedule_ids uuid[], p_task_ids uuid[]) RETURNS uuid[]
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '5s'
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

-- Forget occurrences of which somebody was called, or that are gone; of the others look again in
-- ten minutes. Returns how many were looked at, at most p_limit.
-- Locks: their rows in timer_occurrence, those that nobody else has
CREATE FUNCTION wheel_schedule_forget_v1(p_shard smallint, p_limit integer) RETURNS integer
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
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
