-- breaking: no
-- Locks: none; creates functions.
--
-- The one clock, and the fence that orders writers against the closing of a moment.
-- Every function of this schema carries the schema on its own search path.

-- The database's clock in microseconds. VOLATILE: it moves within a statement.
CREATE FUNCTION wheel_now_us() RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL SAFE
SET search_path FROM CURRENT
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

-- The database's clock in milliseconds, rounded down.
CREATE FUNCTION wheel_now_ms() RETURNS bigint
LANGUAGE plpgsql VOLATILE PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN wheel_now_us() / 1000;
END
$$;

-- The class of an advisory lock that belongs to a table of this schema: its oid as an int4.
-- timer_pointer: the fence; timer_requeue: the leader's lock. The second key is the shard.
CREATE FUNCTION wheel_lock_class(p_table regclass) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT CAST(CAST(CAST(p_table AS oid) AS bigint)
        - CASE WHEN CAST(CAST(p_table AS oid) AS bigint) > 2147483647 THEN 4294967296 ELSE 0 END
        AS integer)
$$;

-- closed_to of a shard. Raises WT003 where the shard was never set up (a database copied by
-- logical replication has no sequence values).
CREATE FUNCTION wheel_closed_to_v1(p_shard smallint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
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

-- Enter the fence as a writer, then read closed_to. Call it first, in the outermost block, never
-- inside an EXCEPTION block: a rollback to there would let the fence go.
--
-- A writer must see what was closed before it took the lock, and must be quick, for the hand waits
-- for it. So: read committed only; the transaction is younger than 100 ms (the two clocks are
-- never exactly equal over the extended protocol); a caller who then idles is cut off after 1 s.
-- The commit that follows is durable whatever the session says (a pooler loses session settings).
CREATE FUNCTION wheel_fence_v1(p_shard smallint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
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

-- Close every moment up to p_h, but never beyond the clock plus one look-ahead, and never back.
-- Out: closed_to, with which a hand goes on, not with its own; and closed_before. A hand that has
-- published beyond closed_before stands on what a crash of the database has undone.
-- The row lock orders two closers: setval alone is not monotone.
CREATE FUNCTION wheel_close_v1(
    p_shard smallint, p_epoch bigint, p_h bigint, p_lookahead_ms bigint,
    OUT closed_to bigint, OUT closed_before bigint
)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '1s'
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

-- Wait until every writer that may have read an older closed_to has committed: take the fence
-- alone and let it go at once. A transaction of its own, after the one that closed.
-- Raises 55P03 after p_wait_ms: a waiting exclusive lock makes every new writer wait.
CREATE FUNCTION wheel_barrier_v1(p_shard smallint, p_wait_ms integer) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
    PERFORM set_config('lock_timeout', CAST(p_wait_ms AS text), true);
    PERFORM pg_advisory_xact_lock(wheel_lock_class('timer_pointer'), p_shard);
END
$$;

-- The same without waiting: whether the barrier was passed.
CREATE FUNCTION wheel_barrier_try_v1(p_shard smallint) RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN pg_try_advisory_xact_lock(wheel_lock_class('timer_pointer'), p_shard);
END
$$;

-- End the backends that have held the fence for more than p_older_than_ms. A client frozen with an
-- unread reply holds it inside its open statement, and nothing else frees it. Returns how many.
CREATE FUNCTION wheel_fence_break_v1(p_shard smallint, p_older_than_ms bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
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
