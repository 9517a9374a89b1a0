"""Changes of mind: how many single ones a second, and 10,000 cancels that race their firing."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter, deque
from typing import Final

from tests.bench import timers
from tests.bench.figure import Row, at_least, percentile
from tests.bench.product import Product
from tests.bench.sink import Sink
from tests.bench.submits import NOWHERE
from tests.bench.wire import Load, request

CONNECTIONS: Final = 64
PER_S_MIN: Final = 4_000
OFFERED_PER_S: Final = 2 * PER_S_MIN
CHANGES: Final = 20_000
STEADY: Final = 6_000
STEADY_PER_S: Final = 1_500
LATER_S: Final = 3_600
DAY_S: Final = 86_400

# Half of them race the moment itself; a task is claimed 12 ms ahead of it, so the other half races
# that: there a cancel may win.
RACES: Final = 20_000
AHEAD_OF_MOMENT_MS: Final = (0.0, 12.0)
RACES_PER_S: Final = 500
AROUND_MS: Final = 5.0
AHEAD_S: Final = 8
SETTLE_S: Final = 30
PENDING: Final = "SELECT count(*) FROM timer_task WHERE status = 0"


async def measure_singles() -> list[Row]:
    """Timers of one day: each is rescheduled or cancelled by a request of its own."""
    rows = []
    async with Product() as product:
        await product.configure(timers.BIZ_TYPE, callback_url=NOWHERE)
        for kind, seed in (("reschedules", 11), ("cancels", 12)):
            tasks = await _submit(product, _moments(CHANGES + STEADY, seed))
            wires = [_wire(kind, task_id, start_ms) for task_id, start_ms in tasks]
            async with Load(product.port, CONNECTIONS) as load:
                steady_s = sorted(await load.arrive(wires[:STEADY], STEADY_PER_S))
                began_s = time.perf_counter()
                await load.arrive(wires[STEADY:], OFFERED_PER_S)
                per_s = CHANGES / (time.perf_counter() - began_s)
            p50_ms, p99_ms = percentile(steady_s, 50) * 1000, percentile(steady_s, 99) * 1000
            rows += [
                at_least(
                    f"single {kind} over HTTP, {CONNECTIONS} connections", PER_S_MIN, per_s, "/s"
                ),
                Row(
                    f"  answered at {STEADY_PER_S:,}/s",
                    "",
                    f"p50 {p50_ms:.2f}, p99 {p99_ms:.2f} ms",
                    True,
                    {"p50_ms": p50_ms, "p99_ms": p99_ms},
                ),
            ]
        ((left,),) = await product.sql(PENDING)
    assert left == CHANGES + STEADY, left
    return rows


async def measure_races() -> list[Row]:
    """Each cancel comes within 5 ms of its timer's moment or claim; the answer says who has won."""
    dice = random.Random(13)
    async with Sink() as sink, Product() as product:
        await product.configure(timers.BIZ_TYPE, callback_url=sink.url)
        first_ms = (int(time.time()) + AHEAD_S) * 1000
        step_ms = 1000 / RACES_PER_S
        tasks = await _submit(product, [first_ms + round(n * step_ms) for n in range(RACES)])
        moments = [
            (at_ms - dice.choice(AHEAD_OF_MOMENT_MS) + dice.uniform(-AROUND_MS, AROUND_MS)) / 1000
            for _, at_ms in tasks
        ]
        waiting = deque(sorted(zip(moments, (task_id for task_id, _ in tasks), strict=True)))
        told: dict[str, int] = {}
        async with Load(product.port, CONNECTIONS) as load:

            async def cancel() -> None:
                while waiting:
                    at_s, task_id = waiting.popleft()
                    await asyncio.sleep(max(0.0, at_s - time.time()))
                    answer = await load.call(request("DELETE", f"/v1/tasks/{task_id}", b""))
                    told[task_id] = answer.status

            await asyncio.gather(*[cancel() for _ in range(CONNECTIONS)])
        until_s = time.monotonic() + SETTLE_S
        while (await product.sql(PENDING))[0][0] and time.monotonic() < until_s:  # noqa: ASYNC110
            await asyncio.sleep(0.2)
        called = {arrival.task_id for arrival in await sink.records()}
        statuses = dict(await product.sql("SELECT CAST(task_id AS text), status FROM timer_task"))
    cancelled = {task_id for task_id, status in told.items() if status == 200}
    others = Counter(status for status in told.values() if status not in (200, 409))
    contradictions = (
        len(cancelled & called)
        + len(told.keys() - cancelled - called)
        + sum(1 for task_id in told if (statuses[task_id] == 3) is not (task_id in cancelled))
        + sum(others.values())
    )
    return [
        Row(
            f"{RACES:,} cancels racing their firing, or claim, at +-{AROUND_MS:g} ms",
            "0 contradictions",
            f"{contradictions} ({len(cancelled):,} cancelled, {len(called):,} called)",
            contradictions == 0 and len(told) == RACES,
            {"contradictions": contradictions, "cancelled": len(cancelled), "called": len(called)},
        )
    ]


def _moments(count: int, seed: int) -> list[int]:
    """Random milliseconds of one day, two days ahead: what is changed is mostly near."""
    dice = random.Random(seed)
    first_ms = int(time.time() + 2 * DAY_S) * 1000
    return [first_ms + dice.randrange(DAY_S * 1000) for _ in range(count)]


async def _submit(product: Product, moments_ms: list[int]) -> list[tuple[str, int]]:
    """(task_id, start_time in ms) of each, in the order of the moments."""
    made: list[tuple[str, int]] = []
    for first in range(0, len(moments_ms), timers.BATCH):
        some = moments_ms[first : first + timers.BATCH]
        body = {"tasks": [timers.timer(moment) for moment in some]}
        answer = await product.call("POST", "/v1/tasks/batch", body)
        assert answer["rejected"] == 0, answer
        ids = [result["task_id"] for result in answer["results"]]
        made += zip(ids, some, strict=True)
    return made


def _wire(kind: str, task_id: str, start_ms: int) -> bytes:
    path = f"/v1/tasks/{task_id}"
    if kind == "cancels":
        return request("DELETE", path, b"")
    patch = {"start_time": start_ms / 1000 + LATER_S}
    return request("PATCH", path, json.dumps(patch).encode())
