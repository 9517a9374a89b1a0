"""
An endpoint that is down for three hours, at PER_S tasks a second: what becomes of them, how soon
all is well again, and whether new work waits for the old. Then a pause, with 10,000 waiting.

The clock runs FASTER than the machine's while the endpoint is down, so three hours take three
minutes. PER_S is meant of the machine's seconds: publishing, holding and the backlog's hourly
return cost it what they would cost FASTER times as many tasks at the common pace of time. What
comes after is measured at that common pace.
"""

from __future__ import annotations

import asyncio
import random
import time
from typing import Final

from tests.bench import timers
from tests.bench.figure import Row, lateness
from tests.bench.product import Product
from tests.bench.sink import Sink
from tests.fix_clock import SET

PER_S: Final = 500
DOWN_S: Final = 10_800
FASTER: Final = 60
STEP_S: Final = 0.25
# From the first of the load's commits to the first moment that is due, by the clock.
AHEAD_S: Final = 30
# The breaker's longest wait for its next probe, and a second of the machine.
PROBED_S_MAX: Final = 300 + FASTER
DRAINED_S_MAX: Final = 300

FRESH_PER_S: Final = 20
FRESH_S: Final = 20
FRESH_AHEAD_S: Final = 4
FRESH_P99_MS_MAX: Final = 1_000.0

PAUSED: Final = 10_000
HELD_S_MAX: Final = 30
POLL_S: Final = 0.25

PENDING: Final = "SELECT count(*) FROM timer_task WHERE status = 0"
HELD: Final = "SELECT count(*) FROM timer_requeue WHERE reason = 'held'"
ENDS: Final = "SELECT count(*) FILTER (WHERE status = 2), max(failures) FROM timer_task"


async def measure() -> list[Row]:
    """Outage and pause in one product, of one biz_type."""
    count = PER_S * DOWN_S // FASTER
    async with Sink() as sink, Product("--test-clock") as product:
        await product.configure(timers.BIZ_TYPE, callback_url=sink.url)
        await sink.answer(503)
        clock = Clock(product)
        await clock.show(0)
        await _load(product, clock, count)
        await clock.run(AHEAD_S + DOWN_S)
        await sink.answer(200)
        await sink.reset()
        probed_s = await _until_probed(sink, clock)
        began_s = time.monotonic()
        fresh = asyncio.create_task(_fresh_late_ms(product, sink, clock))
        await _until(product, PENDING, 0, DRAINED_S_MAX)
        drained_s = time.monotonic() - began_s
        late = lateness(await fresh)
        ((dead, failures),) = await product.sql(ENDS)
        paused = await _pause(product, sink, clock)
    return [
        Row(
            f"an endpoint down for 3 h with {count:,} tasks: dead, most failures of one",
            "0 dead",
            f"{dead} dead, {failures} failures",
            dead == 0,
            {"dead": dead, "failures": failures},
        ),
        Row(
            "  recovered: first probe, all settled after that",
            f"{PROBED_S_MAX} s, {DRAINED_S_MAX} s",
            f"{probed_s:.0f} s, {drained_s:.0f} s",
            probed_s <= PROBED_S_MAX and drained_s <= DRAINED_S_MAX,
            {"probed_s": probed_s, "drained_s": drained_s},
        ),
        Row(
            f"  new tasks at {FRESH_PER_S}/s meanwhile: p99 lateness",
            f"{FRESH_P99_MS_MAX:,.0f} ms",
            f"{late.p99:.0f} ms, p50 {late.p50:.0f}, early {late.early}",
            late.p99 <= FRESH_P99_MS_MAX and not late.early,
            dict(late._asdict()),
        ),
        paused,
    ]


class Clock:
    """The product's clock: shown ahead of the machine's by what is asked for."""

    def __init__(self, product: Product) -> None:
        self._product = product
        self.ahead_s = 0.0

    async def show(self, ahead_s: float) -> None:
        """So far ahead, and running."""
        self.ahead_s = ahead_s
        shown_us = int((time.time() + ahead_s) * 1e6)
        await self._product.sql(SET % {"shown_us": shown_us, "frozen": False})

    def now_ms(self) -> int:
        """What it says, to within some milliseconds."""
        return int((time.time() + self.ahead_s) * 1000)

    async def run(self, for_s: float) -> None:
        """Let it run FASTER until for_s of it have passed."""
        from_s, began_s = self.ahead_s, time.monotonic()
        while (passed_s := time.monotonic() - began_s) * FASTER < for_s:
            await self.show(from_s + passed_s * (FASTER - 1))
            await asyncio.sleep(STEP_S)
        await self.show(from_s + for_s * (1 - 1 / FASTER))


async def _load(product: Product, clock: Clock, count: int) -> None:
    dice = random.Random(11)
    first_ms = clock.now_ms() + AHEAD_S * 1000
    moments = [first_ms + dice.randrange(DOWN_S * 1000) for _ in range(count)]
    await timers.send(product, timers.batches(moments))
    assert clock.now_ms() < first_ms, "the load took too long"


async def _until_probed(sink: Sink, clock: Clock) -> float:
    """Seconds of the clock until the first call that finds the endpoint at work."""
    began_ms = clock.now_ms()
    while not await sink.wait(1, STEP_S):
        await clock.run(STEP_S * FASTER)
        assert clock.now_ms() - began_ms < 10 * PROBED_S_MAX * 1000, "nobody looks any more"
    return (clock.now_ms() - began_ms) / 1000


async def _fresh_late_ms(product: Product, sink: Sink, clock: Clock) -> list[float]:
    """The lateness of new tasks of the same biz_type, at FRESH_PER_S for FRESH_S."""
    first_ms = clock.now_ms() + FRESH_AHEAD_S * 1000
    count = FRESH_PER_S * FRESH_S
    moments = [first_ms + number * 1000 // FRESH_PER_S for number in range(count)]
    await timers.send(product, timers.batches(moments))
    await asyncio.sleep(FRESH_AHEAD_S + FRESH_S)
    await _until(product, f"{PENDING} AND start_time >= {first_ms}", 0, DRAINED_S_MAX)
    late_ms = [
        arrival.late_ms + clock.ahead_s * 1000
        for arrival in await sink.records()
        if arrival.start_time_ms >= first_ms and arrival.attempt == 1
    ]
    assert len(late_ms) == count, len(late_ms)
    return late_ms


async def _pause(product: Product, sink: Sink, clock: Clock) -> Row:
    """PAUSED tasks come due while their biz_type is paused; then it goes on."""
    await sink.reset()
    await product.call("POST", f"/v1/biz/{timers.BIZ_TYPE}/pause", {})
    await asyncio.sleep(2)
    began_s = time.monotonic()
    await timers.send(product, timers.batches([clock.now_ms()] * PAUSED))
    await _until(product, HELD, PAUSED, HELD_S_MAX)
    held_s = time.monotonic() - began_s
    called = len(await sink.records())
    await product.call("POST", f"/v1/biz/{timers.BIZ_TYPE}/resume", {})
    began_s = time.monotonic()
    await sink.wait(PAUSED, HELD_S_MAX)
    resumed_s = time.monotonic() - began_s
    tasks = [arrival.task_id for arrival in await sink.records()]
    return Row(
        f"{PAUSED:,} due while paused: held, called after resume",
        f"{HELD_S_MAX} s each, none before, all once",
        f"{held_s:.1f} s, {resumed_s:.1f} s, {called} before, {len(tasks):,} calls",
        not called and len(set(tasks)) == len(tasks) == PAUSED,
        {"held_s": held_s, "resumed_s": resumed_s, "calls": len(tasks)},
    )


async def _until(product: Product, query: str, count: int, timeout_s: float) -> None:
    deadline_s = time.monotonic() + timeout_s
    while (found := (await product.sql(query))[0][0]) != count:
        assert time.monotonic() < deadline_s, f"{found} and not {count}: {query}"
        await asyncio.sleep(POLL_S)
