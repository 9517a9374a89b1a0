"""
Limits: a rate kept by two brokers together; what limits cost where they do not bind.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from statistics import median
from typing import Final

from tests.bench import drain, timers
from tests.bench.figure import Row, at_least
from tests.bench.product import Product
from tests.bench.sink import Sink

RATE: Final = 50
LIMITED: Final = 1_000
AHEAD_S: Final = 4
IDEAL_S: Final = LIMITED / RATE
OVER_MAX: Final = 1.05

DRAIN_RATIO_MIN: Final = 0.85
TURNS: Final = 4
# All of them, and none that binds: the rate's own bucket holds more than a turn takes.
ALL_LIMITS: Final = {
    "rate_limit": 100_000,
    "submit_rate_limit": 100_000,
    "max_concurrency": 64,
    "priority": 9,
    "breaker": {"enabled": True, "consecutive": 10},
}
NO_LIMITS: Final = {"rate_limit": None, "submit_rate_limit": None, "breaker": {"enabled": False}}


async def measure_rate() -> list[Row]:
    """LIMITED due at once, RATE a second, two brokers."""
    async with Sink() as sink, Product() as product:
        await product.configure(timers.BIZ_TYPE, callback_url=sink.url, rate_limit=RATE)
        instant_ms = (int(time.time()) + AHEAD_S) * 1000
        await timers.send(product, timers.batches([instant_ms] * LIMITED))
        await sink.wait(LIMITED, AHEAD_S + 2 * IDEAL_S)
        arrivals = await sink.records()
    times_s = [arrival.arrival_ns / 1e9 for arrival in arrivals]
    most = most_in_a_second(times_s)
    last_s = times_s[-1] - instant_ms / 1000
    tasks = len({arrival.task_id for arrival in arrivals})
    return [
        Row(
            f"{LIMITED:,} due at once at {RATE}/s, two brokers: most in any second, last",
            f"{2 * RATE}, {IDEAL_S * OVER_MAX:.1f} s, all once",
            f"{most}, {last_s:.1f} s, {tasks} of {LIMITED}, {len(arrivals)} calls",
            most <= 2 * RATE and last_s <= IDEAL_S * OVER_MAX and tasks == len(arrivals) == LIMITED,
            {"most": most, "last_s": last_s, "calls": len(arrivals)},
        )
    ]


def most_in_a_second(times_s: Sequence[float]) -> int:
    """The most that any window of a second holds. times_s: in order."""
    most, first = 0, 0
    for last, at_s in enumerate(times_s):
        while times_s[first] <= at_s - 1:
            first += 1
        most = max(most, last - first + 1)
    return most


async def measure_drain() -> list[Row]:
    """The drain with all limits switched on, in turns with the drain without."""
    ratios: list[float] = []
    async with Sink() as sink, Product() as product:
        await product.configure(timers.BIZ_TYPE, callback_url=sink.url)
        await drain.warm_up(product, sink)
        for turn in range(TURNS):
            rates = {}
            # Now the one first, now the other: each drain leaves the next one a fuller wheel.
            for limited in (turn % 2 > 0, turn % 2 == 0):
                limits = ALL_LIMITS if limited else NO_LIMITS
                await product.configure(timers.BIZ_TYPE, callback_url=sink.url, **limits)
                # Known to both brokers, and the buckets have filled.
                await asyncio.sleep(3)
                rates[limited] = await drain.at_an_instant(product, sink)
            ratios.append(rates[True] / rates[False])
    row = at_least("drain with all limits on / without", 0, 0, "")
    row.bound, row.measured = f"{DRAIN_RATIO_MIN} x", f"{median(ratios):.2f} x"
    row.ok = median(ratios) >= DRAIN_RATIO_MIN
    row.values = {"measured": median(ratios), "least": min(ratios), "most": max(ratios)}
    return [row]
