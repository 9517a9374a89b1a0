-- breaking: no
-- Locks: creates new tables only; nothing that exists is locked.
-- Time:  under a second; 100 empty partitions are made.
--
-- Times are bigint milliseconds since the epoch, by wheel_now_ms().

-- One row: what every process must agree on with this database.
CREATE TABLE timer_meta (
    one_row    boolean PRIMARY KEY DEFAULT true CHECK (one_row),
    cluster_id uuid     NOT NULL DEFAULT gen_random_uuid(),
    shards     smallint NOT NULL CHECK (shards BETWEEN 1 AND 4096)
);

-- A row here replaces the database's clock: for tests, ours and our users'.
CREATE TABLE timer_clock (
    one_row   boolean PRIMARY KEY DEFAULT true CHECK (one_row),
    shown_us  bigint  NOT NULL,
    set_at_us bigint  NOT NULL,
    frozen    boolean NOT NULL DEFAULT false
);

-- The wheel. No index but the primary key, and none of its columns changes in delivery, so that
-- claim and settle are HOT updates. Columns stand widest first: no padding inside a row.
-- renew_time: when it was last put on the wheel anew (moved, run, replayed, replaced); lateness and
-- max_age count from start_time, create_time or this, whichever is latest.
-- schedule_id, scheduled_time: of a schedule's occurrence, whose it is and its moment by the cron,
-- before jitter.
CREATE TABLE timer_task (
    start_time         bigint   NOT NULL,
    create_time        bigint   NOT NULL,
    first_attempt_time bigint,
    lease_until        bigint,
    next_at            bigint,
    finish_time        bigint,
    expire_at          bigint,
    started            bigint,
    published          bigint,
    moved_to           bigint,
    renew_time         bigint,
    max_age            bigint,
    scheduled_time     bigint,
    slot               integer  NOT NULL,
    attempts           integer  NOT NULL DEFAULT 0,
    revision           integer  NOT NULL DEFAULT 1,
    duration           integer,
    shard              smallint NOT NULL,
    status             smallint NOT NULL DEFAULT 0,
    failures           smallint NOT NULL DEFAULT 0,
    life               smallint NOT NULL DEFAULT 1,
    http_status        smallint,
    stop               boolean  NOT NULL DEFAULT false,
    task_id            uuid     NOT NULL,
    schedule_id        uuid,
    biz_type           text     COLLATE "C" NOT NULL,
    biz_id             text     COLLATE "C",
    content_type       text,
    last_error         text,
    traceparent        text,
    callback           jsonb,
    retry              jsonb,
    biz_data           bytea,
    PRIMARY KEY (slot, shard, start_time, task_id),
    CONSTRAINT timer_task_slot CHECK (slot = (start_time / 1000) % 10000000),
    CONSTRAINT timer_task_start_time CHECK (start_time BETWEEN 946684800000 AND 253402300799999),
    CONSTRAINT timer_task_counts CHECK (
        attempts >= 0 AND failures >= 0 AND revision >= 1 AND life >= 1 AND shard >= 0
    ),
    CONSTRAINT timer_task_biz_id CHECK (octet_length(biz_id) BETWEEN 1 AND 256),
    -- A pending task has no end; a settled one has an end, an expiry and no lease; a moved one
    -- has an address and nothing else.
    CONSTRAINT timer_task_status CHECK (
        CASE status
            WHEN 0 THEN finish_time IS NULL AND expire_at IS NULL AND moved_to IS NULL
            WHEN 4 THEN moved_to IS NOT NULL AND expire_at IS NULL AND lease_until IS NULL
            ELSE status BETWEEN 1 AND 3
                AND finish_time IS NOT NULL AND expire_at IS NOT NULL
                AND lease_until IS NULL AND next_at IS NULL AND moved_to IS NULL
        END
    )
) PARTITION BY RANGE (slot);

DO $$
BEGIN
    FOR i IN 0..99 LOOP
        EXECUTE format(
            'CREATE TABLE timer_task_%s PARTITION OF timer_task FOR VALUES FROM (%s) TO (%s)'
            ' WITH (fillfactor = 70)',
            lpad(i::text, 2, '0'), i * 100000, (i + 1) * 100000
        );
    END LOOP;
END
$$;

-- One row a shard: how far its hands are and who moves them.
-- sweep_time <= current_time <= closed_to (the sequence timer_closed_to_N), always.
-- is_locked: the leader holds the shard's advisory lock, so a free one means that it is dead.
CREATE TABLE timer_pointer (
    shard          smallint PRIMARY KEY CHECK (shard BETWEEN 0 AND 4095),
    "current_time" bigint   NOT NULL,
    sweep_time     bigint   NOT NULL,
    reap_time      bigint   NOT NULL,
    leader         text,
    epoch          bigint   NOT NULL DEFAULT 0,
    lease_until    bigint   NOT NULL DEFAULT 0,
    is_locked      boolean  NOT NULL DEFAULT false,
    CONSTRAINT timer_pointer_order CHECK (sweep_time <= "current_time")
) WITH (fillfactor = 10);

-- "Look at this task again at due_at." start_time is the task's present place.
CREATE TABLE timer_requeue (
    task_id    uuid     PRIMARY KEY,
    due_at     bigint   NOT NULL,
    start_time bigint   NOT NULL,
    shard      smallint NOT NULL,
    biz_type   text     COLLATE "C" NOT NULL,
    reason     text     COLLATE "C" NOT NULL CHECK (
        reason IN (
            'near', 'retry', 'release', 'sweep', 'overflow', 'run', 'replay', 'held', 'published',
            'reserved'
        )
    )
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0
);
-- In the order of task_id, and no way to look one up: an analyze beside an old snapshot finds only
-- dead rows and says that the table is empty, and then all ways look the same to the planner. With
-- task_id itself in here each settle read all of this index: 5 ms after 50,000 tasks.
CREATE INDEX timer_requeue_due ON timer_requeue (shard, due_at, uuid_send(task_id));

-- The business's own ids. A key goes with its task.
CREATE TABLE timer_key (
    biz_type text COLLATE "C" NOT NULL,
    biz_id   text COLLATE "C" NOT NULL,
    task_id  uuid NOT NULL,
    PRIMARY KEY (biz_type, biz_id)
);

-- Dead letters: tasks in status failed, in the order they died.
CREATE TABLE timer_dead (
    task_id     uuid   PRIMARY KEY,
    finish_time bigint NOT NULL,
    biz_type    text   COLLATE "C" NOT NULL,
    http_status smallint
);
CREATE INDEX timer_dead_finish ON timer_dead (biz_type, finish_time);

-- One row for each attempt that did not finish its task.
CREATE TABLE timer_attempt (
    task_id          uuid     NOT NULL,
    attempt          integer  NOT NULL,
    life             smallint NOT NULL,
    outcome          text     COLLATE "C" NOT NULL CHECK (
        outcome IN ('retry', 'released', 'failed', 'cancelled', 'lost', 'superseded')
    ),
    due_time         bigint,
    published_time   bigint,
    started_time     bigint,
    duration_ms      integer,
    config_version   bigint,
    http_status      smallint,
    error_class      text COLLATE "C",
    error            text,
    response_excerpt text,
    remote_address   text COLLATE "C",
    broker           text COLLATE "C",
    PRIMARY KEY (task_id, attempt)
);

-- Lines of business. Every change draws a new version; writers of it queue up, so that versions
-- commit in their order and "has anything changed?" is one look at the highest.
CREATE SEQUENCE timer_biz_version;
CREATE TABLE timer_biz (
    biz_type    text   COLLATE "C" PRIMARY KEY,
    version     bigint NOT NULL UNIQUE,
    config      jsonb  NOT NULL,
    secrets     jsonb  NOT NULL DEFAULT '[]',
    create_time bigint NOT NULL,
    update_time bigint NOT NULL
);

-- Daemons and brokers alive: each says so every few seconds.
CREATE TABLE timer_node (
    node      text   COLLATE "C" PRIMARY KEY,
    role      text   COLLATE "C" NOT NULL CHECK (role IN ('daemon', 'broker')),
    version   text   NOT NULL,
    started   bigint NOT NULL,
    heartbeat bigint NOT NULL
);
