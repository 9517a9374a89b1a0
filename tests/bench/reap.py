"""What expired goes: 500,000 tasks of one partition, and what others feel of it."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import psycopg

from tests.bench import precision, timers
from tests.bench.figure import Row, lateness
from tests.bench.product import Product
from tests.bench.sink import Sink

# Those with a biz_id are deleted one by one, with their keys; the others go with the partition.
WITH_KEY: Final = 100_000
ALONE: Final = 400_000
SECONDS_MAX: Final = 30.0
RATIO_MAX: Final = 1.2
BESIDE_S: Final = 15
TIMEOUT_S: Final = 120.0
POLL_S: Final = 0.25
PARTITION_S: Final = 100_000
DAYS_AGO: Final = 33

# Under the lock that the reap hand waits for, so that it finds all of them or none.
LOAD: Final = """
LOCK TABLE {partition} IN ACCESS EXCLUSIVE MODE;
CREATE TEMPORARY TABLE loaded ON COMMIT DROP AS
SELECT m.moment, i <= {with_key} AS has_key, i, CAST(
    lpad(to_hex(m.moment), 12, '0') || '80008' || substr(md5(CAST(i AS text)), 1, 15) AS uuid
) AS task_id
FROM generate_series(1, {rows}) AS i
CROSS JOIN LATERAL (SELECT {first_ms} + CAST(i AS bigint) * 90000000 / {rows} AS moment) AS m;
INSERT INTO timer_task (
    slot, shard, start_time, task_id, create_time, biz_type, biz_id, status, attempts,
    finish_time, expire_at, biz_data
)
SELECT l.moment / 1000 % 10000000, 0, l.moment, l.task_id, l.moment, '{biz_type}',
    CASE WHEN l.has_key THEN 'old-' || l.i END, 1, 1, l.moment, l.moment + 2592000000,
    repeat('x', 115)::bytea
FROM loaded AS l;
INSERT INTO timer_key (biz_type, biz_id, task_id)
SELECT '{biz_type}', 'old-' || l.i, l.task_id FROM loaded AS l WHERE l.has_key;
SELECT wheel_ledger_v1(
    array_agg(1 | 32), array_agg(CAST('{biz_type}' AS text)),
    array_agg(l.moment), array_agg(l.moment)
) FROM loaded AS l;
"""


async def measure() -> list[Row]:
    """Others at 200/s, alone and while the tasks of a month ago go."""
    first_s = (int(time.time()) - DAYS_AGO * 86_400) // PARTITION_S * PARTITION_S
    partition = f"timer_task_{first_s % 10_000_000 // PARTITION_S:02d}"
    load = LOAD.format(
        partition=partition,
        with_key=WITH_KEY,
        rows=WITH_KEY + ALONE,
        first_ms=first_s * 1000,
        biz_type=timers.BIZ_TYPE,
    )
    async with Sink() as sink, Product() as product:
        await product.configure(timers.BIZ_TYPE, callback_url=sink.url)
        alone = lateness(await precision.late_of(product, sink, BESIDE_S))
        async with await psycopg.AsyncConnection.connect(product.database_url) as connection:
            await connection.execute(load.encode())
            others = asyncio.create_task(precision.late_of(product, sink, BESIDE_S))
            await asyncio.sleep(precision.AHEAD_S)
            await connection.commit()
        began_s = time.monotonic()
        while await product.sql(f"SELECT 1 FROM {partition} LIMIT 1"):
            assert time.monotonic() < began_s + TIMEOUT_S, "nothing reaps"
            await asyncio.sleep(POLL_S)
        took_s = time.monotonic() - began_s
        beside = lateness(await others)
        ((keys, sizes),) = await product.sql(
            f"SELECT (SELECT count(*) FROM timer_key), pg_total_relation_size('{partition}')"
        )
    ratio = beside.p99 / alone.p99
    return [
        Row(
            f"{WITH_KEY + ALONE:,} expired tasks go, {WITH_KEY:,} of them with keys",
            f"{SECONDS_MAX:g} s",
            f"{took_s:.1f} s",
            took_s < SECONDS_MAX and not keys,
            {"seconds": took_s, "bytes_left": sizes},
        ),
        Row(
            f"  others at {precision.PER_S}/s meanwhile: p99 lateness",
            f"within {RATIO_MAX} x",
            f"{beside.p99:.2f} ms ({ratio:.2f} x of {alone.p99:.2f})",
            ratio <= RATIO_MAX and not beside.early,
            {"alone_p99": alone.p99, "beside_p99": beside.p99},
        ),
    ]
