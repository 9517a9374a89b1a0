-- breaking: no
-- Locks: none; creates a type and functions.
--
-- Change of mind: cancel, stop, discard, patch, reschedule, run now, replay, and what a submit does
-- to the task that holds its biz_id. All of them are one function over a batch, one verdict a task.

-- A moment as the API writes it: RFC 3339, UTC, with milliseconds.
CREATE FUNCTION wheel_time_text_v1(p_ms bigint) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT to_char(
        to_timestamp(p_ms / 1000.0) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'
    )
$$;

-- Lock the rows at these places of one shard, in place order over all partitions, and say what they
-- are. A place that is named twice is locked once.
CREATE FUNCTION wheel_lock_v1(
    p_shard smallint, p_task_ids uuid[], p_start_times bigint[]
) RETURNS TABLE (
    task_id uuid, start_time bigint, tid tid, status smallint, moved_to bigint, revision integer,
    attempts integer, life smallint, lease_until bigint, stop boolean, biz_type text,
    create_time bigint, is_erased boolean
)
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
$$;

-- One change on its way through wheel_change_v1.
CREATE TYPE wheel_change AS (
    position     integer,
    verb         text,
    task_id      uuid,
    from_time    bigint,    -- the row's place
    home         bigint,
    to_time      bigint,    -- where it goes; null where it is not put on the wheel anew
    due          bigint,    -- for a row that queues behind first attempts; null: published at once
    sets         integer,   -- which of the columns below are given, a bit each
    biz_data     bytea,     -- 1
    content_type text,      -- 32
    callback     text,      -- 2
    retry        text,      -- 4
    max_age      bigint,    -- 8
    traceparent  text,      -- 16
    actor        text,
    tid          tid,
    home_tid     tid,       -- where the row is not at its home
    biz_type     text,
    create_time  bigint,
    status       smallint,
    revision     integer,
    attempts     integer,
    life         smallint,
    lease_until  bigint,
    is_delivering boolean,
    lives        smallint,  -- 1: a new life
    is_fresh     boolean,   -- the retry budget is whole again
    expire_at    bigint,    -- of what is cancelled
    erases       boolean,   -- its payload goes with it
    address      bigint,
    effect       text,      -- cancel, stop, stay (in its place) or move; null: nothing
    verdict      text
);

-- Lock the tasks of wheel_change_v1 and say what becomes of each; nothing is changed here. Its own
-- function for its plan: a thousand tasks are joined with what was locked by hashing, while what
-- looks into a partition may do anything but that.
CREATE FUNCTION wheel_judge_v1(
    p_shard smallint,
    p_task_ids uuid[],
    p_start_times bigint[],
    p_verbs text[],
    p_revisions integer[],
    p_to_times bigint[],
    p_dues bigint[],
    p_sets integer[],
    p_biz_data bytea[],
    p_content_types text[],
    p_callbacks text[],
    p_retries text[],
    p_max_ages bigint[],
    p_traceparents text[],
    p_actors text[],
    p_retention_ms bigint,
    p_now bigint
) RETURNS wheel_change[]
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_hashjoin = on
SET jit = off
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

-- Change tasks of one shard, each named once. At most 1,000, in any order.
--
-- In:  one array element a task.
--      p_start_times  the task's place as the caller knows it; at first the home its id carries
--      p_verbs        cancel, patch, run, replay, replace, earliest, latest
--      p_revisions    change it only where it has this revision; null: whatever it has
--      p_to_times     the new start_time; null: it stays (patch). Of no use to cancel, run, replay
--      p_dues         null: what becomes due is published by the caller. Else it queues behind
--                     first attempts, at this moment, and the due hand publishes it
--      p_sets         patch and replace: which columns are given (1 biz_data, 2 callback, 4 retry,
--                     8 max_age, 16 traceparent, 32 content_type; null takes it away).
--                     cancel: 1 stop what is being delivered, 2 discard what has failed
--      p_actors       who, for timer_change; null: it is not recorded
--      p_retention_ms how long a cancelled task is kept where its biz_type does not say
-- Out: one row of arrays, by position:
--      verdicts   done       it is as asked for
--                 unchanged  it was so before: a cancel, a replay or a stop said again
--                 stopping   it is being delivered; no attempt after this one
--                 revived    replace: it was settled and has a new life
--                 kept       earliest, latest: the existing task stays as it is
--                 delivering a broker has a live lease, granted at most 20 ms ahead of its moment
--                 settled    its end does not allow the verb
--                 changed    it has another revision than p_revisions says
--                 moved      it is not at this place but at `addresses`; call again with that
--                 missing    there is no such task; of one that was moved: look at its home again
--      addresses  where the task is now (its start_time)
--      near       positions of what is due within the look-ahead: the caller publishes it, its
--                 requeue row is the net
-- What is changed but for a cancel or stop gets revision + 1. A live lease is the claim: who has it
-- may call, with the claim in a lane or on the wire, so only a replace changes such a task. A lease
-- that had run out leaves an attempt row `lost` where the change clears it.
-- Edges: all pairs of pending, finished, failed, cancelled but into finished and failed; and moved.
-- Locks: fence shared, task rows by place, requeue rows by task_id, dead rows by task_id.
-- Hash joins are left on: rows are read by wheel_lock_v1 and by ctid, what is joined here is the
-- batch with itself, and by nested loops 500 of it took 108 ms in place of 9.
CREATE FUNCTION wheel_change_v1(
    p_shard smallint,
    p_task_ids uuid[],
    p_start_times bigint[],
    p_verbs text[],
    p_revisions integer[],
    p_to_times bigint[],
    p_dues bigint[],
    p_sets integer[],
    p_biz_data bytea[],
    p_content_types text[],
    p_callbacks text[],
    p_retries text[],
    p_max_ages bigint[],
    p_traceparents text[],
    p_actors text[],
    p_retention_ms bigint,
    p_lookahead_ms bigint,
    OUT verdicts text[],
    OUT addresses bigint[],
    OUT near integer[]
)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '5s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_mergejoin = off
SET jit = off
AS $$
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
$$;

-- The tasks at these places of one shard, as many as p_bytes_max bytes of payloads and the like
-- hold. VOLATILE: called in the statement that has changed them, it shows what they are now.
-- Bounded, because its rows go out while the fence is held: as much as any socket takes from a
-- server whose client has stopped reading.
CREATE FUNCTION wheel_show_v1(
    p_shard smallint, p_task_ids uuid[], p_places bigint[], p_bytes_max integer
) RETURNS SETOF timer_task
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
$$;

-- Write tasks anew at other places, of rows that wheel_change_v1 has locked, homes and all. A task
-- that leaves its home forwards from there; one that was away is deleted where it was. The row at
-- home keeps the task's life and revision, for the attempts of brokers that come too late.
CREATE FUNCTION wheel_move_v1(p_shard smallint, p_moves wheel_change[], p_now bigint) RETURNS void
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
$$;
