"""
A lean HTTP/1.1 client for load: raw protocols on uvloop, keep-alive, requests encoded beforehand.

It costs about 15 us a request, so that a load generator on the same machine takes little from what
it measures.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple, Self, cast

_LENGTH: Final = b"content-length: "


class Answer(NamedTuple):
    """An answer, and when its last byte came, in ns since the epoch."""

    status: int
    body: bytes
    came_ns: int


def request(method: str, path: str, body: bytes, content_type: str = "application/json") -> bytes:
    """A request as it goes over the wire."""
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {content_type}\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._answer: asyncio.Future[Answer] | None = None
        self._parts: list[bytes] = []
        self._missing = 0
        self._status = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("closed in the middle of a request"))

    def data_received(self, data: bytes) -> None:
        if not self._parts:
            end = data.index(b"\r\n\r\n")
            at = data.index(_LENGTH) + len(_LENGTH)
            length = int(data[at : data.index(b"\r\n", at)])
            self._status = int(data[9:12])
            data = data[end + 4 :]
            self._missing = length
        self._parts.append(data)
        self._missing -= len(data)
        if self._missing == 0:
            body = b"".join(self._parts)
            self._parts = []
            assert self._answer is not None
            self._answer.set_result(Answer(self._status, body, time.time_ns()))

    async def call(self, wire: bytes) -> Answer:
        """Send one request and return its answer. Raises ConnectionError."""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(wire)
        return await self._answer

    def close(self) -> None:
        self._transport.close()


class Load:
    """So many connections to one server: `async with Load(port, 64) as load`."""

    def __init__(self, port: int, connections: int) -> None:
        self._port = port
        self._count = connections
        self._all: list[Connection] = []
        self._free: deque[Connection] = deque()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for _ in range(self._count):
            _, connection = await loop.create_connection(Connection, "127.0.0.1", self._port)
            self._all.append(connection)
        self._free.extend(self._all)
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._all:
            connection.close()

    async def call(self, wire: bytes) -> Answer:
        """One request, on a connection that must be free."""
        connection = self._free.popleft()
        try:
            return await connection.call(wire)
        finally:
            self._free.append(connection)

    async def arrive(self, wires: Sequence[bytes], per_s: float) -> list[float]:
        """
        Open loop: request n is due at n / per_s, whatever became of those before it.

        One that finds no connection free waits for one, and its waiting counts. Returns, in order
        of the answers, seconds from when each was due to when its answer came; every answer must
        be a 2xx.
        """
        loop = asyncio.get_running_loop()
        waited_s: list[float] = []
        due: deque[int] = deque()
        done = loop.create_future()
        began_s = loop.time()

        async def serve(connection: Connection) -> None:
            while due:
                number = due.popleft()
                answer = await connection.call(wires[number])
                assert 200 <= answer.status < 300, answer
                waited_s.append(loop.time() - began_s - number / per_s)
            self._free.append(connection)
            if len(waited_s) == len(wires):
                done.set_result(None)

        servers: set[asyncio.Task[None]] = set()

        def ended(server: asyncio.Task[None]) -> None:
            servers.discard(server)
            if not server.cancelled() and (error := server.exception()) and not done.done():
                done.set_exception(error)

        for number in range(len(wires)):
            ahead_s = began_s + number / per_s - loop.time()
            # Below a millisecond a timer would only add its own lateness.
            if ahead_s > 0.001:
                await asyncio.sleep(ahead_s)
            elif number % 64 == 0:
                await asyncio.sleep(0)
            due.append(number)
            if self._free and due:
                server = asyncio.create_task(serve(self._free.popleft()))
                servers.add(server)
                server.add_done_callback(ended)
        await done
        return waited_s
