"""Tasks with delay 0, one at a time: from the submit's answer to the callback's arrival."""

from __future__ import annotations

import asyncio
import json
from typing import Final

from tests.bench import timers
from tests.bench.figure import Row, lateness
from tests.bench.product import Product
from tests.bench.sink import Sink
from tests.bench.wire import Load, request

TASKS: Final = 200
EACH_S: Final = 0.05
WARM: Final = 20
TIMEOUT_S: Final = 10
P50_MS_MAX: Final = 10.0


async def measure() -> list[Row]:
    """One every 50 ms, whatever became of those before."""
    task = {"biz_type": timers.BIZ_TYPE, "delay": 0, "biz_data": timers.BIZ_DATA}
    wire = request("POST", "/v1/tasks", json.dumps(task).encode())
    answered_ns: dict[str, int] = {}
    async with Sink() as sink, Product() as product:
        await product.configure(timers.BIZ_TYPE, callback_url=sink.url)
        async with Load(product.port, 4) as load:

            async def submit() -> None:
                answer = await load.call(wire)
                assert answer.status == 201, answer
                answered_ns[json.loads(answer.body)["task_id"]] = answer.came_ns

            began_s = asyncio.get_running_loop().time()
            async with asyncio.TaskGroup() as group:
                for number in range(WARM + TASKS):
                    ahead_s = began_s + number * EACH_S - asyncio.get_running_loop().time()
                    await asyncio.sleep(max(0.0, ahead_s))
                    group.create_task(submit())
        assert await sink.wait(WARM + TASKS, TIMEOUT_S) == WARM + TASKS
        arrivals = await sink.records()
    # A callback may overtake the answer of its own submit: that is no lateness at all.
    late = [max(0.0, (one.arrival_ns - answered_ns[one.task_id]) / 1e6) for one in arrivals]
    found = lateness(late[WARM:])
    return [
        Row(
            "delay 0, one at a time: submit answered to callback received",
            f"p50 {P50_MS_MAX:g} ms",
            f"p50 {found.p50:.2f}, p99 {found.p99:.2f} ms",
            found.p50 <= P50_MS_MAX,
            dict(found._asdict()),
        )
    ]
