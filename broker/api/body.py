"""
Request bodies, bounded while they arrive: nothing is collected beyond a limit, nothing inflated
beyond it, and nobody holds memory by sending slowly.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Final

from starlette.requests import Request
from starlette.types import Message

from broker.api.problems import Problem, Refused, invalid
from wheel_timer.errors import Overloaded, TooLarge

# A client that sends nothing for so long in the middle of a body has gone.
IDLE_S_MAX: Final = 60.0
# All unfinished bodies together; one broker serves some thousand connections.
UNFINISHED_BYTES_MAX: Final = 256 * 1024 * 1024
_INFLATE_BYTES: Final = 64 * 1024


class ClientGone(Exception):
    """The connection broke in the middle of a request; there is nobody to answer."""


class Bodies:
    """Reads bodies under one common bound of memory. limit_bytes: MAX_REQUEST."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._unfinished_bytes = 0

    async def read(self, request: Request) -> bytes:
        """
        The whole body, inflated. Raises TooLarge as soon as it is known to be beyond the limit:
        by its content-length before a byte is read, else when the limit is passed.
        """
        headers = request.headers
        declared = headers.get("content-length", "")
        if declared.isdigit() and int(declared) > self.limit_bytes:
            raise self._too_large()
        if "content-encoding" not in headers:
            message = await request.receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                body: bytes = message.get("body", b"")
                if len(body) > self.limit_bytes:
                    raise self._too_large()
                return body
            return await self._collect(self._pieces(request, message))
        return await self._collect(self._pieces(request, None))

    def stream(self, request: Request) -> AsyncIterator[bytes]:
        """The body in pieces, inflated, of any length: the reader decides how far it goes."""
        return self._pieces(request, None)

    async def _collect(self, pieces: AsyncIterator[bytes]) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            async for piece in pieces:
                size += len(piece)
                self._unfinished_bytes += len(piece)
                if size > self.limit_bytes:
                    raise self._too_large()
                if self._unfinished_bytes > UNFINISHED_BYTES_MAX:
                    raise Overloaded("too many large requests at once")
                parts.append(piece)
        finally:
            self._unfinished_bytes -= size
        return b"".join(parts)

    async def _pieces(self, request: Request, first: Message | None) -> AsyncIterator[bytes]:
        coding = request.headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("identity", "gzip"):
            raise Refused(
                Problem(
                    "invalid-request",
                    "content-encoding: only gzip",
                    415,
                    headers={"Accept-Encoding": "gzip"},
                )
            )
        gunzip = Gunzip() if coding == "gzip" else None
        message = first or await _receive(request)
        while True:
            if message["type"] == "http.disconnect":
                raise ClientGone
            body: bytes = message.get("body", b"")
            if gunzip is None:
                if body:
                    yield body
            else:
                for piece in gunzip.inflate(body):
                    yield piece
            if not message.get("more_body", False):
                break
            message = await _receive(request)
        if gunzip is not None:
            gunzip.finish()

    def _too_large(self) -> TooLarge:
        return TooLarge(f"a request has at most {self.limit_bytes} bytes (MAX_REQUEST)")


class Gunzip:
    """Inflates gzip, several members in a row too, in pieces of bounded size."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=31)
        self._in_member = False

    def inflate(self, data: bytes) -> Iterator[bytes]:
        """What `data` inflates to, piece by piece; the caller may stop at any of them."""
        try:
            while data or self._in_member:
                piece = self._inflate.decompress(data, _INFLATE_BYTES)
                self._in_member = True
                data = self._inflate.unconsumed_tail
                if piece:
                    yield piece
                if self._inflate.eof:
                    data = self._inflate.unused_data
                    self._inflate = zlib.decompressobj(wbits=31)
                    self._in_member = False
                elif not data and len(piece) < _INFLATE_BYTES:
                    return
        except zlib.error as error:
            raise invalid("the body is not gzip", status=400) from error

    def finish(self) -> None:
        """The input is over. Raises where it ends inside a member."""
        if self._in_member:
            raise invalid("the gzip body is cut off", status=400)


async def _receive(request: Request) -> Message:
    try:
        async with asyncio.timeout(IDLE_S_MAX):
            return await request.receive()
    except TimeoutError as error:
        detail = f"nothing came for {IDLE_S_MAX:g} s in the middle of the body"
        raise invalid(detail, status=408) from error
