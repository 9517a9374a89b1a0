"""How late first calls were: told by brokers, added up in Redis, read by whoever shows it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from uuid import UUID

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from broker.lateness import LatenessTold
from tests.fix_clock import DatabaseClock
from wheel_timer.eventcenter import EventCenter
from wheel_timer.lateness import FIVE_MS, KEPT_MS, class_of

NOW_MS = 1_900_000_000_000 // FIVE_MS * FIVE_MS


class At:
    """A clock that stands."""

    def __init__(self, now_ms: float) -> None:
        self.at_ms = now_ms

    def now_ms(self) -> float:
        return self.at_ms


@pytest_asyncio.fixture
async def center(redis_url: str, redis_prefix: str) -> AsyncIterator[EventCenter]:
    made = EventCenter(redis_url, prefix=redis_prefix, consumer="test", cluster_id=UUID(int=1))
    yield made
    await made.close()


async def test_what_two_brokers_tell_adds_up(
    center: EventCenter, redis_url: str, redis_prefix: str
) -> None:
    clock = At(NOW_MS)
    brokers = [LatenessTold(event_center=center, clock=clock) for _ in range(2)]
    for told in brokers:
        told.add("orders", 3.0)
        told.add("orders", 3.1)
        told.add("mail", 2_000.0)
        await told.stop()
    clock.at_ms += 2 * 60_000
    brokers[0].add("orders", 0.2)
    await brokers[0].stop()
    early, late = class_of(3.0), class_of(2_000.0)
    assert await center.lateness(NOW_MS + 125_000, 3) == [{early: 4, late: 2}, {}, {0: 1}]
    assert await center.lateness_of(["orders"], NOW_MS, 2) == [{}, {early: 4, 0: 1}]
    assert await center.lateness_of(["orders", "mail"], NOW_MS, 1) == [{early: 4, late: 2, 0: 1}]
    assert await center.lateness_of([], NOW_MS, 2) == [{}, {}]
    redis = Redis.from_url(redis_url)
    keys = [key async for key in redis.scan_iter(f"{redis_prefix}:*late*")]
    assert len(keys) == 4
    assert all([0 < await redis.pttl(key) <= KEPT_MS for key in keys])
    await redis.aclose()


async def test_it_is_told_now_and_then_and_only_if_there_is_something(
    center: EventCenter, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s, heard = 100.0, []

    async def hear(counts: Counter[tuple[str, int]], _: float) -> None:
        heard.append(dict(counts))

    monkeypatch.setattr("broker.lateness.monotonic_s", lambda: now_s)
    monkeypatch.setattr(center, "add_lateness", hear)
    told = LatenessTold(event_center=center, clock=At(NOW_MS))
    one = {("orders", class_of(5.0)): 1}
    for second, calls in ((60, 0), (61, 1), (62, 1), (65, 0), (66, 0), (80, 0)):
        now_s = 100.0 + second
        for _ in range(calls):
            told.add("orders", 5.0)
        told.look()
        await asyncio.sleep(0)
        assert heard == {60: [], 61: [one], 62: [one], 65: [one]}.get(second, [one, one]), second
    await told.stop()
    assert heard == [one, one]


async def test_with_redis_away_it_is_forgotten(clock: DatabaseClock) -> None:
    away = EventCenter("redis://127.0.0.1:1/0", prefix="x", consumer="test", cluster_id=UUID(int=1))
    told = LatenessTold(event_center=away, clock=clock)
    told.add("orders", 5.0)
    await told.stop()
    assert not told._counts
    await away.close()
