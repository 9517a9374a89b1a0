"""200 timers a second at random milliseconds for 30 s: lateness, with and without a full wheel."""

from __future__ import annotations

import random
import time
from typing import Final

from tests.bench import timers
from tests.bench.figure import Lateness, Row, lateness
from tests.bench.product import Product
from tests.bench.sink import Sink

PER_S: Final = 200
FOR_S: Final = 30
AHEAD_S: Final = 8
TIMEOUT_S: Final = 30
P50_MS_MAX: Final = 2.0
P99_MS_MAX: Final = 8.0

FAR: Final = 1_000_000
FAR_FROM_S: Final = 86_400
FAR_TO_S: Final = 30 * 86_400
RATIO_MAX: Final = 1.2
TURNS: Final = 3


async def measure() -> list[Row]:
    """On an empty wheel."""
    async with Sink() as sink, Product() as product:
        await product.configure(timers.BIZ_TYPE, callback_url=sink.url)
        return [_row(lateness(await late_of(product, sink, FOR_S)))]


async def measure_with_far() -> list[Row]:
    """
    Two products side by side, one with a million timers pending in the days to come; measured in
    turns, so that what else the machine does meets both.
    """
    empty_ms: list[float] = []
    full_ms: list[float] = []
    async with Sink() as sink, Product() as empty, Product() as full:
        for product in (empty, full):
            await product.configure(timers.BIZ_TYPE, callback_url=sink.url)
        await load_far(full, FAR)
        # What loading a million rows leaves to be done is not what is measured here.
        await full.sql("VACUUM (ANALYZE) timer_task")
        await full.sql("CHECKPOINT")
        for _ in range(TURNS):
            empty_ms += await late_of(empty, sink, FOR_S // TURNS)
            full_ms += await late_of(full, sink, FOR_S // TURNS)
    without, beside = lateness(empty_ms), lateness(full_ms)
    ratios = {"p50": beside.p50 / without.p50, "p99": beside.p99 / without.p99}
    return [
        Row(
            f"  the same with {FAR:,} far timers pending",
            f"within {RATIO_MAX} x",
            f"p50 {beside.p50:.2f}, p99 {beside.p99:.2f} ms"
            f" ({ratios['p50']:.2f} x and {ratios['p99']:.2f} x of"
            f" {without.p50:.2f} and {without.p99:.2f})",
            not beside.early and max(ratios.values()) <= RATIO_MAX,
            {f"empty_{name}": value for name, value in without._asdict().items()}
            | {f"full_{name}": value for name, value in beside._asdict().items()},
        )
    ]


async def load_far(product: Product, count: int) -> None:
    """Fill the wheel with timers at random moments of the next month, tomorrow on."""
    dice = random.Random(1)
    now_s = int(time.time())
    left = count
    while left > 0:
        # Some at a time: the bodies of a million are 200 MB.
        size = min(left, 10 * timers.BATCH)
        moments = [
            dice.randrange((now_s + FAR_FROM_S) * 1000, (now_s + FAR_TO_S) * 1000)
            for _ in range(size)
        ]
        await timers.send(product, timers.batches(moments))
        left -= size


def _row(found: Lateness) -> Row:
    return Row(
        f"{PER_S}/s at random milliseconds for {FOR_S} s: lateness",
        f"p50 {P50_MS_MAX:g}, p99 {P99_MS_MAX:g} ms, none early",
        f"p50 {found.p50:.2f}, p99 {found.p99:.2f}, longest {found.longest:.1f} ms,"
        f" early {found.early}",
        found.p50 <= P50_MS_MAX and found.p99 <= P99_MS_MAX and not found.early,
        dict(found._asdict()),
    )


async def late_of(product: Product, sink: Sink, for_s: int) -> list[float]:
    """Submit them all, each on time by itself; the lateness of every arrival."""
    await sink.reset()
    dice = random.Random(2)
    count = PER_S * for_s
    first_ms = (int(time.time()) + AHEAD_S) * 1000
    moments = [first_ms + dice.randrange(for_s * 1000) for _ in range(count)]
    await timers.send(product, timers.batches(moments))
    assert time.time() * 1000 < first_ms - 2_000, "too late to be a test of the hand"
    await sink.wait(count, AHEAD_S + for_s + TIMEOUT_S)
    arrivals = await sink.records()
    assert len(arrivals) == len({arrival.task_id for arrival in arrivals}) == count
    return [arrival.late_ms for arrival in arrivals]
