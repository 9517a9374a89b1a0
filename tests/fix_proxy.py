"""
A network that fails on demand: a TCP proxy in front of Postgres, Redis or an endpoint.

    stop()              nobody is listening; open connections are reset
    deaf()              connections stay, nothing gets through either way (a partition)
    deaf("requests")    what the client says is held back
    deaf("replies")     what the server answers is held back: the outcome is unknown
    slow(delay_s)       whatever is said takes so long, one after the other
    cut()               open connections are reset, new ones are served
    heal()              all is well; what was held back arrives now, as it does in TCP
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final, Literal
from urllib.parse import parse_qs, unquote, urlsplit

import pytest_asyncio

CHUNK_BYTES: Final = 65_536


class Proxy:
    """Listens on 127.0.0.1:port and passes every connection on to `upstream`."""

    def __init__(self, upstream: str | tuple[str, int]) -> None:
        """upstream: a Unix socket's path, or host and port."""
        self.upstream = upstream
        self.port = 0
        self._server: asyncio.Server | None = None
        self._requests = asyncio.Event()
        self._replies = asyncio.Event()
        self._requests.set()
        self._replies.set()
        self._delay_s = 0.0
        self._links: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._links)

    async def start(self) -> None:
        """Listen; again on the same port after `stop`."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """As if the server's process were gone."""
        if self._server is not None:
            self._server.close()
            self._server = None
        await self.cut()

    async def cut(self) -> None:
        """Reset every open connection."""
        for writer in list(self._writers):
            writer.transport.abort()
        links = list(self._links)
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    def deaf(self, what: Literal["both", "requests", "replies"] = "both") -> None:
        """Hold back what is said from now on."""
        if what != "replies":
            self._requests.clear()
        if what != "requests":
            self._replies.clear()

    def slow(self, delay_s: float) -> None:
        """A link with so much delay each way, and no more than CHUNK_BYTES in it."""
        self._delay_s = delay_s

    async def heal(self) -> None:
        """Everything gets through again, at once."""
        self._delay_s = 0.0
        self._requests.set()
        self._replies.set()
        if self._server is None:
            await self.start()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.current_task()
        assert link is not None
        self._links.add(link)
        self._writers.add(writer)
        far_writer: asyncio.StreamWriter | None = None
        try:
            if isinstance(self.upstream, str):
                far_reader, far_writer = await asyncio.open_unix_connection(self.upstream)
            else:
                far_reader, far_writer = await asyncio.open_connection(*self.upstream)
            self._writers.add(far_writer)
            async with asyncio.TaskGroup() as ways:
                ways.create_task(self._pass(reader, far_writer, self._requests))
                ways.create_task(self._pass(far_reader, writer, self._replies))
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            # A connection that fails here fails at both ends; nothing else is to be told. Being
            # cancelled is `cut`: the stream server of asyncio would log it as an error.
            pass
        finally:
            for end in (writer, far_writer):
                if end is not None:
                    self._writers.discard(end)
                    end.transport.abort()
            self._links.discard(link)

    async def _pass(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, open_way: asyncio.Event
    ) -> None:
        while data := await source.read(CHUNK_BYTES):
            if self._delay_s:
                await asyncio.sleep(self._delay_s)
            await open_way.wait()
            target.write(data)
            await target.drain()
        await open_way.wait()
        with suppress(OSError):
            target.write_eof()


class PostgresProxy(Proxy):
    """A proxy whose `url` is the database's, by way of it."""

    def __init__(self, database_url: str) -> None:
        parts = urlsplit(database_url)
        sockets = parse_qs(parts.query)["host"][0]
        super().__init__(f"{sockets}/.s.PGSQL.5432")
        self._user, self._path = parts.username, parts.path

    @property
    def url(self) -> str:
        return f"postgresql://{self._user}@127.0.0.1:{self.port}{self._path}"


class RedisProxy(Proxy):
    """A proxy whose `url` is the event center's, by way of it."""

    def __init__(self, redis_url: str) -> None:
        super().__init__(unquote(urlsplit(redis_url).path))

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"


@pytest_asyncio.fixture
async def postgres_proxy(database_url: str) -> AsyncIterator[PostgresProxy]:
    """In front of the test's database."""
    proxy = PostgresProxy(database_url)
    await proxy.start()
    yield proxy
    await proxy.stop()


@pytest_asyncio.fixture
async def redis_proxy(redis_url: str) -> AsyncIterator[RedisProxy]:
    """In front of the session's Redis."""
    proxy = RedisProxy(redis_url)
    await proxy.start()
    yield proxy
    await proxy.stop()
