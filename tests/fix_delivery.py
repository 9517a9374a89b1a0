"""A delivery in the test's own event loop, on the test's Postgres and Redis."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, LiteralString
from uuid import UUID, uuid4

import msgspec
import pytest_asyncio
from psycopg import AsyncConnection
from redis.asyncio import Redis

from broker.notifier import Notifier
from broker.registry import Registry
from wheel_timer import signal
from wheel_timer.biz import BizType, BizTypeIn
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.errors import DatabaseUnavailable
from wheel_timer.eventcenter import EventCenter
from wheel_timer.settings import Settings
from wheel_timer.store import biz as store_biz
from wheel_timer.store.submit import submit
from wheel_timer.store.task import attempts, lookup
from wheel_timer.streams import GROUP
from wheel_timer.task import NewTask, Ref
from wheel_timer.wheel import new_task_id

if TYPE_CHECKING:
    # A plugin of pytest is rewritten as it loads, so it must not be imported by another before.
    from tests.fix_endpoint import Endpoint

BIZ_TYPE: Final = "orders"
CLUSTER: Final = UUID(int=7)
POLL_S: Final = 0.01


class Delivery:
    """
    One broker's delivery and what it stands on. `submit` is what the API does for near tasks.

    `consumer` is new for each; several of them on the same prefix share the lanes.
    """

    def __init__(
        self, database_url: str, redis_url: str, redis_prefix: str, **settings: object
    ) -> None:
        self.looking_url = database_url  # of the test's own queries: never by way of a proxy
        self.consumer = f"broker-{uuid4().hex[:8]}"
        self.settings = Settings.load(settings, None, {})
        self.db = Database(database_url, schema="public", pool_size=8, name=self.consumer)
        self.clock = Clock(self.db)
        self.registry = Registry(self.db)
        self.clock.on_biz_version(self.registry.pulse)
        self.event_center = EventCenter(
            redis_url, prefix=redis_prefix, consumer=self.consumer, cluster_id=CLUSTER
        )
        self.at_once = asyncio.Event()
        self.notifier = Notifier(
            db=self.db,
            event_center=self.event_center,
            clock=self.clock,
            registry=self.registry,
            settings=self.settings,
            broker_name=self.consumer,
        )
        self._pulse: asyncio.Task[None] | None = None
        self._is_stopped = False

    async def start(self) -> None:
        """Begin to deliver."""
        await self.clock.measure()
        await self.registry.load()
        self._pulse = asyncio.create_task(self.clock.run())
        await self.notifier.start()

    async def stop(self, drain_s: float = 5.0) -> None:
        """Stop delivering, if it was begun, and close everything; once more is nothing."""
        if self._is_stopped:
            return
        self._is_stopped = True
        if self._pulse is not None:
            await self.notifier.stop(drain_s, self.at_once)
            self._pulse.cancel()
            # It may be connecting: who is cut off there leaves a connection that nobody closes.
            await asyncio.gather(self._pulse, return_exceptions=True)
        await self.event_center.close()
        await self.db.close()

    async def configure(self, name: str = BIZ_TYPE, **given: Any) -> BizType:
        """Make the biz_type what is given."""
        return (await self.registry.put(name, msgspec.convert(given, BizTypeIn), None)).biz

    async def settled(self, task_ids: Sequence[UUID]) -> list[str]:
        """The statuses of these tasks, as soon as none is pending."""
        again = Reached("delivery.settled")
        async with asyncio.timeout(20):
            while True:
                try:
                    statuses = await self.statuses(task_ids)
                except DatabaseUnavailable:
                    # The first to use a connection that a test has cut; the next one gets anew.
                    continue
                if "pending" not in statuses:
                    return statuses
                await again.next()

    async def submit(
        self,
        tasks: int | Sequence[NewTask] = 1,
        *,
        in_ms: int = 0,
        biz_type: str = BIZ_TYPE,
        before: tuple[LiteralString, Sequence[Any]] | None = None,
        **fields: Any,
    ) -> list[UUID]:
        """
        Submit tasks due in in_ms and publish the near ones, all in one batch.

        before: a statement, with its parameters, to run when they are stored and not yet published.
        """
        if isinstance(tasks, int):
            moment_ms = int(self.clock.now_ms()) + in_ms
            tasks = [
                NewTask(new_task_id(moment_ms), moment_ms, biz_type, **fields) for _ in range(tasks)
            ]
        answers = await submit(self.db, 0, tasks)
        if before is not None:
            await self.run(*before)
        await self.event_center.publish_direct(
            [ref_of(task) for task, answer in zip(tasks, answers, strict=True) if answer.near]
        )
        return [task.task_id for task in tasks]

    async def statuses(self, task_ids: Sequence[UUID]) -> list[str]:
        rows = await lookup(self.db, task_ids)
        return [rows[task_id].status.name.lower() for task_id in task_ids]

    async def task(self, task_id: UUID) -> Any:
        return (await lookup(self.db, [task_id]))[task_id]

    async def attempts(self, task_id: UUID) -> Sequence[Any]:
        return await attempts(self.db, task_id)

    async def until(self, is_so: Callable[[], bool], timeout_s: float = 10.0) -> None:
        """Wait for what no point of the code tells of."""
        async with asyncio.timeout(timeout_s):
            while not is_so():  # noqa: ASYNC110 - no event tells of it
                await asyncio.sleep(POLL_S)

    async def until_row(self, query: LiteralString, timeout_s: float = 10.0) -> None:
        """Wait until a query has a row."""
        async with asyncio.timeout(timeout_s):
            while not await self.rows(query):  # noqa: ASYNC110 - a table tells nobody
                await asyncio.sleep(POLL_S)

    async def until_pending(self, redis_client: Redis, count: int, timeout_s: float = 10.0) -> None:
        """Wait until `count` entries are read by this broker and not acknowledged."""
        lane = self.event_center.lane_key(BIZ_TYPE)
        async with asyncio.timeout(timeout_s):
            while True:
                pending = await redis_client.xpending_range(
                    lane, GROUP, "-", "+", 1_000, consumername=self.consumer
                )
                if len(pending) == count:
                    return
                await asyncio.sleep(POLL_S)

    async def held(self) -> list[tuple[Any, ...]]:
        """(task_id, due_at) of what was put away while its lane was held."""
        return await self.rows("SELECT task_id, due_at FROM timer_requeue WHERE reason = 'held'")

    async def row(self, query: LiteralString, params: Sequence[Any]) -> tuple[Any, ...] | None:
        """The first row of a query of the test's own."""
        async with await AsyncConnection.connect(self.looking_url) as connection:
            return await (await connection.execute(query, params)).fetchone()

    async def rows(self, query: LiteralString) -> list[tuple[Any, ...]]:
        """All rows of a query of the test's own."""
        async with await AsyncConnection.connect(self.looking_url) as connection:
            return await (await connection.execute(query)).fetchall()

    async def run(self, statement: LiteralString, params: Sequence[Any]) -> None:
        """Change a table behind everybody's back."""
        async with await AsyncConnection.connect(self.looking_url) as connection:
            await connection.execute(statement, params)

    async def beat(self) -> None:
        """The heartbeat of this second, now."""
        await self.notifier.takeover.beat()


def ref_of(task: NewTask) -> Ref:
    """The reference that a submitter publishes of a near task."""
    return Ref(
        task.task_id, task.start_time_ms, task.start_time_ms, task.start_time_ms, task.biz_type
    )


class Reached:
    """Counts how often a point of the code was come to, and waits for it."""

    def __init__(self, point: str) -> None:
        self.count = 0
        self._changed = asyncio.Event()
        signal.on(point, self._reached)

    def _reached(self) -> None:
        self.count += 1
        self._changed.set()

    async def times(self, count: int = 1, timeout_s: float = 10.0) -> None:
        async with asyncio.timeout(timeout_s):
            while self.count < count:
                self._changed.clear()
                await self._changed.wait()

    async def next(self, timeout_s: float = 10.0) -> None:
        """Wait until it is come to once more, seen from the last wait."""
        async with asyncio.timeout(timeout_s):
            await self._changed.wait()
        self._changed.clear()


@pytest_asyncio.fixture
async def resting_delivery(
    database_url: str, redis_url: str, redis_prefix: str, endpoint: Endpoint
) -> AsyncIterator[Delivery]:
    """A delivery with one biz_type, `orders`, that calls `endpoint`; it knows the time: `start`."""
    resting = Delivery(database_url, redis_url, redis_prefix)
    await store_biz.put(resting.db, BIZ_TYPE, BizTypeIn(callback_url=endpoint.url))
    await resting.clock.measure()
    yield resting
    await resting.stop()
    signal.clear()


@pytest_asyncio.fixture
async def delivery(resting_delivery: Delivery) -> Delivery:
    """The same, running."""
    await resting_delivery.start()
    return resting_delivery


@pytest_asyncio.fixture
async def another_delivery(
    database_url: str, redis_url: str, redis_prefix: str
) -> AsyncIterator[Callable[..., Awaitable[Delivery]]]:
    """
    `await another_delivery()`: one more broker on the same lanes, running unless `is_resting`.

    database_url, redis_url: by another way, a proxy's.
    """
    async with AsyncExitStack() as stack:

        async def start(*, is_resting: bool = False, **urls: str) -> Delivery:
            another = Delivery(
                urls.get("database_url", database_url),
                urls.get("redis_url", redis_url),
                redis_prefix,
            )
            stack.push_async_callback(another.stop)
            another.looking_url = database_url
            await another.clock.measure()
            if not is_resting:
                await another.start()
            return another

        yield start
