"""
Limits: a rate kept by two brokers together; what limits cost where they do not bind; one hanging
endpoint beside a hundred healthy biz_types.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from statistics import median
from typing import Final

from tests.bench import drain, timers
from tests.bench.figure import Row, at_least, lateness
from tests.bench.product import Product
from tests.bench.sink import Arrival, Sink

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

HEALTHY: Final = 100
PER_S: Final = 2
FOR_S: Final = 15
HANGING: Final = 100_000
HANGING_TIMEOUT_S: Final = 10
P99_RATIO_MAX: Final = 1.5


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


async def measure_isolation() -> list[Row]:
    """HEALTHY biz_types, alone and beside one whose endpoint hangs; two products, in turns."""
    names = [f"healthy-{index}" for index in range(HEALTHY)]
    without_ms: list[float] = []
    beside_ms: list[float] = []
    async with Sink() as sink, hanging() as url, Product() as calm, Product() as troubled:
        for product in (calm, troubled):
            for name in names:
                await product.configure(name, callback_url=sink.url)
        await troubled.configure("hanging", callback_url=url, timeout=HANGING_TIMEOUT_S)
        due_ms = (int(time.time()) + 2 * AHEAD_S) * 1000
        await timers.send(troubled, timers.batches([due_ms] * HANGING, "hanging"))
        for _ in range(2):
            without_ms += await _late_ms(calm, sink, names)
            beside_ms += await _late_ms(troubled, sink, names)
    without, beside = lateness(without_ms), lateness(beside_ms)
    ratio = beside.p99 / without.p99
    return [
        Row(
            f"{HEALTHY} biz_types at {PER_S}/s beside one that hangs with {HANGING:,} due: p99",
            f"{P99_RATIO_MAX} x of without",
            f"{beside.p99:.1f} ms, {ratio:.2f} x of {without.p99:.1f}, early {beside.early}",
            ratio <= P99_RATIO_MAX and not beside.early,
            {"p99_ms": beside.p99, "without_p99_ms": without.p99, "ratio": ratio},
        )
    ]


@asynccontextmanager
async def hanging() -> AsyncIterator[str]:
    """The URL of an endpoint that takes every connection and says nothing."""
    open_ones: set[asyncio.StreamWriter] = set()

    async def keep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        open_ones.add(writer)
        while await reader.read(65_536):
            pass
        open_ones.discard(writer)
        writer.close()

    server = await asyncio.start_server(keep, "127.0.0.1", 0, backlog=1024)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/callback"
    finally:
        server.close()
        for writer in open_ones:
            writer.close()


async def _late_ms(product: Product, sink: Sink, names: Sequence[str]) -> list[float]:
    """The lateness of PER_S tasks a second of each name for FOR_S seconds, at random moments."""
    await sink.reset()
    dice = random.Random(3)
    first_ms = (int(time.time()) + 2 * AHEAD_S) * 1000
    count = PER_S * FOR_S
    wires = [
        timers.batch([first_ms + dice.randrange(FOR_S * 1000) for _ in range(count)], name)
        for name in names
    ]
    await timers.send(product, wires)
    assert time.time() * 1000 < first_ms - 1_500, "too late to be a test of the hand"
    await sink.wait(count * len(names), 2 * AHEAD_S + FOR_S + 30)
    arrivals: list[Arrival] = await sink.records()
    assert len({arrival.task_id for arrival in arrivals}) == count * len(names), len(arrivals)
    return [arrival.late_ms for arrival in arrivals if arrival.attempt == 1]
