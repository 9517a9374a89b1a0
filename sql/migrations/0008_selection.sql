-- breaking: no
-- Locks: timer_dead, for as long as its new indexes take (it is empty in a new database).
--
-- Which tasks? What lists show and operations change is picked here, in one of three orders: by
-- place on the wheel, by the moment a dead letter died, by the business's own id. None needs an
-- index on timer_task that delivery would have to write. Every call looks at a bounded number of
-- rows, whatever it finds, and says how far it came.

-- The order of dead letters, of all and of one biz_type, to the last row: a page goes on exactly
-- behind the one before it.
DROP INDEX timer_dead_finish;
CREATE INDEX timer_dead_finish ON timer_dead (biz_type, finish_time, task_id);
CREATE INDEX timer_dead_time ON timer_dead (finish_time, task_id);

-- Tasks of the slots [p_slot_lo, p_slot_hi] of one partition with start_time in [p_from, p_to), in
-- order of (slot, start_time, task_id); behind (p_key_time, p_key_id) in the slot p_slot_lo.
--
-- Occupied slots are found one by one by descents in the index, empty stretches cost nothing; then
-- each is read by equality, so rows of other laps in it cost nothing either.
--
-- In:  p_is_leased: null for any, else whether somebody calls it right now; p_biz_types: LIKE
--      patterns, of which one must hold; p_asked_at: only what was submitted by then, and not put
--      on the wheel anew since.
-- Out: a row for each task that fits, then one with task_id null: how many rows (and slots without
--      any) were looked at, where the last of them lies (last_time null: all of last_slot was
--      looked at), and whether the range is done.
CREATE FUNCTION wheel_select_v1(
    p_slot_lo integer, p_slot_hi integer, p_from bigint, p_to bigint,
    p_key_time bigint, p_key_id uuid, p_shards integer,
    p_biz_type text, p_biz_types text[], p_status smallint, p_is_leased boolean,
    p_finish_from bigint, p_finish_to bigint, p_http_status smallint, p_schedule_id uuid,
    p_asked_at bigint, p_limit integer, p_looked_max integer
) RETURNS TABLE (
    task_id uuid, start_time bigint, revision integer, looked integer, last_slot integer,
    last_time bigint, last_id uuid, is_done boolean
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
$$;

-- Dead letters with finish_time in [p_from, p_to), in order of (finish_time, task_id) behind the
-- key; of one biz_type, or of all. At most p_limit rows, none left out.
CREATE FUNCTION wheel_select_dead_v1(
    p_biz_type text, p_from bigint, p_to bigint, p_key_time bigint, p_key_id uuid, p_limit integer
) RETURNS TABLE (task_id uuid, finish_time bigint, biz_type text, http_status smallint)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
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

-- Keys of a biz_type with biz_id in [p_first, p_end), behind p_after, in order; p_end null: no end.
CREATE FUNCTION wheel_select_keys_v1(
    p_biz_type text, p_first text, p_end text, p_after text, p_limit integer
) RETURNS TABLE (biz_id text, task_id uuid)
LANGUAGE plpgsql STABLE
SET search_path FROM CURRENT
SET plan_cache_mode = force_custom_plan
SET enable_seqscan = off
SET enable_bitmapscan = off
SET jit = off
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
