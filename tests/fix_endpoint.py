"""
An HTTP/1.1 endpoint that records callbacks and answers by script, for tests and benchmarks.

In a test: the fixture `endpoint`, in the test's own event loop. In a benchmark: a process of its
own, `python -m tests.fix_endpoint --port 0`, which prints its port and serves what it recorded at
`GET /records` (NDJSON: [arrival_ns, task_id, attempt, start_time]) and forgets it at `POST /reset`.

Times are `time.time_ns()`: the machine's clock, which is the database's where both share a machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import ssl
import struct
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from socket import SO_LINGER, SOL_SOCKET
from typing import Final, Literal, NamedTuple, cast

import pytest_asyncio

Fault = Literal[
    "silence",
    "reset",
    "close",
    "half",
    "garbage",
    "trickle",
    "flood",
    "endless-headers",
    "endless-hints",
    "endless-lines",
    "endless-extensions",
]

HEAD_BYTES_MAX: Final = 64 * 1024
OK: Final = b"HTTP/1.1 200 OK\r\n"
# What an answer without end begins with, and what it goes on with.
ENDLESS: Final = {
    "flood": (OK + b"content-length: 1000000000\r\n\r\n", b"x" * 65_536),
    "endless-headers": (OK, b"x-more: " + b"y" * 1_000 + b"\r\n"),
    "endless-hints": (b"", b"HTTP/1.1 103 Early Hints\r\na: b\r\n\r\n" * 2_000),
    "endless-lines": (b"", b"\r\n" * 30_000),
    "endless-extensions": (
        OK + b"transfer-encoding: chunked\r\n\r\n",
        (b"1;" + b"a" * 4_000 + b"\r\nx\r\n") * 16,
    ),
}


class Answer(NamedTuple):
    """
    What the endpoint says, after some hints (103). A fault replaces it; trickle sends a byte of
    body per interval_s.
    """

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    delay_s: float = 0.0
    fault: Fault | None = None
    interval_s: float = 0.05
    hints: int = 0


class Received(NamedTuple):
    """One request as it came off the wire; the head is parsed only when asked for."""

    arrival_ns: int
    head: bytes
    body: bytes

    @property
    def request_line(self) -> str:
        return self.head.split(b"\r\n", 1)[0].decode("latin-1")

    @property
    def method(self) -> str:
        return self.request_line.split(" ")[0]

    @property
    def path(self) -> str:
        return self.request_line.split(" ")[1]

    @property
    def headers(self) -> dict[str, str]:
        """Names in lower case; of a repeated header the last one."""
        lines = self.head.split(b"\r\n")[1:]
        pairs = (line.decode("utf-8").partition(":") for line in lines if line)
        return {name.lower(): value.strip() for name, _, value in pairs}

    @property
    def webhook_id(self) -> str:
        return self._value(b"webhook-id")

    @property
    def task_id(self) -> str:
        return self.webhook_id[:36]

    @property
    def attempt(self) -> int:
        return int(self._value(b"wheel-timer-attempt") or 0)

    @property
    def start_time(self) -> str:
        return self._value(b"wheel-timer-start-time")

    def _value(self, name: bytes) -> str:
        at = self.head.find(b"\r\n" + name + b": ")
        if at < 0:
            return ""
        begin = at + len(name) + 4
        return self.head[begin : self.head.index(b"\r\n", begin)].decode("latin-1")


Script = Callable[[Received], Answer]


class Endpoint:
    """
    A listening endpoint. Set `answer`, or `script` for an answer per request.

    received: in order of arrival. connections: opened so far (keep-alive reuses them).
    all_closed: set while none of them is open, so a test can see one dropped.
    """

    def __init__(self) -> None:
        self.answer = Answer()
        self.script: Script | None = None
        self.received: list[Received] = []
        self.connections = 0
        self.all_closed = asyncio.Event()
        self.all_closed.set()
        self.host = "127.0.0.1"
        self.port = 0
        self.scheme = "http"
        self._server: asyncio.Server | None = None
        self._protocols: set[_Protocol] = set()
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.host}:{self.port}/callback"

    async def start(self, port: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.scheme = "https" if tls else "http"
        factory = partial(_Protocol, self)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(factory, self.host, port, ssl=tls, backlog=4096)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the listener and every connection, silent ones too."""
        assert self._server is not None
        self._server.close()
        for protocol in list(self._protocols):
            protocol.abort()
        await self._server.wait_closed()

    def drop_connections(self) -> None:
        """Close what is open, as a server does with connections idle for too long."""
        for protocol in list(self._protocols):
            protocol.abort()

    def record(self, received: Received) -> Answer:
        self.received.append(received)
        if self._waiting:
            self._wake_waiting()
        return self.answer if self.script is None else self.script(received)

    async def wait_for(self, count: int, timeout_s: float = 10.0) -> list[Received]:
        """Return as soon as `count` requests have arrived in all; TimeoutError otherwise."""
        if len(self.received) < count:
            arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((count, arrived))
            async with asyncio.timeout(timeout_s):
                await arrived
        return self.received

    def opened(self, protocol: _Protocol) -> None:
        self.connections += 1
        self._protocols.add(protocol)
        self.all_closed.clear()

    def closed(self, protocol: _Protocol) -> None:
        self._protocols.discard(protocol)
        if not self._protocols:
            self.all_closed.set()

    def _wake_waiting(self) -> None:
        still = []
        for count, arrived in self._waiting:
            if arrived.done():
                continue
            if len(self.received) >= count:
                arrived.set_result(None)
            else:
                still.append((count, arrived))
        self._waiting = still


class _Protocol(asyncio.Protocol):
    """Reads requests off one connection (one at a time, no pipelining) and writes the answers."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._transport: asyncio.Transport
        self._buffer = b""
        self._chores: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast: uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._endpoint.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        for chore in self._chores:
            chore.cancel()
        self._endpoint.closed(self)

    def abort(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        arrival_ns = time.time_ns()
        self._buffer = data = self._buffer + data if self._buffer else data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            assert len(data) <= HEAD_BYTES_MAX
            return
        head, body = data[: end + 2], data[end + 4 :]
        length_at = head.lower().find(b"\r\ncontent-length:")
        if length_at >= 0:
            length = int(head[length_at + 17 : head.index(b"\r\n", length_at + 2)])
            if len(body) < length:
                return
        self._buffer = b""
        if head.startswith((b"GET /records ", b"POST /reset ")):
            self._serve_control(head)
            return
        self._answer(self._endpoint.record(Received(arrival_ns, head, body)))

    def _answer(self, answer: Answer) -> None:
        if answer.delay_s or answer.fault is not None:
            chore = asyncio.ensure_future(self._answer_later(answer))
            self._chores.add(chore)
            chore.add_done_callback(self._chores.discard)
        else:
            self._transport.write(_render(answer))

    async def _answer_later(self, answer: Answer) -> None:
        if answer.delay_s:
            await asyncio.sleep(answer.delay_s)
        write = self._transport.write
        match answer.fault:
            case None:
                write(_render(answer))
            case "silence":
                return
            case "close":
                self._transport.close()
            case "reset":
                linger = struct.pack("ii", 1, 0)
                self._transport.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, linger)
                self._transport.abort()
            case "half":
                write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
                self._transport.close()
            case "garbage":
                write(b"SIP/9.9 banana\r\n\r\n")
            case "trickle":
                write(b"HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\n")
                while True:
                    write(b"x")
                    await asyncio.sleep(answer.interval_s)
            case _:
                head, more = ENDLESS[answer.fault]
                write(head)
                while not self._transport.is_closing():
                    write(more)
                    await asyncio.sleep(0)

    def _serve_control(self, head: bytes) -> None:
        if head.startswith(b"POST"):
            self._endpoint.received.clear()
            self._transport.write(_render(Answer(204)))
            return
        rows = (
            json.dumps([one.arrival_ns, one.task_id, one.attempt, one.start_time])
            for one in self._endpoint.received
        )
        self._transport.write(_render(Answer(200, body="\n".join(rows).encode())))


OK_HEAD: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


def _render(answer: Answer) -> bytes:
    if answer.status == 200 and not answer.headers and not answer.body and not answer.hints:
        return OK_HEAD
    lines = [f"HTTP/1.1 {answer.status} Scripted", f"content-length: {len(answer.body)}"]
    lines += [f"{name}: {value}" for name, value in answer.headers]
    hints = b"HTTP/1.1 103 Early Hints\r\n\r\n" * answer.hints
    return hints + "\r\n".join(lines).encode() + b"\r\n\r\n" + answer.body


@pytest_asyncio.fixture
async def endpoint() -> AsyncIterator[Endpoint]:
    """A started endpoint on a free loopback port; stopped, with all its connections, at the end."""
    serving = Endpoint()
    await serving.start()
    yield serving
    await serving.stop()


async def _serve(port: int) -> None:
    serving = Endpoint()
    await serving.start(port)
    print(serving.port, flush=True)
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()
    await serving.stop()


if __name__ == "__main__":
    import uvloop

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    uvloop.run(_serve(parser.parse_args().port))
