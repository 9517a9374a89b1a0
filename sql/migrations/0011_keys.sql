-- breaking: no
-- Locks: creates a new table only.

-- API keys. Only SHA-256 of a secret is kept. After a rotation the secret before it holds until
-- previous_until. scopes and biz_types (patterns: a name, or a prefix and *) say what the key may
-- do, and to what. Versions come from the sequence of the configuration and commit in its order,
-- so a broker that knows version n asks only for what is newer. Rows stay, for those who look who
-- it was that did something.
CREATE TABLE timer_key_api (
    key_id         text   COLLATE "C" PRIMARY KEY,
    version        bigint NOT NULL UNIQUE,
    name           text   NOT NULL,
    scopes         text[] NOT NULL,
    biz_types      text[] NOT NULL,
    secret         bytea  NOT NULL,
    previous       bytea,
    previous_until bigint,
    expire_at      bigint,
    create_time    bigint NOT NULL,
    rotate_time    bigint,
    revoke_time    bigint
);
