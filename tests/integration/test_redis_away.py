"""While Redis is away accepted work is called all the same: on time, and once."""

from __future__ import annotations

import asyncio
import os
import signal as signals
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Final

import pytest
from redis import Redis as Client
from redis.asyncio import Redis

from broker.near import NearPublisher
from daemon.hand import turn
from tests.fix_audits import AuditsHold
from tests.fix_delivery import BIZ_TYPE, Delivery
from tests.fix_endpoint import Endpoint
from tests.fix_hands import Hands, ref_to, task_at
from wheel_timer import signal
from wheel_timer.biz import BizTypeIn
from wheel_timer.embedded import EmbeddedRedis
from wheel_timer.store import biz as store_biz
from wheel_timer.store.submit import submit
from wheel_timer.task import NewTask

PREFIX: Final = "wt"
# The promise is two seconds, on a machine that does nothing else.
LATE_MS_MAX: Final = 4_000


class Service:
    """A daemon and a broker on a Redis of their own, both in the test's event loop."""

    def __init__(self, database_url: str, redis: EmbeddedRedis) -> None:
        self.redis = redis
        self.hands = Hands(database_url, redis.url, PREFIX, visibility_s=60)
        self.broker = Delivery(database_url, redis.url, PREFIX)
        self._near = NearPublisher(self.broker.event_center, self.broker.notifier.deliver)
        self._turning: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await self.hands.clock.measure()
        await self.hands.lead()
        leader = self.hands.leader
        self._turning = [
            asyncio.create_task(leader.keep()),
            asyncio.create_task(turn(self.hands.due, leader)),
            asyncio.create_task(turn(self.hands.sweep, leader)),
            asyncio.create_task(turn(self.hands.fill, leader)),
        ]
        await self.broker.start()

    async def stop(self) -> None:
        await self.broker.stop(drain_s=1)
        await self.hands.leader.resign()
        await asyncio.gather(*self._turning)
        await self.hands.close()

    async def submit(self, count: int, *, from_ms: int, over_ms: int) -> list[NewTask]:
        """So many tasks, due from then on; as the API takes them."""
        first_ms = int(self.broker.clock.now_ms()) + from_ms
        tasks = [task_at(first_ms + n * over_ms // count, BIZ_TYPE) for n in range(count)]
        answers = await submit(self.broker.db, 0, tasks)
        near = [ref_to(t) for t, answer in zip(tasks, answers, strict=True) if answer.near]
        await self._near.publish(near)
        return tasks

    async def finished(self, tasks: list[NewTask]) -> int:
        """How late the latest of them was called (ms), once all are finished."""
        ids = [task.task_id for task in tasks]
        assert set(await self.broker.settled(ids)) == {"finished"}
        rows = [await self.broker.task(task_id) for task_id in ids]
        lates_ms: list[int] = [
            row.first_attempt_time - max(row.start_time, row.create_time) for row in rows
        ]
        return max(lates_ms)


@pytest.fixture
async def service(
    database_url: str, own_redis: EmbeddedRedis, endpoint: Endpoint
) -> AsyncIterator[Service]:
    made = Service(database_url, own_redis)
    async with AsyncExitStack() as stack:
        stack.callback(signal.clear)
        await store_biz.put(made.broker.db, BIZ_TYPE, BizTypeIn(callback_url=endpoint.url))
        stack.push_async_callback(made.stop)
        await made.start()
        # Slots come with the second beat.
        await made.broker.until(lambda: made.broker.notifier.lane(BIZ_TYPE).slots > 0)
        yield made


async def stopped(redis: EmbeddedRedis) -> Callable[[], None]:
    """Its process is gone, and comes back with what it had on disk."""
    await asyncio.to_thread(redis.stop)

    def back() -> None:
        redis.start()
        redis.wait_ready(20)

    return back


async def frozen(redis: EmbeddedRedis) -> Callable[[], None]:
    """It accepts connections and says nothing."""
    pid = int(redis.pid_file.read_text())
    os.kill(pid, signals.SIGSTOP)
    return lambda: os.kill(pid, signals.SIGCONT)


async def a_replica(redis: EmbeddedRedis) -> Callable[[], None]:
    """It answers, and takes no writes."""
    async with Redis.from_url(redis.url) as client:
        await client.config_set("replica-serve-stale-data", "yes")
        await client.replicaof("127.0.0.1", "1")

    def back() -> None:
        with Client.from_url(redis.url) as client:
            client.replicaof("NO", "ONE")

    return back


Lost = Callable[[EmbeddedRedis], Awaitable[Callable[[], None]]]


@pytest.mark.timing
@pytest.mark.parametrize("lost", [stopped, frozen, a_replica])
async def test_what_is_due_while_redis_is_away_is_called_on_time_and_once(
    lost: Lost,
    service: Service,
    endpoint: Endpoint,
    audits_hold: AuditsHold,
) -> None:
    before = await service.submit(20, from_ms=1_600, over_ms=600)
    back = await lost(service.redis)
    far = await service.submit(20, from_ms=2_000, over_ms=1_500)
    near = await service.submit(20, from_ms=0, over_ms=500)
    try:
        late_ms = await service.finished([*before, *far, *near])
        assert late_ms < LATE_MS_MAX
        await audits_hold()
    finally:
        await asyncio.to_thread(back)
    await service.broker.until(lambda: not service.hands.reach.is_away)
    after = await service.submit(20, from_ms=1_600, over_ms=300)
    assert await service.finished(after) < LATE_MS_MAX
    calls = Counter(call.headers["webhook-id"] for call in endpoint.received)
    tasks = [*before, *far, *near, *after]
    assert calls == {str(task.task_id): 1 for task in tasks}
    await audits_hold()
