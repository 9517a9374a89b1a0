-- breaking: no
-- Locks: none; creates functions.
--
-- The reap hand: what has expired goes, with all that belongs to it. The leader of shard 0 reaps
-- the tasks of all shards.
--
-- No fence is taken here: nothing becomes pending, and no requeue row is written. Nor is the
-- pointer row locked to check the epoch, for the due hand writes it all the time: a leader that has
-- just been replaced reaps no more than its heir would, since every row says itself whether it may
-- go. Nothing waits for the disk: a lost reap is done again.

-- Whether slots of a partition lie where the hands are, or will be within minutes.
CREATE FUNCTION wheel_under_hands_v1(p_slot_lo integer) RETURNS boolean
LANGUAGE sql STABLE
SET search_path FROM CURRENT
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

-- What all functions of the reap hand begin with.
CREATE FUNCTION wheel_reap_begin_v1(p_epoch bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
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

-- Every partition: its first slot, its pages and those of its index, how many updates its rows have
-- had (as far as the statistics know: it only saves looks), and whether the hands are
-- there. Nothing is scanned.
CREATE FUNCTION wheel_reap_partitions_v1() RETURNS TABLE (
    slot_lo integer, pages bigint, index_pages bigint, updates bigint, is_under_hands boolean
)
LANGUAGE sql VOLATILE
SET search_path FROM CURRENT
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

-- Whether nothing else belongs to a settled task than its row: no key, no attempts, no dead letter,
-- no row at home that forwards to it.
CREATE FUNCTION wheel_is_alone_v1(
    p_task_id uuid, p_start_time bigint, p_status smallint, p_attempts integer, p_biz_id text
) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT p_biz_id IS NULL
        AND (p_attempts = 0 OR p_attempts = 1 AND p_status = 1)
        AND p_status <> 2
        -- At home: its id begins with the place. By bytes: a fifth of what wheel_home_v1 takes.
        AND substr(uuid_send(p_task_id), 1, 6) = substr(int8send(p_start_time), 3, 6)
$$;

-- What lies in the blocks [p_block_lo, p_block_hi) of a partition.
-- Out: expired   settled tasks whose time is over
--      entwined  of them, those to which more belongs than their row
--      lasting   settled tasks that stay for now
--      open      pending tasks, and rows that forward
--      earliest  the first expire_at of a settled task; latest: the last one
--      overdue   when the first of them will have waited for a tenth of its retention beyond it
CREATE FUNCTION wheel_reap_look_v1(
    p_slot_lo integer, p_block_lo bigint, p_block_hi bigint,
    OUT expired bigint, OUT entwined bigint, OUT lasting bigint, OUT open bigint,
    OUT earliest bigint, OUT latest bigint, OUT overdue bigint
)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET enable_seqscan = off
SET enable_indexscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
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
$$;

-- Delete expired tasks of one shard that lie in the blocks [p_block_lo, p_block_hi) of a partition,
-- at most p_limit (1,000), with their keys, attempts, dead letters, requeue rows and rows at home.
-- p_is_whole: all; else only those to which more belongs than their row, before a TRUNCATE.
-- What is revived between the look and its row's lock stays. A key goes only if it is the task's.
-- Out: reaped, by status; looked: how many were looked at; p_limit: there may be more.
-- Locks: keys sorted, task rows by place, requeue rows and dead letters by task_id.
CREATE FUNCTION wheel_reap_v1(
    p_epoch bigint, p_shard smallint, p_slot_lo integer, p_block_lo bigint, p_block_hi bigint,
    p_is_whole boolean, p_limit integer,
    OUT looked bigint, OUT finished bigint, OUT failed bigint, OUT cancelled bigint
)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '1s'
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET jit = off
AS $$
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
$$;

-- Empty a partition at once, if nothing in it lives but at most p_carry_max rows, which are carried
-- over. Everything else must have expired, and nothing else may belong to it (wheel_reap_v1 has
-- been here before); one exception counts as living.
--
-- The lock keeps everybody out, so what is found under it stays true until the TRUNCATE: it is
-- waited for 50 ms, and not held for much longer than p_hold_ms. Nobody reads what an older
-- snapshot shows: after a TRUNCATE that is nothing at all (wheel_find_v1, wheel_requeue_due_v1).
--
-- Out: verdict  done; hands: they are there; alive: too much would have to be carried; slow:
--               p_hold_ms was not enough. In all cases but the first nothing was done.
--      rows reaped by status, and carried. Raises 55P03 where the lock could not be had.
-- Locks: the partition, alone.
CREATE FUNCTION wheel_reap_truncate_v1(
    p_epoch bigint, p_slot_lo integer, p_carry_max integer, p_carry_bytes_max bigint,
    p_hold_ms integer,
    OUT verdict text, OUT carried integer, OUT finished bigint, OUT failed bigint,
    OUT cancelled bigint
)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '50ms'
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_indexscan = off
SET enable_bitmapscan = off
SET jit = off
AS $$
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
$$;

-- Everything that had expired by p_reaped is gone, of all shards. Never back.
CREATE FUNCTION wheel_reap_advance_v1(p_epoch bigint, p_reaped bigint) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '1s'
AS $$
BEGIN
    PERFORM wheel_reap_begin_v1(p_epoch);
    PERFORM FROM timer_pointer AS p ORDER BY p.shard FOR NO KEY UPDATE;
    UPDATE timer_pointer AS p SET reap_time = p_reaped WHERE p.reap_time < p_reaped;
END
$$;
