"""Why a task that is due is not called: what GET tells of its lane."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import httpx
import pytest

from broker.api.context import Context
from broker.api.times import format_time
from tests.fix_clock import DatabaseClock
from tests.fix_hands import task_at
from tests.fix_tasks import submit_all
from tests.integration.api.conftest import client_of
from wheel_timer.database import Database
from wheel_timer.eventcenter import EventCenter
from wheel_timer.settings import Settings
from wheel_timer.task import NewTask
from wheel_timer.waits import TOLD_MS, LaneReason, LaneWait

ORDERS = {"callback_url": "http://127.0.0.1:9/"}


@pytest.fixture
async def due(
    client: httpx.AsyncClient, db: Database, clock: DatabaseClock, context: Context
) -> NewTask:
    """A task that has been due for five seconds."""
    assert (await client.put("/v1/biz/orders", json=ORDERS)).status_code == 201
    now_ms = clock.freeze()
    (task,) = await submit_all(db, [task_at(now_ms)])
    clock.advance(5_000)
    await context.clock.measure()
    return task


async def waiting(client: httpx.AsyncClient, task: NewTask) -> dict[str, Any]:
    """What one task says, which is what a list says of it."""
    shown = (await client.get(f"/v1/tasks/{task.task_id}")).json()["waiting"]
    (item,) = (await client.get("/v1/tasks")).json()["items"]
    assert item["waiting"] == shown
    found: dict[str, Any] = shown
    return found


async def test_nothing_told_is_its_turn_to_come(client: httpx.AsyncClient, due: NewTask) -> None:
    assert (await waiting(client, due))["reason"] == "queued"


@pytest.mark.parametrize("reason", ["rate_limited", "concurrency", "breaker_open"])
async def test_what_a_broker_has_told_of_the_lane(
    reason: LaneReason,
    client: httpx.AsyncClient,
    due: NewTask,
    event_center: EventCenter,
    clock: DatabaseClock,
) -> None:
    now_ms = clock.now_ms()
    told = LaneWait(reason, now_ms - 2_000, now_ms + 4_000, now_ms)
    await event_center.tell_waits({"orders": told, "others": told})
    shown = await waiting(client, due)
    assert shown["reason"] == reason
    assert shown["since"] < shown["until"]
    # Before its own moment nothing has held it.
    await event_center.tell_waits({"orders": LaneWait(reason, 0, None, now_ms)})
    shown = await waiting(client, due)
    assert (shown["since"], shown["until"]) == (format_time(due.start_time_ms), None)


async def test_what_brokers_tell_differently_is_the_hardest_of_it(
    client: httpx.AsyncClient,
    due: NewTask,
    event_center: EventCenter,
    settings: Settings,
    clock: DatabaseClock,
) -> None:
    now_ms = clock.now_ms()
    other = EventCenter(
        settings.redis_url, prefix=settings.redis_prefix, consumer="other", cluster_id=uuid4()
    )
    await event_center.tell_waits({"orders": LaneWait("concurrency", now_ms, None, now_ms)})
    await other.tell_waits({"orders": LaneWait("breaker_open", now_ms, None, now_ms)})
    await other.close()
    assert (await waiting(client, due))["reason"] == "breaker_open"


async def test_old_news_is_none(
    client: httpx.AsyncClient, due: NewTask, event_center: EventCenter, clock: DatabaseClock
) -> None:
    """A broker that died with a full lane told so with its last word."""
    told_ms = clock.now_ms() - TOLD_MS - 1
    await event_center.tell_waits({"orders": LaneWait("concurrency", 0, None, told_ms)})
    assert (await waiting(client, due))["reason"] == "queued"


async def test_a_pause_and_the_brake_are_told_by_the_configuration(
    client: httpx.AsyncClient, due: NewTask
) -> None:
    await client.post("/v1/biz/orders/pause")
    assert (await waiting(client, due))["reason"] == "paused"
    await client.post("/v1/biz/orders/resume")
    assert (await waiting(client, due))["reason"] == "queued"
    await client.post("/v1/wheel/pause", json={"reason": "a release"})
    assert (await waiting(client, due))["reason"] == "paused"


async def test_with_redis_away_that_is_the_reason(
    context: Context, due: NewTask, settings: Settings
) -> None:
    nowhere = EventCenter("redis://127.0.0.1:1", prefix="none", consumer="test", cluster_id=uuid4())
    async with client_of(context, event_center=nowhere) as client:
        assert (await waiting(client, due))["reason"] == "event_center"
    await nowhere.close()


async def test_a_task_that_is_not_due_waits_for_its_moment_whatever_its_lane_does(
    client: httpx.AsyncClient, db: Database, clock: DatabaseClock, event_center: EventCenter
) -> None:
    now_ms = clock.now_ms()
    (task,) = await submit_all(db, [task_at(now_ms + 60_000)])
    await event_center.tell_waits({"orders": LaneWait("concurrency", 0, None, now_ms)})
    assert (await waiting(client, task))["reason"] == "scheduled"
