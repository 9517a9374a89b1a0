"""Sessions of a test's own in its database, and waiting for what other sessions do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, LiteralString

import pytest_asyncio
from psycopg import AsyncConnection

from wheel_timer.database import Database
from wheel_timer.store.submit import Submitted, submit
from wheel_timer.task import NewTask

WAIT_S: Final = 10.0
LOOK_EACH_S: Final = 0.002

# Sessions of this database that wait for a lock, by what they run.
WAITING: Final = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE %s
"""


async def until(is_so: Callable[[], Awaitable[object]], timeout_s: float = WAIT_S) -> None:
    """Return as soon as something is so that no signal tells of."""
    deadline_s = time.monotonic() + timeout_s
    while not await is_so():
        assert time.monotonic() < deadline_s, f"not within {timeout_s:g} s"
        await asyncio.sleep(LOOK_EACH_S)


class Sessions:
    """Opens sessions that end with the test; looks at what all sessions of the database do."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._open: list[AsyncConnection[Any]] = []
        self._observer: AsyncConnection[Any] | None = None

    async def open(self) -> AsyncConnection[Any]:
        """A new session in autocommit."""
        session = await AsyncConnection.connect(self._url, autocommit=True)
        self._open.append(session)
        return session

    async def value(self, query: LiteralString, *params: object) -> Any:
        """The first column of the first row."""
        row = await self.row(query, *params)
        return row[0]

    async def row(self, query: LiteralString, *params: object) -> tuple[Any, ...]:
        """The first row."""
        # A session of its own: inside a transaction pg_stat_activity shows one moment for ever.
        if self._observer is None:
            self._observer = await self.open()
        cursor = await self._observer.execute(query, params or None)
        row = await cursor.fetchone()
        assert row is not None
        return tuple(row)

    async def until(self, query: LiteralString, *params: object, timeout_s: float = WAIT_S) -> None:
        """Return as soon as the query answers something that counts as true."""
        await until(lambda: self.value(query, *params), timeout_s)

    async def until_waiting(self, query_like: str, count: int = 1) -> None:
        """Return as soon as `count` sessions that run such a query wait for a lock."""

        async def enough() -> bool:
            return bool(await self.value(WAITING, f"%{query_like}%") >= count)

        await until(enough)

    @asynccontextmanager
    async def submitter_in_the_fence(
        self, db: Database, task: NewTask
    ) -> AsyncIterator[asyncio.Task[list[Submitted]]]:
        """
        A submit of this task that has entered the fence, read closed_to, and now waits before it
        writes: for its biz_id, which another session holds. It goes on, and ends, when the block
        is left.
        """
        assert task.biz_id is not None
        holder = await self.open()
        async with holder.transaction(force_rollback=True):
            await holder.execute(
                "INSERT INTO timer_key (biz_type, biz_id, task_id) VALUES (%s, %s, %s)",
                [task.biz_type, task.biz_id, "00000000-0000-0000-0000-000000000000"],
            )
            submitting = asyncio.create_task(submit(db, 0, [task]))
            await self.until_waiting("wheel_submit")
            yield submitting
        await submitting

    async def close(self) -> None:
        for session in self._open:
            await session.close()


@pytest_asyncio.fixture
async def sessions(database_url: str) -> AsyncIterator[Sessions]:
    """Sessions in the test's database."""
    opened = Sessions(database_url)
    yield opened
    await opened.close()
