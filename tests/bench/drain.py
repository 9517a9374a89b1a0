"""10,000 timers due at one instant: how fast they are called back, with two broker workers."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Final

from tests.bench import timers
from tests.bench.figure import Row, at_least
from tests.bench.product import Product
from tests.bench.sink import Sink

TIMERS: Final = 10_000
PER_S_MIN: Final = 6_000
AHEAD_S: Final = 8
WARM: Final = 1_000
BARE_CALLS: Final = 20_000
TIMEOUT_S: Final = 60


async def measure() -> list[Row]:
    """Submit them, wait for the instant, and count from it to the last arrival."""
    async with Sink() as sink, Product() as product:
        await product.configure(timers.BIZ_TYPE, callback_url=sink.url)
        bare_per_s = await bare(sink)
        await warm_up(product, sink)
        instant_ms = (int(time.time()) + AHEAD_S) * 1000
        await timers.send(product, timers.batches([instant_ms] * TIMERS))
        assert time.time() * 1000 < instant_ms - 2_000, "too late to be a test of the hand"
        come = await sink.wait(TIMERS, AHEAD_S + TIMEOUT_S)
        arrivals = await sink.records()
    assert come == len({arrival.task_id for arrival in arrivals}) == TIMERS, come
    first_ms = arrivals[0].arrival_ns / 1e6 - instant_ms
    last_ms = arrivals[-1].arrival_ns / 1e6 - instant_ms
    per_s = TIMERS / last_ms * 1000
    return [
        at_least(
            f"{TIMERS:,} timers due at one instant: drain rate",
            PER_S_MIN,
            per_s,
            "/s",
            first_ms=first_ms,
            last_ms=last_ms,
        ),
        Row(
            "  its ratio to the bare loop over the aiohttp transport",
            "",
            f"{per_s / bare_per_s:.2f} (bare: {bare_per_s:,.0f}/s)",
            first_ms >= 0,
            {"bare_per_s": bare_per_s, "ratio": per_s / bare_per_s},
        ),
    ]


async def warm_up(product: Product, sink: Sink) -> None:
    """Some callbacks beforehand: connections, prepared statements, code that runs first."""
    await sink.reset()
    await timers.send(product, timers.batches([int(time.time() * 1000)] * WARM))
    assert await sink.wait(WARM, TIMEOUT_S) == WARM
    await sink.reset()


async def bare(sink: Sink) -> float:
    """Calls a second of the bare loop, against the same sink."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.bare", sink.url, str(BARE_CALLS)),
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await process.communicate()
    assert process.returncode == 0
    return float(output)
