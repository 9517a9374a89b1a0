"""One operation cancels 100,000 timers: how long it takes, and what others feel of it."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from typing import Any, Final

from tests.bench import precision, timers
from tests.bench.figure import Row, lateness
from tests.bench.product import Product
from tests.bench.sink import Sink

COUNT: Final = 100_000
SECONDS_MAX: Final = 10.0
# Of two runs without anything beside them one has a p99 up to 1.3 x the other's.
RATIO_MAX: Final = 1.5
# How long others are measured: alone, and from a moment before the operation begins on.
BESIDE_S: Final = 12
TIMEOUT_S: Final = 120.0
POLL_S: Final = 0.25


async def measure() -> list[Row]:
    """Far timers, all cancelled by one operation; others at 200/s meanwhile."""
    async with Sink() as sink, Product() as product:
        await product.configure(timers.BIZ_TYPE, callback_url=sink.url)
        await precision.load_far(product, COUNT)
        # What loading them leaves to be done is not what is measured here.
        await product.sql("VACUUM (ANALYZE) timer_task")
        await product.sql("CHECKPOINT")
        alone = lateness(await precision.late_of(product, sink, BESIDE_S))
        others = asyncio.create_task(precision.late_of(product, sink, BESIDE_S))
        await asyncio.sleep(precision.AHEAD_S)
        operation = await _cancel_far(product)
        beside = lateness(await others)
    took_s = _seconds(operation["finish_time"]) - _seconds(operation["create_time"])
    ratio = beside.p99 / alone.p99
    return [
        Row(
            f"cancel of {COUNT:,} by one operation",
            f"{SECONDS_MAX:g} s",
            f"{took_s:.1f} s",
            operation["done"] == COUNT and took_s < SECONDS_MAX,
            {"seconds": took_s, "done": operation["done"]},
        ),
        Row(
            f"  others at {precision.PER_S}/s meanwhile: p99 lateness",
            f"within {RATIO_MAX} x",
            f"{beside.p99:.2f} ms ({ratio:.2f} x of {alone.p99:.2f})",
            ratio <= RATIO_MAX and not beside.early,
            {"alone_p99": alone.p99, "beside_p99": beside.p99},
        ),
    ]


async def _cancel_far(product: Product) -> dict[str, Any]:
    """Begin it, and wait until it has ended."""
    body = {
        "action": "cancel",
        "filter": {"biz_type": timers.BIZ_TYPE, "start_from": int(time.time()) + 3600},
    }
    begun = await product.call("POST", "/v1/operations", body)
    deadline_s = time.monotonic() + TIMEOUT_S
    while True:
        shown: dict[str, Any] = await product.call(
            "GET", f"/v1/operations/{begun['operation_id']}", None
        )
        if shown["state"] != "running":
            return shown
        assert time.monotonic() < deadline_s, shown
        await asyncio.sleep(POLL_S)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
