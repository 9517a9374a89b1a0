"""Every audit on 10,000,000 tasks: three settled ones of a month to each one of ten days ahead."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from tests.bench.figure import Row
from tests.bench.product import Product
from wheel_timer.store.audit import audit_files

TASKS: Final = 10_000_000
CHUNK: Final = 250_000
SETTLED_OF_4: Final = 3
BIZ_TYPES: Final = 100
# What the server allows each.
SECONDS_MAX: Final = 300.0
DAY_MS: Final = 86_400_000
KEPT_MS: Final = 60 * DAY_MS
MARGIN_MS: Final = 3_600_000
# Of each 200 settled ones one has failed, and of each 50 one needed a second attempt; half have a
# biz_id. The moments are in no order, as submits are not: the factor is prime to the number.
FACTOR: Final = 2_654_435_761

LOAD: Final = """
CREATE TEMPORARY TABLE loaded AS
SELECT i, t.moment, t.status, CAST(
    lpad(to_hex(t.moment), 12, '0') || '80008' || substr(md5(CAST(i AS text)), 1, 15) AS uuid
) AS task_id, 'line-' || i % {biz_types} AS biz_type
FROM generate_series({first}, {first} + {chunk} - 1) AS i
CROSS JOIN LATERAL (
    SELECT CAST(i AS bigint) * {factor} % {tasks} AS place
) AS p
CROSS JOIN LATERAL (
    SELECT
        CASE
            WHEN i % 4 < {settled_of_4}
                THEN {now_ms} - {margin_ms} - p.place * 30 * {day_ms} / {tasks}
            ELSE {now_ms} + {margin_ms} + p.place * 10 * {day_ms} / {tasks}
        END AS moment,
        CASE WHEN i % 4 >= {settled_of_4} THEN 0 WHEN i % 200 = 0 THEN 2 ELSE 1 END AS status
) AS t;
INSERT INTO timer_task (
    slot, shard, start_time, task_id, create_time, biz_type, biz_id, status, attempts,
    first_attempt_time, started, published, duration, finish_time, expire_at, http_status, biz_data
)
SELECT l.moment / 1000 % 10000000, 0, l.moment, l.task_id, l.moment - {margin_ms}, l.biz_type,
    CASE WHEN l.i % 2 = 0 THEN 'order-' || l.i END, l.status,
    CASE WHEN l.status = 0 THEN 0 WHEN l.i % 50 = 0 THEN 2 ELSE 1 END,
    s.moment, s.moment, s.moment - 900, CASE WHEN l.status > 0 THEN 20 END, s.moment + 20,
    s.moment + {kept_ms}, CASE l.status WHEN 1 THEN 200 WHEN 2 THEN 500 END,
    convert_to(repeat('x', 115), 'UTF8')
FROM loaded AS l
CROSS JOIN LATERAL (SELECT CASE WHEN l.status > 0 THEN l.moment END AS moment) AS s;
INSERT INTO timer_attempt (
    task_id, attempt, life, outcome, due_time, published_time, started_time, duration_ms,
    http_status, error_class
)
SELECT l.task_id, 1, 1, 'retry', l.moment, l.moment - 900, l.moment, 20, 500, 'status'
FROM loaded AS l WHERE l.status > 0 AND l.i % 50 = 0;
INSERT INTO timer_key (biz_type, biz_id, task_id)
SELECT l.biz_type, 'order-' || l.i, l.task_id FROM loaded AS l WHERE l.i % 2 = 0;
INSERT INTO timer_dead (task_id, finish_time, biz_type, http_status)
SELECT l.task_id, l.moment + 20, l.biz_type, 500 FROM loaded AS l WHERE l.status = 2;
SELECT wheel_ledger_v1(
    array_agg(1 | CASE l.status WHEN 1 THEN 32 WHEN 2 THEN 64 ELSE 0 END), array_agg(l.biz_type),
    array_agg(l.moment), array_agg(l.moment - {margin_ms})
) FROM loaded AS l;
DROP TABLE loaded;
"""


def chunks(biz_types: int, now_ms: int) -> Iterator[str]:
    """The statements that make the tasks, of so many biz_types."""
    for first in range(0, TASKS, CHUNK):
        yield LOAD.format(
            first=first,
            chunk=CHUNK,
            tasks=TASKS,
            factor=FACTOR,
            biz_types=biz_types,
            settled_of_4=SETTLED_OF_4,
            now_ms=now_ms,
            day_ms=DAY_MS,
            kept_ms=KEPT_MS,
            margin_ms=MARGIN_MS,
        )


async def measure() -> list[Row]:
    """Built by SQL beside a service that runs, then audited as psql would."""
    async with Product() as product:
        for load in chunks(BIZ_TYPES, int(time.time() * 1000)):
            await product.sql(load)
        await product.sql("VACUUM ANALYZE")
        rows = []
        for audit in audit_files():
            began_s = time.monotonic()
            found = await product.sql(audit.text)
            took_s = time.monotonic() - began_s
            holds = audit.kind == "report" or not found
            rows.append(
                Row(
                    f"audit {audit.name} on {TASKS:,} tasks",
                    f"{SECONDS_MAX:g} s",
                    f"{took_s:.1f} s, {len(found):,} rows",
                    took_s < SECONDS_MAX and holds,
                    {"seconds": took_s, "rows": len(found)},
                )
            )
    return rows
