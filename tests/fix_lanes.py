"""The lanes of a test's own corner of Redis: what lies in them, and brokers that read them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID, uuid4

import pytest_asyncio
from redis.asyncio import Redis

from tests.fix_hands import BIZ_TYPE, CLUSTER, Hands, ref_to, task_at
from wheel_timer.biz import BizTypeIn
from wheel_timer.database import Database
from wheel_timer.eventcenter import EventCenter
from wheel_timer.store import biz as store_biz
from wheel_timer.streams import unpack
from wheel_timer.task import Ref


class Lanes:
    """What lies in the lanes of a test's prefix."""

    def __init__(self, client: Redis, prefix: str, event_center: EventCenter) -> None:
        self._client = client
        self.prefix = prefix
        self._event_center = event_center

    def key(self, biz_type: str = BIZ_TYPE) -> str:
        return self._event_center.lane_key(biz_type)

    async def refs(self, biz_type: str = BIZ_TYPE) -> list[Ref]:
        """The references in a lane, oldest first, whoever has read them."""
        entries: Any = await self._client.xrange(self.key(biz_type))
        return [unpack(fields[b"r"], biz_type, entry_id) for entry_id, fields in entries]

    async def ids(self, biz_type: str = BIZ_TYPE) -> list[UUID]:
        """The tasks they lead to, one for each entry."""
        return [ref.task_id for ref in await self.refs(biz_type)]

    async def pending(self, consumer: str, biz_type: str = BIZ_TYPE) -> list[bytes]:
        """Ids of the entries that a consumer has read and not acknowledged."""
        found: Any = await self._client.xpending_range(
            self.key(biz_type), "brokers", "-", "+", 10_000, consumer
        )
        return [entry["message_id"] for entry in found]

    async def lose(self) -> None:
        """What a flush does to this prefix: every key of it is gone."""
        keys = [key async for key in self._client.scan_iter(f"{self.prefix}:*", count=1000)]
        if keys:
            await self._client.delete(*keys)


@pytest_asyncio.fixture
async def lanes(redis_client: Redis, redis_url: str, redis_prefix: str) -> AsyncIterator[Lanes]:
    """A look into the lanes."""
    center = EventCenter(redis_url, prefix=redis_prefix, consumer="test", cluster_id=CLUSTER)
    yield Lanes(redis_client, redis_prefix, center)
    await center.close()


NewCenter = Callable[..., EventCenter]


@pytest_asyncio.fixture
async def new_center(redis_url: str, redis_prefix: str) -> AsyncIterator[NewCenter]:
    """`new_center()` -> the event center as one more broker sees it."""
    made: list[EventCenter] = []

    def new(consumer: str | None = None, *, url: str = redis_url) -> EventCenter:
        name = consumer or f"broker-{uuid4().hex[:6]}"
        made.append(EventCenter(url, prefix=redis_prefix, consumer=name, cluster_id=CLUSTER))
        return made[-1]

    yield new
    for center in made:
        await center.close()


def refs_of(count: int, biz_type: str = BIZ_TYPE) -> list[Ref]:
    """References to as many tasks, one due each millisecond of 2027-01-15T08:00:00Z on."""
    return [ref_to(task_at(1_800_000_000_000 + n, biz_type)) for n in range(count)]


def bare(refs: list[Ref]) -> list[Ref]:
    """References as they were before they had an entry."""
    return [ref._replace(entry_id=b"", taken_over=False) for ref in refs]


@pytest_asyncio.fixture
async def limited(hands: Hands, db: Database) -> Hands:
    """The leader; `orders` may be called ten times a minute."""
    await configure(hands, db, rate_limit=1 / 6)
    return hands


async def configure(hands: Hands, db: Database, **given: object) -> None:
    """Let `orders` have this configuration, and the daemon know it."""
    biz = BizTypeIn(callback_url="http://127.0.0.1:9/", **given)  # type: ignore[arg-type]
    await store_biz.put(db, BIZ_TYPE, biz)
    await hands.clock.measure()
    await hands.limits.refresh()
