-- name: biz_window
-- What became of the tasks of a biz_type that are due in some slots.
-- In:    biz_type text; firsts, afters int[]: ranges of slots [first, after); from, to bigint (ms):
--        start_time in [from, to); look: how many rows of all biz_types are read at most; now (ms)
-- Out:   looked, due, pending, delivering, finished, failed, cancelled, called (attempts >= 1),
--        again (attempts > 1) bigint; lateness of the first call p50, p99 ms or null
-- Cost:  an index range each, and the rows read, 2 us a row
-- Locks: none
SELECT
    w.looked, w.due, w.pending, w.delivering, w.finished, w.failed, w.cancelled, w.called, w.again,
    w.lateness_p50, w.lateness_p99
FROM wheel_biz_window_v1(
    CAST(:biz_type AS text), CAST(:firsts AS integer[]), CAST(:afters AS integer[]),
    CAST(:from AS bigint), CAST(:to AS bigint), CAST(:look AS integer), CAST(:now AS bigint)
) AS w

-- name: biz_dead_count
-- How many dead letters a biz_type has, counted up to a limit.
-- In:    biz_type text, limit
-- Out:   bigint
-- Cost:  an index range of at most `limit` entries
-- Locks: none
SELECT count(*)
FROM (
    SELECT
    FROM timer_dead AS d
    WHERE d.biz_type = CAST(:biz_type AS text)
    LIMIT CAST(:limit AS integer)
) AS counted

-- name: biz_pending_estimate
-- About how many pending tasks a biz_type has, by what ANALYZE saw last: no table is read.
-- In:    biz_type text
-- Out:   double precision; null where no partition was analyzed yet
-- Cost:  the catalog's rows of 100 partitions
-- Locks: none
SELECT sum(
    c.reltuples
    * coalesce((
        SELECT m.frequency
        FROM unnest(CAST(CAST(b.most_common_vals AS text) AS text[]), b.most_common_freqs)
            AS m(value, frequency)
        WHERE m.value = CAST(:biz_type AS text)
    ), 0)
    * coalesce((
        SELECT m.frequency
        FROM unnest(CAST(CAST(p.most_common_vals AS text) AS text[]), p.most_common_freqs)
            AS m(value, frequency)
        WHERE m.value = '0'
    ), 0)
)
FROM pg_inherits AS i
JOIN pg_class AS c ON c.oid = i.inhrelid
JOIN pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_stats AS b
    ON b.schemaname = n.nspname AND b.tablename = c.relname AND b.attname = 'biz_type'
JOIN pg_stats AS p
    ON p.schemaname = n.nspname AND p.tablename = c.relname AND p.attname = 'status'
WHERE i.inhparent = CAST('timer_task' AS regclass)
    AND c.reltuples > 0
