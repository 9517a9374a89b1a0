-- name: keys_newer
-- The API keys that were changed since a version; since 0: all.
-- In:    version bigint
-- Out:   key_id, version, name, scopes, biz_types, secret, previous (SHA-256), previous_until,
--        expire_at, create_time, rotate_time, revoke_time (ms)
-- Cost:  one index range
-- Locks: none
SELECT
    k.key_id,
    k.version,
    k.name,
    k.scopes,
    k.biz_types,
    k.secret,
    k.previous,
    k.previous_until,
    k.expire_at,
    k.create_time,
    k.rotate_time,
    k.revoke_time
FROM timer_key_api AS k
WHERE k.version > CAST(:version AS bigint)

-- name: keys_find
-- One API key by its id.
-- In:    key_id text
-- Out:   as keys_newer, and the database's clock (ms); no row where there is none
-- Cost:  one index descent
-- Locks: none
SELECT
    k.key_id,
    k.version,
    k.name,
    k.scopes,
    k.biz_types,
    k.secret,
    k.previous,
    k.previous_until,
    k.expire_at,
    k.create_time,
    k.rotate_time,
    k.revoke_time,
    wheel_now_ms()
FROM timer_key_api AS k
WHERE k.key_id = CAST(:key_id AS text)

-- name: keys_create
-- Write a new key, and who did it.
-- In:    actor text, key_id text, name text, scopes text[], biz_types text[], secret bytea
--        (SHA-256), expire_at bigint (ms) or null
-- Out:   its version
-- Locks: one advisory lock for all writers of the configuration, so that versions become visible
--        in their order: who has seen version n misses nothing below it
WITH turn AS MATERIALIZED (
    SELECT pg_advisory_xact_lock(wheel_lock_class('timer_biz'), 0)
),
written AS (
    INSERT INTO timer_key_api AS k (
        key_id, version, name, scopes, biz_types, secret, expire_at, create_time
    )
    SELECT
        CAST(:key_id AS text),
        nextval('timer_biz_version'),
        CAST(:name AS text),
        CAST(:scopes AS text[]),
        CAST(:biz_types AS text[]),
        CAST(:secret AS bytea),
        CAST(:expire_at AS bigint),
        wheel_now_ms()
    FROM turn
    RETURNING k.*
),
told AS (
    INSERT INTO timer_change (time, actor, action, object, new)
    SELECT
        w.create_time,
        CAST(:actor AS text),
        'key.create',
        'key:' || w.key_id,
        jsonb_build_object(
            'name', w.name, 'scopes', w.scopes, 'biz_types', w.biz_types, 'expire_at', w.expire_at
        )
    FROM written AS w
)
SELECT w.version
FROM written AS w

-- name: keys_rotate
-- Give a key a new secret; the one it has holds on for a while.
-- In:    actor text, key_id text, secret bytea (SHA-256), overlap_ms bigint
-- Out:   the version; no row where there is no such key, or it is revoked
-- Locks: as keys_create, and the key's row
WITH turn AS MATERIALIZED (
    SELECT pg_advisory_xact_lock(wheel_lock_class('timer_biz'), 0)
),
written AS (
    UPDATE timer_key_api AS k
    SET version = nextval('timer_biz_version'),
        previous = k.secret,
        previous_until = wheel_now_ms() + CAST(:overlap_ms AS bigint),
        secret = CAST(:secret AS bytea),
        rotate_time = wheel_now_ms()
    FROM turn
    WHERE k.key_id = CAST(:key_id AS text)
        AND k.revoke_time IS NULL
    RETURNING k.*
),
told AS (
    INSERT INTO timer_change (time, actor, action, object, new)
    SELECT
        w.rotate_time,
        CAST(:actor AS text),
        'key.rotate',
        'key:' || w.key_id,
        jsonb_build_object('previous_until', w.previous_until)
    FROM written AS w
)
SELECT w.version
FROM written AS w

-- name: keys_revoke
-- End a key for good.
-- In:    actor text, key_id text
-- Out:   the version; no row where there is no such key, or it was revoked before
-- Locks: as keys_create, and the key's row
WITH turn AS MATERIALIZED (
    SELECT pg_advisory_xact_lock(wheel_lock_class('timer_biz'), 0)
),
written AS (
    UPDATE timer_key_api AS k
    SET version = nextval('timer_biz_version'),
        revoke_time = wheel_now_ms()
    FROM turn
    WHERE k.key_id = CAST(:key_id AS text)
        AND k.revoke_time IS NULL
    RETURNING k.*
),
told AS (
    INSERT INTO timer_change (time, actor, action, object, old)
    SELECT
        w.revoke_time,
        CAST(:actor AS text),
        'key.revoke',
        'key:' || w.key_id,
        jsonb_build_object('name', w.name, 'scopes', w.scopes, 'biz_types', w.biz_types)
    FROM written AS w
)
SELECT w.version
FROM written AS w
