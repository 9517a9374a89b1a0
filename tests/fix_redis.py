"""One embedded Redis a session; a test writes only under its own prefix."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from wheel_timer.embedded import DataDirectory, EmbeddedRedis


@pytest.fixture(scope="session")
def redis_server(server_directory: DataDirectory) -> Iterator[EmbeddedRedis]:
    """The session's Redis. Not to be stopped or flushed: see `own_redis`."""
    server = EmbeddedRedis(server_directory)
    server.start()
    try:
        server.wait_ready(20)
        yield server
    finally:
        server.stop()


@pytest.fixture
def redis_url(redis_server: EmbeddedRedis) -> str:
    return redis_server.url


@pytest_asyncio.fixture
async def redis_client(redis_url: str) -> AsyncIterator[Redis]:
    """A client to look at what is in Redis, and to break it."""
    client = Redis.from_url(redis_url)
    yield client
    await client.aclose()


@pytest.fixture
def redis_prefix() -> str:
    """A prefix that no other test has."""
    return f"test-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def own_redis(own_directory: DataDirectory) -> Iterator[EmbeddedRedis]:
    """A running server for one test to stop, kill, flush and start again."""
    server = EmbeddedRedis(own_directory)
    server.start()
    try:
        server.wait_ready(20)
        yield server
    finally:
        server.stop()
