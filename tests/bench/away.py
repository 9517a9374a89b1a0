"""
Without Redis: the lateness of 200/s while it is frozen; and Redis' memory, and other lanes'
lateness, while a million tasks are due for a biz_type that is called a hundred times a second.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from typing import Final

from tests.bench import timers
from tests.bench.figure import Row, lateness
from tests.bench.product import Product
from tests.bench.sink import Arrival, Sink

AHEAD_S: Final = 6
RATE: Final = 200
FROZEN_S: Final = 10
AFTER_S: Final = 5
LATE_MS_MAX: Final = 2_000

DUE: Final = 1_000_000
LIMIT: Final = 100
CALM_RATE: Final = 50
CALM_BEFORE_S: Final = 10
CALM_AFTER_S: Final = 30
MEMORY_MB_MAX: Final = 64
# Of the hundred-and-first: a callback's own noise on two cores.
CALM_P99_RATIO_MAX: Final = 1.5
CALM_P99_MS_FLOOR: Final = 10.0
INTAKE_PER_S: Final = 10_000


async def measure_away() -> list[Row]:
    """RATE for a while, in the middle of which Redis is frozen for FROZEN_S."""
    async with Sink() as sink, Product() as product:
        await product.configure(timers.BIZ_TYPE, callback_url=sink.url)
        first_ms = (int(time.time()) + AHEAD_S) * 1000
        total = RATE * (FROZEN_S + 2 * AFTER_S)
        moments = [first_ms + n * 1000 // RATE for n in range(total)]
        await timers.send(product, timers.batches(moments))
        frozen_ms = first_ms + 1000 * AFTER_S
        redis = int((await product.redis_info())["process_id"])
        await asyncio.sleep(frozen_ms / 1000 - time.time())
        os.kill(redis, signal.SIGSTOP)
        try:
            await asyncio.sleep(FROZEN_S)
        finally:
            os.kill(redis, signal.SIGCONT)
        await sink.wait(total, 2 * AFTER_S + 60)
        arrivals = await sink.records()
    thawed_ms = frozen_ms + 1000 * FROZEN_S
    during = [a for a in arrivals if frozen_ms <= a.start_time_ms < thawed_ms]
    after = [a for a in arrivals if a.start_time_ms >= thawed_ms + 2_000]
    away, back = lateness([a.late_ms for a in during]), lateness([a.late_ms for a in after])
    once = len({a.task_id for a in arrivals})
    return [
        Row(
            f"{RATE}/s, Redis frozen for {FROZEN_S} s: p99 lateness then, and after; all, once",
            f"{LATE_MS_MAX} ms, {LATE_MS_MAX} ms; {total:,}, once",
            f"{away.p99:.0f} ms, {back.p99:.1f} ms; {once:,}, {len(arrivals):,} calls",
            away.p99 < LATE_MS_MAX
            and back.p99 < LATE_MS_MAX
            and away.early == back.early == 0
            and once == len(arrivals) == total,
            {
                "away_p50_ms": away.p50,
                "away_p99_ms": away.p99,
                "back_p99_ms": back.p99,
                "calls": len(arrivals),
            },
        )
    ]


async def measure_window(due: int = DUE) -> list[Row]:
    """`due` tasks of one second for a biz_type limited to LIMIT, beside one that has few."""
    async with Sink() as sink, Product() as product:
        await product.configure("limited", callback_url=sink.url, rate_limit=LIMIT)
        await product.configure("calm", callback_url=sink.url)
        hot_ms = (int(time.time()) + AHEAD_S + CALM_BEFORE_S + due // INTAKE_PER_S) * 1000
        await timers.send(product, timers.batches([hot_ms] * due, "limited"))
        calm = [
            hot_ms + n * 1000 // CALM_RATE
            for n in range(-CALM_RATE * CALM_BEFORE_S, CALM_RATE * CALM_AFTER_S)
        ]
        await timers.send(product, timers.batches(calm, "calm"))
        calm_ids = len(calm)
        peak_mb = 0.0
        while time.time() < hot_ms / 1000 + CALM_AFTER_S + 2:
            peak_mb = max(peak_mb, (await product.redis_info())["used_memory"] / 1e6)
            await asyncio.sleep(0.25)
        arrivals = await sink.records()
    limited = [a for a in arrivals if a.start_time_ms == hot_ms]
    others = [a for a in arrivals if a.start_time_ms != hot_ms]
    before = lateness(_late(others, hot_ms - 1000 * CALM_BEFORE_S, hot_ms))
    beside = lateness(_late(others, hot_ms, hot_ms + 1000 * CALM_AFTER_S))
    bound_ms = CALM_P99_RATIO_MAX * max(before.p99, CALM_P99_MS_FLOOR)
    calls_per_s = len(limited) / (CALM_AFTER_S + 2)
    return [
        Row(
            f"{due:,} due at {LIMIT}/s: Redis' memory, another's p99 before and then, calls",
            f"{MEMORY_MB_MAX} MB, {bound_ms:.1f} ms, {LIMIT}/s",
            f"{peak_mb:.1f} MB, {before.p99:.1f} and {beside.p99:.1f} ms, {calls_per_s:.0f}/s",
            peak_mb < MEMORY_MB_MAX
            and beside.p99 <= bound_ms
            and len(others) >= calm_ids - 1
            and 0.9 * LIMIT <= calls_per_s <= 1.1 * LIMIT,
            {
                "memory_mb": peak_mb,
                "before_p99_ms": before.p99,
                "beside_p99_ms": beside.p99,
                "beside_longest_ms": beside.longest,
                "calls_per_s": calls_per_s,
            },
        )
    ]


def _late(arrivals: Sequence[Arrival], from_ms: int, to_ms: int) -> list[float]:
    return [a.late_ms for a in arrivals if from_ms <= a.start_time_ms < to_ms]
