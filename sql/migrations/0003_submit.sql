-- breaking: no
-- Locks: none; creates functions.

-- Put a batch of new tasks of one shard on the wheel. At most 1,000, in any order.
--
-- In:  one array element a task; callbacks and retries are JSON texts. p_limited, p_limits: the
--      biz_types among them that have a max_pending, each once, and that; null: none has.
--      p_schedule_ids, p_scheduled_times: of occurrences; null: these are none.
-- Out: one row, counting from 1 and listing only the exceptions:
--      near      positions of tasks due at or before max(closed_to, now + 1.5 look-aheads): the
--                caller publishes them itself; a requeue row behind the hand's range is the net
--      duplicate positions of tasks whose biz_id is taken; nothing of them was written
--      existing  the task_ids that hold those biz_ids, in the same order
--      refused   positions of tasks that are one too many for max_pending, the last ones of each
--                biz_type; nothing of them was written
-- A task whose own task_id is already there was accepted before: sending a batch again after a lost
-- reply is safe. One bad value fails the whole batch, with nothing written.
-- Locks: fence shared, the limited biz_types, keys sorted, task rows by place, requeue rows by
-- task_id.
CREATE FUNCTION wheel_submit_v1(
    p_shard smallint,
    p_task_ids uuid[],
    p_start_times bigint[],
    p_biz_types text[],
    p_biz_ids text[],
    p_biz_data bytea[],
    p_content_types text[],
    p_callbacks text[],
    p_retries text[],
    p_max_ages bigint[],
    p_traceparents text[],
    p_lookahead_ms bigint,
    p_limited text[] DEFAULT NULL,
    p_limits bigint[] DEFAULT NULL,
    p_schedule_ids uuid[] DEFAULT NULL,
    p_scheduled_times bigint[] DEFAULT NULL,
    OUT near integer[],
    OUT duplicate integer[],
    OUT existing uuid[],
    OUT refused integer[]
)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
SET lock_timeout = '5s'
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
