"""10,000 timers due at one instant: how fast they are called back, with two broker workers."""

from __future__ import annotations

import asyncio
import sys
import time
from statistics import median
from typing import Final

from tests.bench import timers
from tests.bench.figure import Row, at_least
from tests.bench.product import Product
from tests.bench.sink import Sink

TIMERS: Final = 10_000
PER_S_MIN: Final = 6_000
AHEAD_S: Final = 8
TURNS: Final = 3
WARM: Final = 1_000
BARE_CALLS: Final = 20_000
TIMEOUT_S: Final = 60


async def measure() -> list[Row]:
    """
    In turns with the bare loop, so that what else the machine does meets both. The figure is the
    median of the turns.
    """
    rates: list[float] = []
    bares: list[float] = []
    async with Sink() as sink, Product() as product:
        await product.configure(timers.BIZ_TYPE, callback_url=sink.url)
        await warm_up(product, sink)
        for _ in range(TURNS):
            bares.append(await bare(sink))
            rates.append(await at_an_instant(product, sink))
    ratio = median(rate / bare for rate, bare in zip(rates, bares, strict=True))
    return [
        at_least(
            f"{TIMERS:,} timers due at one instant: drain rate",
            PER_S_MIN,
            median(rates),
            "/s",
            least=min(rates),
            most=max(rates),
        ),
        Row(
            "  its ratio to the bare loop over the aiohttp transport",
            "",
            f"{ratio:.2f} (bare: {median(bares):,.0f}/s)",
            True,
            {"bare_per_s": median(bares), "ratio": ratio},
        ),
    ]


async def at_an_instant(product: Product, sink: Sink, clock_ahead_ms: int = 0) -> float:
    """
    Submit them, wait for the instant, and count from it to the last arrival: callbacks a second.

    clock_ahead_ms: how far the database's clock was set ahead.
    """
    await sink.reset()
    instant_ms = (int(time.time()) + AHEAD_S) * 1000
    await timers.send(product, timers.batches([instant_ms + clock_ahead_ms] * TIMERS))
    assert time.time() * 1000 < instant_ms - 2_000, "too late to be a test of the hand"
    come = await sink.wait(TIMERS, AHEAD_S + TIMEOUT_S)
    arrivals = await sink.records()
    assert come == len({arrival.task_id for arrival in arrivals}) == TIMERS, come
    assert arrivals[0].arrival_ns / 1e6 >= instant_ms, "a callback came early"
    return TIMERS / (arrivals[-1].arrival_ns / 1e6 - instant_ms) * 1000


async def warm_up(product: Product, sink: Sink) -> None:
    """Some callbacks beforehand: connections, prepared statements, code that runs first."""
    await sink.reset()
    await timers.send(product, timers.batches([int(time.time() * 1000)] * WARM))
    assert await sink.wait(WARM, TIMEOUT_S) == WARM


async def bare(sink: Sink) -> float:
    """Calls a second of the bare loop, against the same sink."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.bare", sink.url, str(BARE_CALLS)),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return float(output)
