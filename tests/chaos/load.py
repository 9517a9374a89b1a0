"""
Open-loop load by the API: at fixed times, whatever comes of it, and a log of what was answered.

Near and far submits, batches, cancels, reschedules, tasks whose endpoint fails once or for good.
A request that gets no answer is sent again to the next broker, with the same biz_id.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import aiohttp

from tests.chaos.log import Answered, Plan, Submitted

BIZ_TYPE: Final = "chaos"
NEIGHBOUR: Final = "neighbour"
GIVE_UP_S: Final = 45.0
PAUSE_S: Final = 0.1
BATCH: Final = 10
NEAR_MS: Final = 1_400
FAR_MS: Final = (1_700, 4_000)
# Of a hundred arrivals. A batch counts as many tasks as it holds.
MIX: Final[dict[str, int]] = {
    "submit": 66,
    "batch": 2,
    "cancel": 12,
    "move": 12,
    "fails": 6,
    "dies": 2,
}


class Load:
    """
    The clients. ports: the brokers' API ports, as they are now. offset_ms: the database's clock
    against this machine's, as it is now. refused: answers that no client should get, each said;
    told_later: how often one was told so, with a time.
    """

    def __init__(
        self,
        ports: Callable[[], Sequence[int]],
        offset_ms: Callable[[], int],
        seed: int,
        patience_s: float,
        *,
        has_neighbour: bool = False,
    ) -> None:
        self._ports = ports
        self._offset_ms = offset_ms
        self._random = random.Random(seed)
        self._patience_s = patience_s
        self._has_neighbour = has_neighbour
        self._count = 0
        self.submitted: dict[str, Submitted] = {}
        self.refused: list[str] = []
        self.told_later = 0

    async def run(self, rate_s: int, seconds: float) -> None:
        """So many arrivals a second, evenly spread; returns once all have an answer, or none for
        GIVE_UP_S."""
        names, weights = list(MIX), list(MIX.values())
        began_s = time.monotonic()
        connector = aiohttp.TCPConnector(limit=0)
        timeout = aiohttp.ClientTimeout(total=self._patience_s)
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as self._session,
            asyncio.TaskGroup() as clients,
        ):
            for number in range(round(rate_s * seconds)):
                await asyncio.sleep(max(0.0, began_s + number / rate_s - time.monotonic()))
                verb = self._random.choices(names, weights)[0]
                clients.create_task(self._client(verb))

    async def _client(self, verb: str) -> None:
        match verb:
            case "batch":
                await self._batch([self._new("plain") for _ in range(BATCH)])
            case "fails" | "dies":
                await self._submit(self._new("fails" if verb == "fails" else "dies"))
            case _:
                task = self._new("plain")
                await self._submit(task)
                if verb == "cancel":
                    await self._cancel(task)
                elif verb == "move":
                    await self._move(task)

    def expect(self, biz_id: str, due_ms: int) -> None:
        """A task that somebody else has put there."""
        self.submitted[biz_id] = Submitted(biz_id, "plain", [due_ms], accepted_ns=time.time_ns())

    def _new(self, plan: Plan) -> Submitted:
        self._count += 1
        is_near = self._random.random() < 0.5
        ahead_ms = self._random.randint(0, NEAR_MS) if is_near else self._random.randint(*FAR_MS)
        is_neighbour = self._has_neighbour and self._random.random() < 0.5
        due_ms = self._now_ms() + ahead_ms
        task = Submitted(f"{plan}-{self._count}", plan, [due_ms], is_neighbour)
        self.submitted[task.biz_id] = task
        return task

    def _now_ms(self) -> int:
        return time.time_ns() // 1_000_000 + self._offset_ms()

    async def _submit(self, task: Submitted) -> None:
        status, _ = await self._call("POST", "/v1/tasks", _wire(task), {200, 201})
        if status:
            task.accepted_ns = time.time_ns()

    async def _batch(self, tasks: list[Submitted]) -> None:
        body = {"tasks": [_wire(task) for task in tasks]}
        status, answer = await self._call("POST", "/v1/tasks/batch", body, {200})
        if not status:
            return
        for task, result in zip(tasks, answer["results"], strict=True):
            if "error" in result:
                self.refused.append(f"{task.biz_id}: {result['error']}")
            else:
                task.accepted_ns = time.time_ns()

    async def _cancel(self, task: Submitted) -> None:
        """At some moment before it is due, or about then."""
        await self._sleep_within(task)
        if task.accepted_ns is None:
            return
        task.cancel = "unknown"
        status, _ = await self._call("DELETE", _path(task), None, {200, 409})
        task.cancel, task.cancel_ns = _answered(status), time.time_ns()

    async def _move(self, task: Submitted) -> None:
        await self._sleep_within(task)
        if task.accepted_ns is None:
            return
        task.move = "unknown"
        to_ms = self._now_ms() + self._random.randint(100, FAR_MS[1])
        # Asked for from now on: the call may come before the answer.
        task.asked_ms.append(to_ms)
        body = {"start_time": _rfc3339(to_ms)}
        status, _ = await self._call("PATCH", _path(task), body, {200, 409})
        task.move, task.move_ns = _answered(status), time.time_ns()

    async def _sleep_within(self, task: Submitted) -> None:
        # The clock may have been set back by minutes since it was asked for.
        left_ms = min(FAR_MS[1], task.asked_ms[-1] - self._now_ms())
        await asyncio.sleep(max(0.0, self._random.uniform(0, left_ms / 1000 + 0.02)))

    async def _call(self, method: str, path: str, body: Any, taken: set[int]) -> tuple[int, Any]:
        """The first answer that is one; (0, None) where none came. An answer that no client should
        get is noted in `refused`."""
        give_up_s = time.monotonic() + GIVE_UP_S
        turn = self._random.randrange(1_000)
        while time.monotonic() < give_up_s:
            ports = self._ports()
            if not ports:
                await asyncio.sleep(PAUSE_S)
                continue
            turn += 1
            pause_s = PAUSE_S
            url = f"http://127.0.0.1:{ports[turn % len(ports)]}{path}"
            try:
                async with self._session.request(method, url, json=body) as answer:
                    if answer.status in taken:
                        return answer.status, await answer.json()
                    if answer.status in (429, 503) and "Retry-After" in answer.headers:
                        self.told_later += 1
                        pause_s = float(answer.headers["Retry-After"])
                    else:
                        self.refused.append(
                            f"{method} {path}: {answer.status} {await answer.text()}"
                        )
                        return 0, None
            except (aiohttp.ClientError, TimeoutError, OSError):
                pass
            # As a client does that keeps to what it is told; not all of them at once.
            await asyncio.sleep(pause_s * self._random.uniform(0.5, 1.5))
        return 0, None


def _answered(status: int) -> Answered:
    return "yes" if status == 200 else "no" if status == 409 else "unknown"


def _path(task: Submitted) -> str:
    return f"/v1/biz/{_biz_type(task)}/tasks/{task.biz_id}"


def _biz_type(task: Submitted) -> str:
    return NEIGHBOUR if task.is_neighbour else BIZ_TYPE


def _wire(task: Submitted) -> dict[str, Any]:
    return {
        "biz_type": _biz_type(task),
        "biz_id": task.biz_id,
        "start_time": _rfc3339(task.asked_ms[-1]),
    }


def _rfc3339(moment_ms: int) -> str:
    return datetime.fromtimestamp(moment_ms / 1000, UTC).isoformat(timespec="milliseconds")
