-- name: biz_load_newer
-- The biz_types that were changed since a version; since 0: all.
-- In:    version bigint
-- Out:   biz_type, version, config, secrets
-- Cost:  one index range
-- Locks: none
SELECT biz_type, version, config, secrets
FROM timer_biz
WHERE version > CAST(:version AS bigint)

-- name: biz_load_one
-- One biz_type by name.
-- In:    biz_type text
-- Out:   version, config, secrets; no row where there is none
-- Cost:  one index descent
-- Locks: none
SELECT version, config, secrets
FROM timer_biz
WHERE biz_type = CAST(:biz_type AS text)

-- name: biz_create
-- Write a new biz_type.
-- In:    biz_type text, config text (JSON), secrets text (JSON)
-- Out:   its version; no row where the name is taken (somebody was faster: read again)
-- Locks: one advisory lock for all writers of timer_biz, so that versions become visible in their
--        order: who has seen version n misses nothing below it
WITH turn AS MATERIALIZED (
    SELECT pg_advisory_xact_lock(wheel_lock_class('timer_biz'), 0)
)
INSERT INTO timer_biz (biz_type, version, config, secrets, create_time, update_time)
SELECT
    CAST(:biz_type AS text),
    nextval('timer_biz_version'),
    CAST(CAST(:config AS text) AS jsonb),
    CAST(CAST(:secrets AS text) AS jsonb),
    wheel_now_ms(),
    wheel_now_ms()
FROM turn
ON CONFLICT (biz_type) DO NOTHING
RETURNING version

-- name: biz_replace
-- Put a new configuration in the place of one version of an old one.
-- In:    biz_type text, expected bigint (version), config text (JSON), secrets text (JSON)
-- Out:   the new version; no row where `expected` is no longer the newest
-- Locks: as biz_create
WITH turn AS MATERIALIZED (
    SELECT pg_advisory_xact_lock(wheel_lock_class('timer_biz'), 0)
)
UPDATE timer_biz
SET version = nextval('timer_biz_version'),
    config = CAST(CAST(:config AS text) AS jsonb),
    secrets = CAST(CAST(:secrets AS text) AS jsonb),
    update_time = wheel_now_ms()
FROM turn
WHERE biz_type = CAST(:biz_type AS text)
    AND version = CAST(:expected AS bigint)
RETURNING version
