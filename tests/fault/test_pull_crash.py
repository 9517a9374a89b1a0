"""SIGKILL between a worker's claim and its answer, workers that die: another has the task then."""

from __future__ import annotations

import asyncio
import itertools
import signal
import time
from collections import defaultdict
from datetime import datetime
from typing import Any, Final

import httpx
import pytest

from tests.fault.harness import SETTLE_S, Cluster
from tests.fix_hands import BIZ_TYPE
from wheel_timer.cli.machine import free_ports

# After the claim, and after a report, each before the worker hears of it.
POINTS: Final = ("pull.reserved", "pull.reported")
TASKS: Final = 30
WORKERS: Final = 8
TTR_S: Final = 1
# So many of the reservations end with the death of their worker.
SILENT_EACH: Final = 5


class Workers:
    """They ask any broker, and remember what they held: by task, attempt -> its reserved_until."""

    def __init__(self, urls: list[str]) -> None:
        self._urls = itertools.cycle(urls)
        self._http = httpx.AsyncClient(timeout=40)
        self._count = itertools.count(1)
        self.held: dict[str, dict[int, float]] = defaultdict(dict)
        self.finished: dict[str, int] = {}

    async def close(self) -> None:
        await self._http.aclose()

    async def ask(self, path: str, body: dict[str, Any]) -> httpx.Response:
        """The answer of the first broker in turn that gives one."""
        while True:
            try:
                answer = await self._http.post(next(self._urls) + path, json=body)
                if answer.status_code < 500:
                    return answer
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.02)

    async def work(self) -> None:
        """Until all is finished."""
        while len(self.finished) < TASKS:
            answer = await self.ask(f"/v1/biz/{BIZ_TYPE}/reserve", {"wait": 1, "ttr": TTR_S})
            for task in answer.json()["tasks"]:
                until_s = datetime.fromisoformat(task["reserved_until"]).timestamp()
                self.held[task["task_id"]][task["attempts"]] = until_s
                if next(self._count) % SILENT_EACH:
                    await self._finish(task)

    async def _finish(self, task: dict[str, Any]) -> None:
        answer = await self.ask(f"/v1/tasks/{task['task_id']}/finish", {"claim": task["claim"]})
        if answer.status_code == 200:
            assert task["task_id"] not in self.finished
            self.finished[task["task_id"]] = task["attempts"]
        else:
            assert answer.json()["type"] == "/problems/claim-lost"


@pytest.mark.timing
async def test_nothing_is_lost_nor_held_twice_while_brokers_and_workers_die(
    cluster: Cluster,
) -> None:
    await cluster.configure(delivery="pull", max_concurrency=1_000)
    ports = free_ports(len(POINTS) + 1)
    doomed = [
        await cluster.broker(role="api", port=port, die=(point, 2))
        for point, port in zip(POINTS, ports[1:], strict=True)
    ]
    survivor = await cluster.broker(role="api", port=ports[0])
    leader = await cluster.daemon()
    await leader.comes_to("leader.elected")
    await survivor.comes_to("clock.measured")
    ids = {str(task_id) for task_id in await cluster.submit_at(*[0] * TASKS)}
    workers = Workers([f"http://127.0.0.1:{port}" for port in ports])
    async with asyncio.timeout(4 * SETTLE_S):
        await asyncio.gather(*[workers.work() for _ in range(WORKERS)])
    assert [await broker.gone() for broker in doomed] == [-signal.SIGKILL] * len(POINTS)

    assert workers.finished.keys() == ids
    for task_id, held in workers.held.items():
        attempts = sorted(held)
        assert attempts[-1] == workers.finished[task_id]
        for before, after in itertools.pairwise(attempts):
            assert held[after] - TTR_S >= held[before], "it was another's still"
    assert any(len(held) > 1 for held in workers.held.values())
    await cluster.audits_hold()

    # Who waits is answered when the last broker ends in order.
    waiting = asyncio.create_task(workers.ask(f"/v1/biz/{BIZ_TYPE}/reserve", {"wait": 30}))
    await asyncio.sleep(0.3)
    told_s = time.monotonic()
    survivor.stop()
    answer = await waiting
    assert (answer.status_code, answer.json()) == (200, {"tasks": []})
    assert time.monotonic() - told_s < 10
    assert await survivor.gone() == 0
    await workers.close()
