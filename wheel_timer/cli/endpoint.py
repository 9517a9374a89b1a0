"""
A small HTTP/1.1 endpoint that callbacks may be sent to: for `demo` (thousands a second) and
`listen`. Nothing but asyncio: `listen` works with the client alone installed.

It understands what a callback is: a request line, headers, a body of stated length. Requests of a
connection are answered one after the other.
"""

from __future__ import annotations

import asyncio
import http
import time
from collections.abc import Callable
from typing import Final

from wheel_timer.echo import Arrival

HEAD_BYTES_MAX: Final = 65_536
BODY_BYTES_MAX: Final = 16 * 1_048_576

Answer = tuple[int, float]  # status, and seconds to wait before it is sent
Handler = Callable[[Arrival], Answer]


class Endpoint:
    """`port = await endpoint.start(host, port)`, each request through the handler, `close()`."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen; port 0 takes a free one. Returns the port. Raises OSError where it is taken."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: _Connection(self._handler), host, port, backlog=1_024
        )
        bound: int = self._server.sockets[0].getsockname()[1]
        return bound

    def close(self) -> None:
        """Stop listening; open connections end with the loop."""
        if self._server is not None:
            self._server.close()


class _Connection(asyncio.Protocol):
    """States: reading (a head, then its body), answering (an answer is held back for its delay)."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._received = bytearray()
        self._answering = False
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        at_ms = time.time_ns() / 1e6
        self._received += data
        self._read_on(at_ms)

    def _read_on(self, at_ms: float) -> None:
        while not self._answering:
            head_end = self._received.find(b"\r\n\r\n")
            if head_end < 0:
                if len(self._received) > HEAD_BYTES_MAX:
                    self._refuse(431)
                return None
            request_line, _, fields = self._received[:head_end].decode("latin-1").partition("\r\n")
            headers = _headers(fields)
            length = headers.get("content-length", "0")
            if "transfer-encoding" in headers or not length.isdecimal():
                return self._refuse(411)
            body_end = head_end + 4 + int(length)
            if body_end > BODY_BYTES_MAX:
                return self._refuse(413)
            if len(self._received) < body_end:
                return None
            body = bytes(self._received[head_end + 4 : body_end])
            del self._received[:body_end]
            method, _, rest = request_line.partition(" ")
            path = rest.rpartition(" ")[0]
            status, delay_s = self._handler(Arrival(method, path, headers, body, at_ms))
            self._answer(status, delay_s)
        return None

    def _answer(self, status: int, delay_s: float) -> None:
        if delay_s <= 0:
            return self._send(status)
        self._answering = True
        asyncio.get_running_loop().call_later(delay_s, self._answer_late, status)
        return None

    def _answer_late(self, status: int) -> None:
        self._answering = False
        self._send(status)
        self._read_on(time.time_ns() / 1e6)

    def _send(self, status: int, fields: str = "content-length: 0\r\n") -> None:
        assert self._transport is not None
        if not self._transport.is_closing():
            head = f"HTTP/1.1 {status} {_phrase(status)}\r\n{fields}\r\n"
            self._transport.write(head.encode("latin-1"))

    def _refuse(self, status: int) -> None:
        self._received.clear()
        self._send(status, "content-length: 0\r\nconnection: close\r\n")
        assert self._transport is not None
        self._transport.close()


def _headers(fields: str) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in fields.split("\r\n"):
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return headers


def _phrase(status: int) -> str:
    try:
        return http.HTTPStatus(status).phrase
    except ValueError:
        return "Answer"
