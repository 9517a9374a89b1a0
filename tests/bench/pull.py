"""Pull: submit, reserve and finish by more and more workers; how soon a waiting one is woken."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Final

from tests.bench.figure import Row, at_least, percentile
from tests.bench.product import Product
from tests.bench.wire import Load, request

BIZ_TYPE: Final = "jobs"
# Where nothing is left over from others.
TIMERS: Final = "timers"
# And how many tasks each submits, in one request, and reserves at most, before it finishes them.
WORKERS: Final = ((1, 1), (10, 1), (50, 1), (50, 10))
# The peak of the system before.
PER_S_MIN: Final = 1_500
S: Final = 10.0
WOKEN: Final = 100


async def measure() -> list[Row]:
    """Each worker: submit what is due, reserve as much, finish it, in a loop."""
    rows = []
    async with Product() as product:
        for name in (BIZ_TYPE, TIMERS):
            await product.configure(name, delivery="pull", max_concurrency=1_000)
        for workers, at_once in WORKERS:
            per_s = await _rounds(product, workers, at_once)
            name = f"submit, reserve, finish: {workers} workers, {at_once} at once"
            if (workers, at_once) == WORKERS[-1]:
                rows.append(at_least(name, PER_S_MIN, per_s, "/s"))
            else:
                rows.append(Row(name, "", f"{per_s:,.0f}/s", True, {"per_s": per_s}))
        late_ms = sorted(await _woken(product))
        p50_ms, p99_ms = percentile(late_ms, 50), percentile(late_ms, 99)
        rows.append(
            Row(
                "a waiting worker is answered after the moment",
                "",
                f"p50 {p50_ms:.1f}, p99 {p99_ms:.1f} ms",
                late_ms[0] >= 0,
                {"p50_ms": p50_ms, "p99_ms": p99_ms},
            )
        )
    return rows


def _reserve(biz_type: str, **asked: int) -> bytes:
    body = json.dumps(asked | {"ttr": 30}).encode()
    return request("POST", f"/v1/biz/{biz_type}/reserve", body)


async def _rounds(product: Product, workers: int, at_once: int) -> float:
    """Tasks a second. What was reserved together is finished at once, each by a call."""
    until_s = time.perf_counter() + S
    tasks = [{"biz_type": BIZ_TYPE, "delay": 0, "biz_data": 1}] * at_once
    submit = request("POST", "/v1/tasks/batch", json.dumps({"tasks": tasks}).encode())
    reserve = _reserve(BIZ_TYPE, max=at_once, wait=5)
    done = 0
    async with Load(product.port, workers * at_once) as load:

        async def finish(task: dict[str, str]) -> None:
            nonlocal done
            body = json.dumps({"claim": task["claim"]}).encode()
            path = f"/v1/tasks/{task['task_id']}/finish"
            assert (await load.call(request("POST", path, body))).status == 200
            done += 1

        async def work() -> None:
            while time.perf_counter() < until_s:
                assert (await load.call(submit)).status == 200
                tasks = json.loads((await load.call(reserve)).body)["tasks"]
                await asyncio.gather(*map(finish, tasks))

        began_s = time.perf_counter()
        await asyncio.gather(*[work() for _ in range(workers)])
        return done / (time.perf_counter() - began_s)


async def _woken(product: Product) -> list[float]:
    """One worker waits for timers, one each 100 ms: ms from the moment to its answer."""
    late_ms = []
    reserve = _reserve(TIMERS, wait=20)
    first_s = time.time() + 3
    async with Load(product.port, 2) as load:
        for n in range(WOKEN):
            body = {"biz_type": TIMERS, "start_time": round(first_s + n / 10, 3)}
            wire = request("POST", "/v1/tasks", json.dumps(body).encode())
            assert (await load.call(wire)).status == 201
        for n in range(WOKEN):
            (task,) = json.loads((await load.call(reserve)).body)["tasks"]
            late_ms.append((time.time() - round(first_s + n / 10, 3)) * 1000)
            body = {"claim": task["claim"]}
            path = f"/v1/tasks/{task['task_id']}/finish"
            await load.call(request("POST", path, json.dumps(body).encode()))
    return late_ms
