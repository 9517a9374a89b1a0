-- name: biz_load_newer
-- What was changed in the configuration since a version; since 0: all there is.
-- In:    version bigint
-- Out:   biz_type, version, config, secrets: a biz_type; with config null: one that was deleted.
--        biz_type null: the brake, config {reason, since, actor}, or null where it is off
-- Cost:  two index ranges and one row; one statement, so that nothing between them is missed
-- Locks: none
SELECT b.biz_type, b.version, b.config, b.secrets
FROM timer_biz AS b
WHERE b.version > CAST(:version AS bigint)
UNION ALL
SELECT h.biz_type, h.version, NULL, NULL
FROM timer_biz_history AS h
WHERE h.version > CAST(:version AS bigint)
    AND h.shown IS NULL
    AND NOT EXISTS (SELECT FROM timer_biz AS b WHERE b.biz_type = h.biz_type)
UNION ALL
SELECT
    NULL,
    k.version,
    CASE
        WHEN k.reason IS NOT NULL
        THEN jsonb_build_object('reason', k.reason, 'since_ms', k.since, 'actor', k.actor)
    END,
    NULL
FROM timer_brake AS k
WHERE k.version > CAST(:version AS bigint)

-- name: biz_load_one
-- One biz_type by name.
-- In:    biz_type text
-- Out:   version, config, secrets; no row where there is none
-- Cost:  one index descent
-- Locks: none
SELECT version, config, secrets
FROM timer_biz
WHERE biz_type = CAST(:biz_type AS text)

-- name: biz_put
-- Write biz_types, all or none, with their history and changes.
-- In:    actor text, changes text (JSON, see wheel_biz_put_v1)
-- Out:   versions bigint[]; null: overtaken, or `unknown` text is an on_failed that does not exist
-- Cost:  four index entries a biz_type
-- Locks: one advisory lock for all writers of the configuration, so that versions become visible
--        in their order: who has seen version n misses nothing below it
SELECT p.versions, p.unknown
FROM wheel_biz_put_v1(
    CAST(:actor AS text), CAST(CAST(:changes AS text) AS jsonb)
) AS p

-- name: biz_delete
-- Delete a biz_type that is at a version; and begin to purge its tasks, if that is asked for.
-- In:    actor text, biz_type text, expected bigint (version), old text (JSON, as shown);
--        operation_id uuid of the purge, or null: none; filter text (JSON)
-- Out:   deleted bigint: the version of it; null: overtaken, or `named_by` text needs it
-- Locks: as biz_put
WITH gone AS MATERIALIZED (
    SELECT d.deleted, d.named_by
    FROM wheel_biz_delete_v1(
        CAST(:actor AS text), CAST(:biz_type AS text), CAST(:expected AS bigint),
        CAST(CAST(:old AS text) AS jsonb)
    ) AS d
),
begun AS (
    INSERT INTO timer_operation (operation_id, create_time, action, filter, actor)
    SELECT
        CAST(:operation_id AS uuid), wheel_now_ms(), 'purge',
        CAST(CAST(:filter AS text) AS jsonb), CAST(:actor AS text)
    FROM gone AS g
    WHERE g.deleted IS NOT NULL AND CAST(:operation_id AS uuid) IS NOT NULL
)
SELECT g.deleted, g.named_by
FROM gone AS g

-- name: brake
-- Put the brake on, for a reason, or take it off.
-- In:    actor text, reason text or null
-- Out:   since bigint (ms), actor, reason: as it stands now
-- Locks: as biz_put
SELECT b.since, b.actor, b.reason
FROM wheel_brake_v1(CAST(:actor AS text), CAST(:reason AS text)) AS b

-- name: biz_has_dead
-- Whether a biz_type has a dead letter.
-- In:    biz_type text
-- Out:   one row where it has
-- Cost:  one index descent
-- Locks: none
SELECT true
FROM timer_dead
WHERE biz_type = CAST(:biz_type AS text)
LIMIT 1
