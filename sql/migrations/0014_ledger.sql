-- breaking: no
-- Locks: none; creates tables, functions and views.
--
-- The ledger: what became of every task, counted per biz_type and quarter hour of its place
-- (start_time), and per day of its create_time. It outlives the tasks, and must always add up:
--
--   submitted + moved_in + revived = moved_out + pending + finished + failed + cancelled + purged
--   finished + failed + cancelled  = settled rows present + reaped + revived
--
-- Whoever changes what counts appends to timer_ledger_delta in the transaction of the change. No
-- writer updates a row here: a counter would make all writers of a biz_type queue for its lock.
-- The leader of shard 0 folds what was appended into the sums about once a second.

-- So many tasks of one biz_type, place and day went through these edges at once. edges, a bit each:
--      1 submitted   2 moved_in   4 moved_out   8 revived, and 16: from failed
--      32 finished   64 failed   128 cancelled:    16 << the status that it has now
--      256 purged   512, 1024, 2048 reaped_finished, _failed, _cancelled:
--                                                 256 << the status in which its row was deleted
-- quarter, day: ms, rounded down to 900,000 and 86,400,000.
CREATE TABLE timer_ledger_delta (
    delta_id bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    quarter  bigint  NOT NULL,
    day      bigint  NOT NULL,
    edges    integer NOT NULL CHECK (edges BETWEEN 1 AND 4095),
    tasks    integer NOT NULL CHECK (tasks > 0),
    biz_type text    COLLATE "C" NOT NULL
) WITH (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);

-- The sums of what was folded. revived_failed: of those revived, the ones that had failed.
CREATE TABLE timer_ledger (
    quarter          bigint NOT NULL,
    submitted        bigint NOT NULL,
    moved_in         bigint NOT NULL,
    moved_out        bigint NOT NULL,
    revived          bigint NOT NULL,
    revived_failed   bigint NOT NULL,
    finished         bigint NOT NULL,
    failed           bigint NOT NULL,
    cancelled        bigint NOT NULL,
    purged           bigint NOT NULL,
    reaped_finished  bigint NOT NULL,
    reaped_failed    bigint NOT NULL,
    reaped_cancelled bigint NOT NULL,
    biz_type         text   COLLATE "C" NOT NULL,
    PRIMARY KEY (biz_type, quarter)
) WITH (fillfactor = 70);

-- The same by day of create_time.
CREATE TABLE timer_ledger_day (
    day              bigint NOT NULL,
    submitted        bigint NOT NULL,
    moved_in         bigint NOT NULL,
    moved_out        bigint NOT NULL,
    revived          bigint NOT NULL,
    revived_failed   bigint NOT NULL,
    finished         bigint NOT NULL,
    failed           bigint NOT NULL,
    cancelled        bigint NOT NULL,
    purged           bigint NOT NULL,
    reaped_finished  bigint NOT NULL,
    reaped_failed    bigint NOT NULL,
    reaped_cancelled bigint NOT NULL,
    biz_type         text   COLLATE "C" NOT NULL,
    PRIMARY KEY (biz_type, day)
) WITH (fillfactor = 70);

-- How many tasks of a biz_type are pending, and how many lie dead: folded only, may be below zero
-- while a delta that came before is still to be folded.
CREATE TABLE timer_ledger_total (
    biz_type text   COLLATE "C" PRIMARY KEY,
    pending  bigint NOT NULL,
    dead     bigint NOT NULL
) WITH (fillfactor = 50);

-- How many tasks of all biz_types are pending in each quarter hour, as above.
CREATE TABLE timer_ledger_quarter (
    quarter bigint PRIMARY KEY,
    pending bigint NOT NULL
) WITH (fillfactor = 50);

-- How far the fold has come. Every delta up to folded_to is folded, and none will ever come there
-- again; so nobody has to look at what lies behind, which under an old snapshot is never cleared.
-- high_to, open: ids up to high_to are as final once these transactions have ended.
CREATE TABLE timer_ledger_mark (
    one_row   boolean PRIMARY KEY DEFAULT true CHECK (one_row),
    folded_to bigint  NOT NULL DEFAULT 0,
    high_to   bigint  NOT NULL DEFAULT 0,
    open      text[]  NOT NULL DEFAULT '{}'
) WITH (fillfactor = 10);
INSERT INTO timer_ledger_mark DEFAULT VALUES;

-- Append what became of tasks, one element each: its edges (see above), its biz_type, its place
-- (start_time) and create_time in ms. A task that changes places is named twice. Nothing given:
-- nothing is written. In the transaction of the change, at any point of it.
CREATE FUNCTION wheel_ledger_v1(
    p_edges integer[], p_biz_types text[], p_places bigint[], p_create_times bigint[]
) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
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

-- Fold a page of deltas into the sums, oldest first; at most p_limit. Returns how many were folded;
-- fewer than p_limit: there are no more for now. p_epoch: of the leader of shard 0; null: it is
-- folded in the course of another write.
--
-- An id that was drawn may be committed late, and must not be left behind. Its transaction has held
-- a lock on the table since before it drew it: so once every holder that is seen after an id was
-- drawn has let go, all ids up to there are final.
-- Locks: the mark, the ledger's rows by key, the pointer last.
CREATE FUNCTION wheel_ledger_fold_v1(p_epoch bigint, p_limit integer) RETURNS integer
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '5s'
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
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

-- Make the ledger coarser where it is old: quarter hours that began more than p_kept ms ago, and of
-- which nothing is left, are summed up in the row of their day's first one.
-- One biz_type's old rows behind the key (p_biz_type, p_quarter) are looked at, at most p_limit:
-- however large the ledger is, each piece is done soon, and the next one goes on from there.
-- Out: summed: how many were; next_biz_type, next_quarter: the key to go on from, null at the end.
--
-- Nothing is left means that a row adds up to nothing pending and nothing settled present. So it
-- may be added to any other row, and what is still to be folded for its quarter hour begins a new
-- one: every sum stays what it was, in every snapshot. Folds are kept out meanwhile.
-- Locks: the mark, the ledger's rows.
CREATE FUNCTION wheel_ledger_coarsen_v1(
    p_kept bigint, p_biz_type text, p_quarter bigint, p_limit integer,
    OUT summed integer, OUT next_biz_type text, OUT next_quarter bigint
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

-- What was appended and not folded yet, in the ledger's columns.
CREATE VIEW timer_ledger_unfolded AS
SELECT
    d.biz_type, d.quarter, d.day,
    d.tasks * (d.edges & 1) AS submitted,
    d.tasks * (d.edges >> 1 & 1) AS moved_in,
    d.tasks * (d.edges >> 2 & 1) AS moved_out,
    d.tasks * (d.edges >> 3 & 1) AS revived,
    d.tasks * (d.edges >> 4 & 1) AS revived_failed,
    d.tasks * (d.edges >> 5 & 1) AS finished,
    d.tasks * (d.edges >> 6 & 1) AS failed,
    d.tasks * (d.edges >> 7 & 1) AS cancelled,
    d.tasks * (d.edges >> 8 & 1) AS purged,
    d.tasks * (d.edges >> 9 & 1) AS reaped_finished,
    d.tasks * (d.edges >> 10 & 1) AS reaped_failed,
    d.tasks * (d.edges >> 11 & 1) AS reaped_cancelled
FROM timer_ledger_delta AS d
WHERE d.delta_id > (SELECT m.folded_to FROM timer_ledger_mark AS m);

-- How many tasks of a biz_type are pending: folded and not folded yet, in one snapshot.
CREATE FUNCTION wheel_pending_v1(p_biz_type text) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
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

-- Be the one submitter of these biz_types until the end of the transaction: what is pending then
-- can only become less by others' submits (not by their replays, which no limit refuses).
-- Who waits here holds the fence, and so does the one that is waited for, until its commit.
CREATE FUNCTION wheel_quota_turn_v1(p_biz_types text[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
DECLARE
    v_key integer;
BEGIN
    FOR v_key IN SELECT DISTINCT hashtext(b) FROM unnest(p_biz_types) AS b ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock(wheel_lock_class('timer_ledger_total'), v_key);
    END LOOP;
END
$$;

-- Which of these new tasks are too many for the max_pending of their biz_types: positions, the last
-- ones of each. p_taken: positions of those that will not be written anyway.
-- What was written by an earlier sending of the same call is no news, and is never refused.
CREATE FUNCTION wheel_quota_v1(
    p_task_ids uuid[], p_biz_types text[], p_taken integer[], p_limited text[], p_limits bigint[]
) RETURNS integer[]
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
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

-- The ledger, for people: exact at every moment, in the snapshot of whoever reads it.
CREATE VIEW timer_ledger_view AS
SELECT
    s.biz_type,
    wheel_time_v1(s.quarter) AS quarter,
    s.submitted, s.moved_in, s.moved_out, s.revived, s.finished, s.failed, s.cancelled, s.purged,
    s.submitted + s.moved_in + s.revived - s.moved_out - s.finished - s.failed - s.cancelled
        - s.purged AS pending,
    s.reaped_finished, s.reaped_failed, s.reaped_cancelled
FROM (
    SELECT
        l.biz_type, l.quarter,
        CAST(sum(l.submitted) AS bigint) AS submitted,
        CAST(sum(l.moved_in) AS bigint) AS moved_in,
        CAST(sum(l.moved_out) AS bigint) AS moved_out,
        CAST(sum(l.revived) AS bigint) AS revived,
        CAST(sum(l.finished) AS bigint) AS finished,
        CAST(sum(l.failed) AS bigint) AS failed,
        CAST(sum(l.cancelled) AS bigint) AS cancelled,
        CAST(sum(l.purged) AS bigint) AS purged,
        CAST(sum(l.reaped_finished) AS bigint) AS reaped_finished,
        CAST(sum(l.reaped_failed) AS bigint) AS reaped_failed,
        CAST(sum(l.reaped_cancelled) AS bigint) AS reaped_cancelled
    FROM (
        SELECT
            f.biz_type, f.quarter, f.submitted, f.moved_in, f.moved_out, f.revived, f.finished,
            f.failed, f.cancelled, f.purged, f.reaped_finished, f.reaped_failed,
            f.reaped_cancelled
        FROM timer_ledger AS f
        UNION ALL
        SELECT
            u.biz_type, u.quarter, u.submitted, u.moved_in, u.moved_out, u.revived, u.finished,
            u.failed, u.cancelled, u.purged, u.reaped_finished, u.reaped_failed,
            u.reaped_cancelled
        FROM timer_ledger_unfolded AS u
    ) AS l
    GROUP BY l.biz_type, l.quarter
) AS s;

-- The same tasks by the day (UTC) on which they were submitted.
CREATE VIEW timer_ledger_day_view AS
SELECT
    s.biz_type,
    CAST(wheel_time_v1(s.day) AT TIME ZONE 'UTC' AS date) AS day,
    s.submitted, s.moved_in, s.moved_out, s.revived, s.finished, s.failed, s.cancelled, s.purged,
    s.submitted + s.moved_in + s.revived - s.moved_out - s.finished - s.failed - s.cancelled
        - s.purged AS pending,
    s.reaped_finished, s.reaped_failed, s.reaped_cancelled
FROM (
    SELECT
        l.biz_type, l.day,
        CAST(sum(l.submitted) AS bigint) AS submitted,
        CAST(sum(l.moved_in) AS bigint) AS moved_in,
        CAST(sum(l.moved_out) AS bigint) AS moved_out,
        CAST(sum(l.revived) AS bigint) AS revived,
        CAST(sum(l.finished) AS bigint) AS finished,
        CAST(sum(l.failed) AS bigint) AS failed,
        CAST(sum(l.cancelled) AS bigint) AS cancelled,
        CAST(sum(l.purged) AS bigint) AS purged,
        CAST(sum(l.reaped_finished) AS bigint) AS reaped_finished,
        CAST(sum(l.reaped_failed) AS bigint) AS reaped_failed,
        CAST(sum(l.reaped_cancelled) AS bigint) AS reaped_cancelled
    FROM (
        SELECT
            f.biz_type, f.day, f.submitted, f.moved_in, f.moved_out, f.revived, f.finished,
            f.failed, f.cancelled, f.purged, f.reaped_finished, f.reaped_failed,
            f.reaped_cancelled
        FROM timer_ledger_day AS f
        UNION ALL
        SELECT
            u.biz_type, u.day, u.submitted, u.moved_in, u.moved_out, u.revived, u.finished,
            u.failed, u.cancelled, u.purged, u.reaped_finished, u.reaped_failed,
            u.reaped_cancelled
        FROM timer_ledger_unfolded AS u
    ) AS l
    GROUP BY l.biz_type, l.day
) AS s;
