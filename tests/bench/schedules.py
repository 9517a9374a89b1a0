"""10,000 schedules of which an hour is to come: how long the daemon's step takes."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from tests.bench.figure import Row
from tests.bench.product import Product

COUNT: Final = 10_000
EACH: Final = 12  # every five minutes
SECONDS_MAX: Final = 30.0
TIMEOUT_S: Final = 300.0
POLL_S: Final = 0.1

# As a server finds them that was away for some hours: nothing of them is on the wheel. None is
# missed so far that it would be called, for each begins now.
INSERT: Final = f"""
INSERT INTO timer_schedule (
    schedule_id, shard, biz_type, name, version, create_time, update_time, next_time, enabled,
    cron, timezone, misfire, misfire_after, overlap, jitter
)
SELECT gen_random_uuid(), 0, 'default', 's' || g.n, 1, t.now, t.now, t.now, true,
    (g.n % 5) || '-59/5 * * * *', (CAST(
        '{{UTC,America/New_York,Asia/Shanghai,Australia/Lord_Howe}}' AS text[]
    ))[1 + g.n % 4], 'skip', 60000, 'allow', 0
FROM generate_series(1, {COUNT}) AS g(n)
CROSS JOIN (SELECT wheel_now_ms() AS now) AS t
"""
LEFT: Final = """
SELECT count(*) FROM timer_schedule WHERE next_time <= wheel_now_ms() + 1800000
"""
TASKS: Final = "SELECT count(*) FROM timer_task WHERE schedule_id IS NOT NULL"


async def measure() -> list[Row]:
    """From the first page of them to the last: the daemon looks for some each ten seconds only."""
    async with Product() as product:
        await product.sql(INSERT)
        asked_s = began_s = time.monotonic()
        while left := (await product.sql(LEFT))[0][0]:
            if left == COUNT:
                began_s = time.monotonic()
            assert time.monotonic() - asked_s < TIMEOUT_S
            await asyncio.sleep(POLL_S)
        took_s = time.monotonic() - began_s
        ((tasks,),) = await product.sql(TASKS)
    return [
        Row(
            f"an hour of {COUNT:,} schedules put on the wheel",
            f"{SECONDS_MAX:g} s",
            f"{took_s:.1f} s ({tasks:,} occurrences)",
            took_s < SECONDS_MAX and tasks >= COUNT * (EACH - 1),
            {"seconds": took_s, "occurrences": tasks},
        )
    ]
