-- name: biz_history
-- The versions of a biz_type below one, newest first.
-- In:    biz_type text, before bigint (version), limit
-- Out:   version, time ms, actor, action, shown jsonb (the settings; null: it was deleted)
-- Cost:  one index range
-- Locks: none
SELECT h.version, h.time, h.actor, h.action, h.shown
FROM timer_biz_history AS h
WHERE h.biz_type = CAST(:biz_type AS text)
    AND h.version < CAST(:before AS bigint)
ORDER BY h.version DESC
LIMIT CAST(:limit AS integer)

-- name: changes
-- The changes of a span of time below a key, newest first.
-- In:    from, to bigint (ms): [from, to); key_time bigint (ms), key_id bigint; limit; actor,
--        action text or null: what is asked for
-- Out:   time ms, change_id, actor, action, object, old, new, fits boolean: these are the actor and
--        the action that are asked for; else old and new are null
-- Cost:  one index range; what does not fit costs a fifth of what does
-- Locks: none
SELECT c.time, c.change_id, c.actor, c.action, c.object,
    CASE WHEN f.fits THEN c.old END, CASE WHEN f.fits THEN c.new END, f.fits
FROM timer_change AS c
CROSS JOIN LATERAL (
    SELECT (CAST(:actor AS text) IS NULL OR c.actor = CAST(:actor AS text))
        AND (CAST(:action AS text) IS NULL OR c.action = CAST(:action AS text)) AS fits
) AS f
WHERE (c.time, c.change_id) < (CAST(:key_time AS bigint), CAST(:key_id AS bigint))
    AND c.time >= CAST(:from AS bigint)
    AND c.time < CAST(:to AS bigint)
ORDER BY c.time DESC, c.change_id DESC
LIMIT CAST(:limit AS integer)

-- name: changes_of
-- The same of one object.
-- In:    object text; the rest as in changes
-- Out:   as changes
-- Cost:  one index range
-- Locks: none
SELECT c.time, c.change_id, c.actor, c.action, c.object,
    CASE WHEN f.fits THEN c.old END, CASE WHEN f.fits THEN c.new END, f.fits
FROM timer_change AS c
CROSS JOIN LATERAL (
    SELECT (CAST(:actor AS text) IS NULL OR c.actor = CAST(:actor AS text))
        AND (CAST(:action AS text) IS NULL OR c.action = CAST(:action AS text)) AS fits
) AS f
WHERE c.object = CAST(:object AS text)
    AND (c.time, c.change_id) < (CAST(:key_time AS bigint), CAST(:key_id AS bigint))
    AND c.time >= CAST(:from AS bigint)
    AND c.time < CAST(:to AS bigint)
ORDER BY c.time DESC, c.change_id DESC
LIMIT CAST(:limit AS integer)
