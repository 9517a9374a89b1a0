-- name: server_facts
-- What of this Postgres wheel-timer depends on.
-- In:    nothing
-- Out:   version int (180000 is 18), is a replica boolean, fsync, full_page_writes,
--        synchronous_commit, autovacuum text, max_locks_per_transaction int, max_connections int,
--        connections int, age of the oldest snapshot (s) float, what holds it text or null,
--        partitions of timer_task int, of them with autovacuum off int, standbys that commits wait
--        for int; dead rows of timer_requeue, and live ones, bigint
-- Cost:  the statistics views
-- Locks: none
WITH holders AS (
    SELECT
        date_part('epoch', clock_timestamp() - a.xact_start) AS age_s,
        coalesce(nullif(a.application_name, ''), a.backend_type) || ', process ' || a.pid AS who
    FROM pg_stat_activity AS a
    WHERE a.backend_xmin IS NOT NULL
        AND a.pid <> pg_backend_pid()
        AND a.backend_type <> 'autovacuum worker'
    UNION ALL
    SELECT date_part('epoch', clock_timestamp() - x.prepared), 'prepared transaction ' || x.gid
    FROM pg_prepared_xacts AS x
), oldest AS (
    SELECT h.age_s, h.who FROM holders AS h WHERE h.age_s IS NOT NULL ORDER BY h.age_s DESC LIMIT 1
), partitions AS (
    SELECT
        count(*) AS found,
        count(*) FILTER (WHERE 'autovacuum_enabled=false' = ANY (c.reloptions)) AS unvacuumed
    FROM pg_inherits AS i
    JOIN pg_class AS c ON c.oid = i.inhrelid
    WHERE i.inhparent = to_regclass('timer_task')
)
SELECT
    CAST(current_setting('server_version_num') AS integer),
    pg_is_in_recovery(),
    current_setting('fsync'),
    current_setting('full_page_writes'),
    current_setting('synchronous_commit'),
    current_setting('autovacuum'),
    CAST(current_setting('max_locks_per_transaction') AS integer),
    CAST(current_setting('max_connections') AS integer),
    (
        SELECT CAST(count(*) AS integer)
        FROM pg_stat_activity AS a
        WHERE a.backend_type = 'client backend'
    ),
    coalesce((SELECT o.age_s FROM oldest AS o), 0),
    (SELECT o.who FROM oldest AS o),
    CAST(p.found AS integer),
    CAST(p.unvacuumed AS integer),
    (
        SELECT CAST(count(*) AS integer)
        FROM pg_stat_replication AS r
        WHERE r.sync_state IN ('sync', 'quorum')
    ),
    coalesce((
        SELECT s.n_dead_tup
        FROM pg_stat_user_tables AS s
        WHERE s.relid = to_regclass('timer_requeue')
    ), 0),
    coalesce((
        SELECT s.n_live_tup
        FROM pg_stat_user_tables AS s
        WHERE s.relid = to_regclass('timer_requeue')
    ), 0)
FROM partitions AS p
