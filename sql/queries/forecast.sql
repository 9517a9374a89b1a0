-- name: forecast_quarters
-- How many tasks are pending in each quarter hour, exactly.
-- In:    biz_types text[]: of these, null: of all; from, to bigint (ms): of those that begin in
--        [from, to)
-- Out:   quarter bigint (ms), tasks bigint: those that have any
-- Cost:  a row for each biz_type (of all: one) and quarter hour, and what is not folded yet
-- Locks: none
SELECT q.quarter, q.tasks
FROM wheel_forecast_quarters_v1(
    CAST(:biz_types AS text[]), CAST(:from AS bigint), CAST(:to AS bigint)
) AS q

-- name: forecast
-- What some biz_types are to be called for: a piece of the wheel, counted by minute and second.
-- In:    biz_types text[], hots integer[]: a second of it with more tasks is hot; from, to bigint
--        (ms), not over the ring's end; slot, shard, time, id: the key behind which to look; look:
--        how many rows of all biz_types are read at most
-- Out:   looked bigint; slot, shard, start_time, task_id of the last one, null where there is none;
--        minutes bigint[] (ms), tasks integer[]; seconds bigint[] (ms), biz_types text[], tasks
--        integer[]: hot seconds, and the piece's first and last; null: none
-- Cost:  an index descent, and the rows read, 3 us a row
-- Locks: none
SELECT
    f.looked, f.slot, f.shard, f.start_time, f.task_id, f.minutes, f.minute_tasks, f.seconds,
    f.second_biz_types, f.second_tasks
FROM wheel_forecast_v1(
    CAST(:biz_types AS text[]), CAST(:hots AS integer[]), CAST(:from AS bigint),
    CAST(:to AS bigint), CAST(:slot AS integer), CAST(:shard AS smallint), CAST(:time AS bigint),
    CAST(:id AS uuid), CAST(:look AS integer)
) AS f
