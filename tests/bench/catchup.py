"""After downtime: an hour with 10,000 timers due in it, and a day with none."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from statistics import median
from typing import Final

from daemon.due import DueHand
from daemon.leader import Leader
from daemon.windows import Windows
from tests.bench import timers
from tests.bench.drain import at_an_instant, warm_up
from tests.bench.figure import Row
from tests.bench.product import Product
from tests.bench.sink import Sink
from tests.fix_clock import SET
from wheel_timer.clock import PULSE_IDLE_S, Clock
from wheel_timer.database import Database, Session
from wheel_timer.eventcenter import EventCenter
from wheel_timer.store import leader as store
from wheel_timer.store.migrate import migrate

TIMERS: Final = 10_000
DOWN_S: Final = 3_600
TURNS: Final = 3
# At the drain rate, less what publishing and reading 10,000 references costs: both happen before
# the instant of a drain, and within a catch-up.
SHARE_MIN: Final = 0.8
DAY_MS: Final = 86_400_000
EMPTY_DAY_S_MAX: Final = 1.0
LOOKAHEAD_MS: Final = 1_000
VISIBILITY_MS: Final = 60_000
TIMEOUT_S: Final = 60
# A database schema beside the product's, with a wheel whose daemon we are.
SCHEMA: Final = "empty_day"


async def measure() -> list[Row]:
    """Both in one product: the second on a wheel of its own."""
    drains: list[float] = []
    catchups: list[float] = []
    async with Sink() as sink, Product() as product:
        await product.configure(timers.BIZ_TYPE, callback_url=sink.url)
        await warm_up(product, sink)
        for turn in range(TURNS):
            drains.append(await at_an_instant(product, sink, turn * DOWN_S * 1000))
            catchups.append(await _after_an_hour(product, sink, turn * DOWN_S * 1000))
        empty_s = await _empty_day(product)
    share = median(ours / drain for ours, drain in zip(catchups, drains, strict=True))
    return [
        Row(
            f"{TIMERS:,} timers due in an hour of downtime: caught up at",
            f"{SHARE_MIN} x the drain rate",
            f"{median(catchups):,.0f}/s ({share:.2f} x of {median(drains):,.0f}/s)",
            share >= SHARE_MIN,
            {"per_s": median(catchups), "drain_per_s": median(drains), "share": share},
        ),
        Row(
            "  a day of empty slots",
            f"{EMPTY_DAY_S_MAX:g} s",
            f"{empty_s * 1000:,.0f} ms",
            empty_s < EMPTY_DAY_S_MAX,
            {"empty_day_s": empty_s},
        ),
    ]


async def _after_an_hour(product: Product, sink: Sink, clock_ahead_ms: int) -> float:
    """
    The daemon is stopped (SIGSTOP), the database's clock goes forward by an hour more than it was
    ahead, the daemon goes on. Returns callbacks a second from the first to the last.
    """
    await sink.reset()
    dice = random.Random(7)
    now_ms = int(time.time() * 1000) + clock_ahead_ms
    moments = [now_ms + 60_000 + dice.randrange(DOWN_S * 1000 - 60_000) for _ in range(TIMERS)]
    await timers.send(product, timers.batches(moments))
    daemon = product.daemon()
    daemon.send_signal(signal.SIGSTOP)
    try:
        shown_us = int(time.time() * 1e6) + (clock_ahead_ms + DOWN_S * 1000) * 1000
        await product.sql(SET % {"shown_us": shown_us, "frozen": False})
        # Until the brokers have looked at the clock: theirs had no hour of downtime.
        await asyncio.sleep(PULSE_IDLE_S + 0.5)
    finally:
        daemon.send_signal(signal.SIGCONT)
    come = await sink.wait(TIMERS, TIMEOUT_S)
    arrivals = await sink.records()
    assert come == len({arrival.task_id for arrival in arrivals}) == TIMERS, come
    return TIMERS / ((arrivals[-1].arrival_ns - arrivals[0].arrival_ns) / 1e9)


async def _empty_day(product: Product) -> float:
    """Seconds that a due hand takes which stands a day behind on an empty wheel."""
    migrate(product.database_url, SCHEMA, 1)
    db = Database(product.database_url, schema=SCHEMA, name="bench")
    session = Session(product.database_url, schema=SCHEMA, name="bench lease")
    clock = Clock(db)
    await clock.measure()
    event_center = EventCenter(
        product.redis_url, prefix=SCHEMA, consumer="bench", cluster_id=await store.cluster_id(db)
    )
    leader = Leader(session, db, 0, "bench")
    term = await leader.poll()
    assert term is not None
    hand = DueHand(
        db=db,
        event_center=event_center,
        clock=clock,
        leader=leader,
        windows=Windows(biz_types={}, visibility_s=60, shards=1),
        current_ms=int(clock.now_ms()) - DAY_MS,
        lookahead_ms=LOOKAHEAD_MS,
        visibility_ms=VISIBILITY_MS,
        moved=lambda _: None,
    )
    began_s = time.perf_counter()
    await hand.tick()
    took_s = time.perf_counter() - began_s
    assert hand.current_ms >= clock.now_ms(), "one tick is to catch up"
    await leader.resign()
    await session.close()
    await event_center.close()
    await db.close()
    return took_s
