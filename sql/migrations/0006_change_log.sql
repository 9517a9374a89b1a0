-- breaking: no
-- Locks: creates a new table only.

-- Who changed what: every change that came in by the API, written in the transaction of the change.
-- actor: `admin` (ADMIN_KEY), `local` (a server without keys) or `key:ID`. action: `biz.put`,
-- `task.cancel` and so on. object: what was changed. Neither old nor new holds secrets or payloads;
-- of a biz_type they hold the settings that differ. The key is the order of lists, newest first.
CREATE TABLE timer_change (
    change_id bigint GENERATED ALWAYS AS IDENTITY,
    time      bigint NOT NULL,
    actor     text   COLLATE "C" NOT NULL,
    action    text   COLLATE "C" NOT NULL,
    object    text   COLLATE "C" NOT NULL,
    old       jsonb,
    new       jsonb,
    PRIMARY KEY (time, change_id)
);
CREATE INDEX timer_change_object ON timer_change (object, time, change_id);
