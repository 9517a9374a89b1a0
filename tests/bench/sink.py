"""
The receiver of callbacks, in a process of its own: `tests/fix_endpoint.py`, told what to do by
lines on its stdin, so that nothing is asked of it by HTTP while a figure is measured.

    wait COUNT SECONDS   answers [callbacks so far] once COUNT have come, or the time is over
    records              answers [[arrival_ns, task_id, attempt, start_time], ...]
    reset                forgets them and answers []
    answer STATUS        is what callbacks get from now on; 200 before
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from datetime import datetime
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import msgspec
import uvloop

from tests.fix_endpoint import Answer, Endpoint

ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024


class Arrival(NamedTuple):
    """A callback: when it came, for which task, and when that was due."""

    arrival_ns: int
    task_id: str
    attempt: int
    start_time: str

    @property
    def start_time_ms(self) -> int:
        return round(datetime.fromisoformat(self.start_time).timestamp() * 1000)

    @property
    def late_ms(self) -> float:
        return self.arrival_ns / 1e6 - self.start_time_ms


class Sink:
    """`async with Sink() as sink`: a running sink."""

    port: int
    pid: int

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.bench.sink"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=ANSWER_BYTES_MAX,
        )
        self.pid = self._process.pid
        (self.port,) = await self._answer()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/callback"

    async def wait(self, count: int, timeout_s: float) -> int:
        """How many have come, as soon as they are `count` or the time is over."""
        (come,) = await self._tell(f"wait {count} {timeout_s}")
        return int(come)

    async def records(self) -> list[Arrival]:
        """All callbacks, in order of arrival."""
        return [Arrival(*record) for record in await self._tell("records")]

    async def reset(self) -> None:
        """Forget them."""
        await self._tell("reset")

    async def answer(self, status: int) -> None:
        """Answer callbacks with this status from now on."""
        await self._tell(f"answer {status}")

    async def _tell(self, line: str) -> list[Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        return await self._answer()

    async def _answer(self) -> list[Any]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        assert line, "the sink ended"
        answer: list[Any] = msgspec.json.decode(line)
        return answer


async def _obey(endpoint: Endpoint, line: str) -> list[Any]:
    verb, *arguments = line.split()
    if verb == "wait":
        count, timeout_s = int(arguments[0]), float(arguments[1])
        with contextlib.suppress(TimeoutError):
            await endpoint.wait_for(count, timeout_s)
        return [len(endpoint.received)]
    if verb == "records":
        return [[r.arrival_ns, r.task_id, r.attempt, r.start_time] for r in endpoint.received]
    if verb == "answer":
        endpoint.answer = Answer(int(arguments[0]))
        return []
    assert verb == "reset", line
    endpoint.received.clear()
    return []


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    endpoint = Endpoint()
    await endpoint.start()
    commands = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    _say([endpoint.port])
    while line := await commands.readline():
        _say(await _obey(endpoint, line.decode()))
    await endpoint.stop()


def _say(answer: list[Any]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    uvloop.run(_serve())
