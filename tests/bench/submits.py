"""Submits of one task a request over 64 connections, and of batches."""

from __future__ import annotations

import random
import time
from typing import Final

from tests.bench import timers
from tests.bench.figure import Row, at_least, percentile
from tests.bench.product import Product
from tests.bench.wire import Load

CONNECTIONS: Final = 64
SINGLES_PER_S_MIN: Final = 5_000
# Arrivals come at twice the bound, so that what is measured is what the product takes.
OFFERED_PER_S: Final = 2 * SINGLES_PER_S_MIN
SINGLES: Final = 40_000
STEADY: Final = 10_000
STEADY_PER_S: Final = 2_000
BATCHED_PER_S_MIN: Final = 60_000
BATCHED: Final = 600_000
FROM_S: Final = 86_400
TO_S: Final = 30 * 86_400
# Nothing of this figure is called back.
NOWHERE: Final = "http://127.0.0.1:9/"


async def measure_singles() -> list[Row]:
    """Far timers, at random moments of the next month."""
    async with Product() as product:
        await product.configure(timers.BIZ_TYPE, callback_url=NOWHERE)
        async with Load(product.port, CONNECTIONS) as load:
            moments = far_moments(STEADY, seed=3)
            steady_s = await load.arrive([timers.single(at) for at in moments], STEADY_PER_S)
            wires = [timers.single(at) for at in far_moments(SINGLES, seed=4)]
            began_s = time.perf_counter()
            await load.arrive(wires, OFFERED_PER_S)
            per_s = SINGLES / (time.perf_counter() - began_s)
        ((stored,),) = await product.sql("SELECT count(*) FROM timer_task")
    assert stored == STEADY + SINGLES, stored
    steady_s.sort()
    p50_ms, p99_ms = percentile(steady_s, 50) * 1000, percentile(steady_s, 99) * 1000
    return [
        at_least(
            f"single submits over HTTP, {CONNECTIONS} connections", SINGLES_PER_S_MIN, per_s, "/s"
        ),
        Row(
            f"  answered at {STEADY_PER_S:,}/s",
            "",
            f"p50 {p50_ms:.2f}, p99 {p99_ms:.2f} ms",
            True,
            {"p50_ms": p50_ms, "p99_ms": p99_ms},
        ),
    ]


async def measure_batches() -> list[Row]:
    """Batches of 10,000, four at a time: as JSON documents, then as lines."""
    async with Product() as product:
        await product.configure(timers.BIZ_TYPE, callback_url=NOWHERE)
        documents = timers.batches(far_moments(BATCHED, seed=5))
        json_per_s = await _per_s(product, documents)
        lines = [
            timers.ndjson(far_moments(timers.BATCH, seed=seed))
            for seed in range(6, 6 + BATCHED // timers.BATCH)
        ]
        lines_per_s = await _per_s(product, lines)
        ((stored,),) = await product.sql("SELECT count(*) FROM timer_task")
    assert stored == 2 * BATCHED, stored
    return [
        at_least("batch submits, tasks in JSON", BATCHED_PER_S_MIN, json_per_s, "/s"),
        at_least("batch submits, tasks in NDJSON", BATCHED_PER_S_MIN, lines_per_s, "/s"),
    ]


def far_moments(count: int, seed: int) -> list[int]:
    """Random milliseconds of the next month, tomorrow on."""
    dice = random.Random(seed)
    now_s = int(time.time())
    return [dice.randrange((now_s + FROM_S) * 1000, (now_s + TO_S) * 1000) for _ in range(count)]


async def _per_s(product: Product, wires: list[bytes]) -> float:
    began_s = time.perf_counter()
    await timers.send(product, wires)
    return BATCHED / (time.perf_counter() - began_s)
