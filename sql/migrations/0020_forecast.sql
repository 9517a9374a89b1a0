-- breaking: no
-- Locks: none; creates functions.
--
-- What is to be called when: how many tasks each quarter hour holds, exactly, by the ledger; and by
-- the minute and second as the wheel itself says, a bounded piece at a time.

-- How many tasks are pending in each quarter hour of [p_from, p_to) ms that has any: folded and not
-- folded yet, in one snapshot. p_biz_types: of these; null: of all, a row each.
CREATE FUNCTION wheel_forecast_quarters_v1(p_biz_types text[], p_from bigint, p_to bigint)
RETURNS TABLE (quarter bigint, tasks bigint)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_mergejoin = off
SET jit = off
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

-- A piece of the wheel: of the p_look rows behind the key (p_slot, p_shard, p_time, p_id) with
-- start_time in [p_from, p_to) ms, the pending tasks of some biz_types.
-- p_hots: for each biz_type, a second with more tasks than that is hot. The range must not run over
-- the ring's end; it is short, for rows of other laps in it are passed over uncounted.
-- Out: looked: rows; slot, shard, start_time, task_id: the last one, the next key; minutes (ms)
-- with their tasks; seconds (ms) with biz_types and tasks: the hot ones, and the first and the last
-- of the piece whatever they hold, for the pieces beside it may have the rest of these.
CREATE FUNCTION wheel_forecast_v1(
    p_biz_types text[], p_hots integer[], p_from bigint, p_to bigint,
    p_slot integer, p_shard smallint, p_time bigint, p_id uuid, p_look integer,
    OUT looked bigint, OUT slot integer, OUT shard smallint, OUT start_time bigint,
    OUT task_id uuid, OUT minutes bigint[], OUT minute_tasks integer[], OUT seconds bigint[],
    OUT second_biz_types text[], OUT second_tasks integer[]
)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_nestloop = off
SET enable_mergejoin = off
SET jit = off
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
