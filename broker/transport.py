"""
The HTTP client of callbacks: httpx's transport interface on aiohttp's connections.

httpx's own pool collapses under concurrency, and `httpx_aiohttp.AiohttpTransport` as it is spends
half of its time on what a callback does not need: measured at 64 in flight, 107 us a call as it is,
72 us with `handle_async_request` written for callbacks, 54 us for bare aiohttp. A CallbackRequest
saves most of the rest: it makes httpx's own form of its headers only for those who ask.

No redirects, no decompression, no cookies, no proxy but CALLBACK_PROXY; header lines of at most
8 KiB and 128 of them (aiohttp's parser), and no answer without end (broker/listening.py).
Deadlines are the caller's: `asyncio.timeout` around it.
"""

from __future__ import annotations

import asyncio
import errno
import math
import os
import ssl
from collections.abc import AsyncIterator, Sequence
from functools import lru_cache, partial
from typing import Any, Final, Self

import aiohttp
import httpx
from aiohttp.client_proto import ResponseHandler
from aiohttp.client_reqrep import ConnectionKey
from aiohttp.connector import Connection
from httpx_aiohttp import AiohttpTransport
from yarl import URL

from broker.guard import Allowed, Dialling, Guard, dialling
from broker.listening import Listener
from broker.outward import DIRECT, Outward, outward_of
from broker.resolver import Resolver
from wheel_timer import metrics
from wheel_timer.monotonic import monotonic_s
from wheel_timer.settings import Settings

# Longer than most servers keep an idle connection: they close it first, and we see that.
KEEPALIVE_S: Final = 60.0
DNS_CACHE_S: Final = 10
READ_BUFFER_BYTES: Final = 65_536
# Headers that aiohttp would add; what a callback carries is all in its httpx.Request.
_NOT_ADDED: Final = ("User-Agent", "Content-Type", "Accept", "Accept-Encoding")

_STALE: Final = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)


Field = tuple[str, str]


class CallFailed(httpx.TransportError):
    """No answer. error_class: dns, connect, tls, timeout, reset, refused or status."""

    def __init__(self, error_class: str, detail: str, remote_address: str | None) -> None:
        super().__init__(detail)
        self.error_class = error_class
        self.detail = detail
        self.remote_address = remote_address


class CallbackRequest(httpx.Request):
    """
    A request whose parts lie ready as aiohttp takes them.

    fields: its headers, in order. within: the networks that it may reach, where they are named.
    until_s: after this (monotonic_s) it is not sent any more.
    """

    def __init__(
        self,
        method: str,
        url: httpx.URL,
        fields: Sequence[Field],
        content: bytes,
        within: Allowed = (),
        until_s: float = math.inf,
    ) -> None:
        self.method = method
        self.url = url
        self.extensions = {}
        self.fields = fields
        self.body = content
        self.within = within
        self.until_s = until_s

    def __getattr__(self, name: str) -> Any:
        # Looked for only where it is missing: what httpx.Request would have made at once.
        if name in ("headers", "stream", "_content"):
            made = httpx.Request(self.method, self.url, headers=self.fields, content=self.body)
            return getattr(made, name)
        raise AttributeError(name)


class _Response(aiohttp.ClientResponse):
    """Remembers its connection, which aiohttp forgets with the last byte."""

    wire: Any = None

    async def start(self, connection: Connection) -> Self:
        self.wire = connection.transport
        await super().start(connection)
        return self


class HeldUp(Exception):
    """A request was not sent: its time was over when this process came to it."""


class _Request(aiohttp.ClientRequest):
    """
    Takes no connection over that was dialled under another callback_allow, and sends nothing once
    its time is over. A process that was frozen goes on where it was, with what is ready to run:
    no timer has cancelled that yet, and the task may be somebody else's by now, or cancelled.
    """

    @property
    def connection_key(self) -> ConnectionKey:
        key = super().connection_key
        attempt = dialling.get()
        if attempt is None or not attempt.within:
            return key
        return key._replace(proxy_headers_hash=hash((key.proxy_headers_hash, attempt.within)))

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        attempt = dialling.get()
        if attempt is not None and monotonic_s() > attempt.until_s:
            raise HeldUp
        if attempt is not None:
            attempt.is_sent = True
        return await super().send(conn)


class AnswerBody(httpx.AsyncByteStream):
    """A response's body as it arrives; closing it before its end closes the connection."""

    def __init__(self, response: _Response) -> None:
        self._response = response

    @property
    def is_read(self) -> bool:
        """Whether nothing of it is still to come."""
        return self._response.content.at_eof()

    @property
    def length(self) -> int:
        """Bytes, as its receiver has announced it; 0 where it has not."""
        return self._response.content_length or 0

    @property
    def remote_address(self) -> str | None:
        """The address that answered."""
        peer = self._response.wire.get_extra_info("peername")
        return None if peer is None else str(peer[0])

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._response.content.iter_any():
                yield chunk
        except (aiohttp.ClientError, OSError) as error:
            raise CallFailed("reset", "the answer broke off", self.remote_address) from error

    async def aclose(self) -> None:
        self._response.release()


class CallbackTransport(AiohttpTransport):
    """
    Connections to all receivers, kept alive, each dialled under the address guard.

    Concurrency is bounded by the lanes, not here. tls, proxy: see broker/outward.py. Close it with
    `aclose`.
    """

    def __init__(self, guard: Guard, outward: Outward = DIRECT) -> None:
        super().__init__(client=self._open)
        self._guard = guard
        self._outward = outward
        self._session: aiohttp.ClientSession | None = None

    def _open(self) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0,
            keepalive_timeout=KEEPALIVE_S,
            ttl_dns_cache=DNS_CACHE_S,
            resolver=Resolver(),
            ssl=self._outward.tls or self.ssl_context,
            socket_factory=self._guard.socket_for,
        )
        handler: type[ResponseHandler] = Listener
        connector._factory = partial(handler, loop=asyncio.get_running_loop())
        return aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            request_class=_Request,
            response_class=_Response,
            skip_auto_headers=_NOT_ADDED,
            read_bufsize=READ_BUFFER_BYTES,
            auto_decompress=False,
            trust_env=False,
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """
        Send one request; the answer's body is still to be read, and to be closed.

        A connection kept alive may have been closed by the receiver just as the request went out.
        Where no byte of an answer came on such a connection, the request is sent once more: a
        receiver that keeps its promise to take a webhook-id once loses nothing by it.
        Raises CallFailed; HeldUp where nothing was dialled or sent: nobody else can be the reason.
        """
        assert isinstance(request, CallbackRequest)
        if monotonic_s() > request.until_s:
            raise HeldUp
        if self._outward.proxy is not None:
            refusal = self._guard.refusal_of_host(request.url.host, request.within)
            if refusal is not None:
                raise CallFailed("refused", refusal, None)
        attempt = Dialling(request.within, request.until_s)
        dialling.set(attempt)
        try:
            try:
                response = await self._send(request)
            except _STALE as error:
                if attempt.addresses or isinstance(error, aiohttp.ClientConnectorError):
                    raise
                metrics.repeat("resent")
                response = await self._send(request)
        except (aiohttp.ClientError, OSError, ValueError, HeldUp) as error:
            if isinstance(error, HeldUp) and not (attempt.addresses or attempt.is_sent):
                raise
            address = attempt.addresses[-1] if attempt.addresses else None
            raise _failure(error, address) from error
        return httpx.Response(
            response.status, headers=response.raw_headers, stream=AnswerBody(response)
        )

    async def _send(self, request: CallbackRequest) -> _Response:
        if self._session is None:
            self._session = self.client = self.get_client()
        response = await self._session.request(
            request.method,
            _wire_url(request.url),
            headers=request.fields,
            data=request.body or None,
            allow_redirects=False,
            proxy=self._outward.proxy,
        )
        assert isinstance(response, _Response)
        return response


def open_transport(settings: Settings) -> CallbackTransport:
    """The transport of a process, under the address policy of its settings."""
    return CallbackTransport(Guard.of(settings), outward_of(settings))


@lru_cache(maxsize=4096)
def _wire_url(url: httpx.URL) -> URL:
    # Quoted already, by httpx; a second quoting would change what was configured.
    return URL(str(url), encoded=True)


def _failure(error: Exception, address: str | None) -> CallFailed:
    """What went wrong, in few words that carry nothing of the request."""
    if isinstance(error, HeldUp):
        return CallFailed("timeout", "its time was over before it could be sent", address)
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return CallFailed("dns", f"{error.host}: {_said(error.os_error)}", None)
    if isinstance(error, aiohttp.ClientProxyConnectionError):
        return CallFailed("connect", f"CALLBACK_PROXY: {_said(error.os_error)}", address)
    if isinstance(error, aiohttp.ClientHttpProxyError):
        return CallFailed("connect", f"CALLBACK_PROXY answered {error.status}", address)
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        reason = getattr(error.certificate_error, "verify_message", "not accepted")
        return CallFailed("tls", f"certificate: {reason}", address)
    if isinstance(error, aiohttp.ClientSSLError | ssl.SSLError):
        return CallFailed("tls", f"TLS: {getattr(error, 'reason', None) or 'failed'}", address)
    if isinstance(error, aiohttp.ClientConnectorError):
        number = error.os_error.errno
        if number == errno.EACCES:
            return CallFailed("refused", _said(error.os_error), address)
        where = f"{address or error.host}:{error.port}"
        kind = {errno.ECONNREFUSED: "refused", errno.ETIMEDOUT: "timeout"}
        return CallFailed(
            kind.get(number or 0, "connect"), f"{where}: {_said(error.os_error)}", address
        )
    if isinstance(error, aiohttp.ClientConnectionError | ConnectionError):
        return CallFailed("reset", "the connection was closed before an answer came", address)
    if isinstance(error, aiohttp.ClientResponseError):
        return CallFailed("status", "the answer is not HTTP/1.1", address)
    return CallFailed("connect", f"cannot be called: {type(error).__name__}", address)


def _said(error: OSError) -> str:
    """An OS error's text: the plain one of its number, where it has one."""
    if isinstance(error.errno, int) and error.errno > 0 and error.errno != errno.EACCES:
        return os.strerror(error.errno)
    return error.strerror or "failed"
