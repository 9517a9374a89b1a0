-- breaking: no
-- Locks: creates new tables, functions and a view only.
--
-- The configuration centre: versions of the biz_types, and the brake of the whole wheel.

-- Every version there was of every biz_type, as a GET shows it: no secrets. shown: null where the
-- biz_type was deleted. Versions of all biz_types, their deletions and the brake come from one
-- sequence and commit in its order, so that "has anything changed?" is one look at the highest.
CREATE TABLE timer_biz_history (
    version  bigint PRIMARY KEY,
    time     bigint NOT NULL,
    biz_type text   COLLATE "C" NOT NULL,
    actor    text   COLLATE "C" NOT NULL,
    action   text   COLLATE "C" NOT NULL,
    shown    jsonb
);
CREATE INDEX timer_biz_history_biz_type ON timer_biz_history (biz_type, version);

-- The brake: at most one row. reason null: it is off. Nothing new is called while it is on.
CREATE TABLE timer_brake (
    one_row boolean PRIMARY KEY DEFAULT true CHECK (one_row),
    version bigint  NOT NULL,
    since   bigint  NOT NULL,
    actor   text    COLLATE "C" NOT NULL,
    reason  text
);

-- What was changed by the API, for people: times as timestamptz.
CREATE VIEW timer_change_view AS
SELECT
    c.change_id,
    to_timestamp(c.time / 1000.0) AS time,
    c.actor,
    c.action,
    c.object,
    c.old,
    c.new
FROM timer_change AS c;

-- Be the one writer of the configuration until the end of the transaction. What is read after it
-- is what the writer before has left, so: read committed only.
CREATE FUNCTION wheel_configuration_turn_v1() RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'the configuration needs isolation level read committed'
            USING ERRCODE = 'WT002';
    END IF;
    PERFORM pg_advisory_xact_lock(wheel_lock_class('timer_biz'), 0);
END
$$;

-- Write several biz_types, all or none, with their versions and changes.
-- p_changes: [{biz_type, expected (the version it has; null: there is none), config, secrets,
-- shown, action, old, new}], each biz_type once.
-- Out: versions, in order; null where one of them is not at its expected version (somebody was
-- faster: read again). unknown: the on_failed that names no biz_type; then nothing was written.
CREATE FUNCTION wheel_biz_put_v1(
    p_actor text, p_changes jsonb, OUT versions bigint[], OUT unknown text
)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
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

-- Delete a biz_type that is at a version, and its schedules; its tasks are not looked at.
-- Out: deleted, the version of the deletion; null where it is not at p_expected any more, or where
-- another biz_type, named_by, names it in on_failed.
CREATE FUNCTION wheel_biz_delete_v1(
    p_actor text, p_biz_type text, p_expected bigint, p_old jsonb,
    OUT deleted bigint, OUT named_by text
)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
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

-- Put the brake on, for a reason, or take it off (null). What stands as asked is not written again.
-- Out: the brake's row as it stands now; nulls where it was never on.
CREATE FUNCTION wheel_brake_v1(
    p_actor text, p_reason text, OUT since bigint, OUT actor text, OUT reason text
)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
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

-- What became of the tasks of a biz_type that are due in [p_from, p_to), in ranges of slots
-- [first, after). At most p_look rows, of all biz_types together, are read. Its settings keep it on
-- the primary key: without statistics the planner takes a fresh hot slot for nearly empty.
CREATE FUNCTION wheel_biz_window_v1(
    p_biz_type text, p_firsts integer[], p_afters integer[], p_from bigint, p_to bigint,
    p_look integer, p_now bigint,
    OUT looked bigint, OUT due bigint, OUT pending bigint, OUT delivering bigint,
    OUT finished bigint, OUT failed bigint, OUT cancelled bigint, OUT called bigint,
    OUT again bigint, OUT lateness_p50 bigint, OUT lateness_p99 bigint
)
LANGUAGE sql STABLE
SET search_path FROM CURRENT
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
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
