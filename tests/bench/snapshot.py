"""
300 timers a second beside a transaction that stays open: lateness against the same without it.

The snapshot is older than 50,000 timers that were finished since, so nothing that died with them
can be cleaned away. Half of the load is due a second after its submit, which goes the direct way,
half after three, which the hand publishes.
"""

from __future__ import annotations

import time
from typing import Final

import psycopg

from tests.bench import timers
from tests.bench.figure import Row, lateness
from tests.bench.product import Product
from tests.bench.sink import Sink
from tests.bench.wire import Load

FINISHED: Final = 50_000
PER_S: Final = 300
FOR_S: Final = 60
# Many and short: the hundred worst of a minute come in a few stalls of the machine.
TURNS: Final = 6
RATIO_MAX: Final = 1.2
AHEAD_MS: Final = (1_000, 3_000)
BEGIN_MS: Final = 500
CONNECTIONS: Final = 16
TIMEOUT_S: Final = 60


async def measure() -> list[Row]:
    """Two products side by side, measured in turns, so that what else the machine does meets
    both."""
    without_ms: list[float] = []
    beside_ms: list[float] = []
    async with Sink() as sink, Product() as free, Product() as held:
        for product in (free, held):
            await product.configure(timers.BIZ_TYPE, callback_url=sink.url)
        async with await psycopg.AsyncConnection.connect(held.database_url) as old:
            await old.set_isolation_level(psycopg.IsolationLevel.REPEATABLE_READ)
            await old.execute("SELECT count(*) FROM timer_task")
            for product in (free, held):
                await _finish(product, sink, FINISHED)
            pair = [(free, without_ms), (held, beside_ms)]
            for _ in range(TURNS):
                for product, late_ms in pair:
                    late_ms += await _late_of(product, sink, FOR_S // TURNS)
                pair.reverse()
    without, beside = lateness(without_ms), lateness(beside_ms)
    ratio = beside.p99 / without.p99
    return [
        Row(
            f"{PER_S}/s for {FOR_S} s beside a snapshot older than {FINISHED:,} finished timers",
            f"p99 within {RATIO_MAX} x",
            f"p99 {beside.p99:.2f} ms ({ratio:.2f} x of {without.p99:.2f})",
            not beside.early and ratio <= RATIO_MAX,
            {f"without_{name}": value for name, value in without._asdict().items()}
            | {f"beside_{name}": value for name, value in beside._asdict().items()},
        )
    ]


async def _finish(product: Product, sink: Sink, count: int) -> None:
    """So many timers, due now, called and finished."""
    await sink.reset()
    await timers.send(product, timers.batches([int(time.time() * 1000)] * count))
    assert await sink.wait(count, TIMEOUT_S) == count


async def _late_of(product: Product, sink: Sink, for_s: int) -> list[float]:
    """Open-loop submits, one task each; the lateness of every arrival."""
    await sink.reset()
    count = PER_S * for_s
    first_ms = int(time.time() * 1000) + BEGIN_MS
    wires = [
        timers.single(round(first_ms + 1000 * n / PER_S) + AHEAD_MS[n % len(AHEAD_MS)])
        for n in range(count)
    ]
    async with Load(product.port, CONNECTIONS) as load:
        await load.arrive(wires, PER_S)
    assert await sink.wait(count, TIMEOUT_S) == count
    return [arrival.late_ms for arrival in await sink.records()]
