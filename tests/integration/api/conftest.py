"""The API over real servers, without a socket: every request goes through the whole app."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx
import msgspec
import pytest
import pytest_asyncio

from broker import patience
from broker.api.app import build_app
from broker.api.context import Context
from broker.changer import Changer
from broker.console.app import Console, with_console
from broker.keys import Keys
from broker.pull import Pull
from broker.registry import Registry
from broker.reports import Reports
from broker.submitter import Submitter
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.eventcenter import EventCenter
from wheel_timer.ops import Health
from wheel_timer.settings import Settings

CLUSTER = uuid4()


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is no outage: nobody waits for too long but where a test says so."""
    monkeypatch.setattr(patience, "WAIT_S_MAX", 60.0)


@pytest.fixture
def settings(database_url: str, redis_url: str, redis_prefix: str) -> Settings:
    """The defaults, on the test's servers."""
    flags = {"database_url": database_url, "redis_url": redis_url, "redis_prefix": redis_prefix}
    return Settings.load(flags, None, {})


@pytest_asyncio.fixture
async def event_center(settings: Settings) -> AsyncIterator[EventCenter]:
    center = EventCenter(
        settings.redis_url, prefix=settings.redis_prefix, consumer="test", cluster_id=uuid4()
    )
    yield center
    await center.close()


@pytest_asyncio.fixture
async def context(
    settings: Settings, db: Database, event_center: EventCenter
) -> AsyncIterator[Context]:
    """What broker/app.py builds for its API, less everything that runs by itself."""
    clock = Clock(db)
    await clock.measure()
    registry = Registry(db)
    await registry.load()
    keys = Keys(db, clock)
    await keys.load()
    submitter = Submitter(
        db=db,
        event_center=event_center,
        clock=clock,
        max_pending=lambda: registry.max_pending,
    )
    changer = Changer(db=db, event_center=event_center, clock=clock)
    pull_center = EventCenter(
        settings.redis_url,
        prefix=settings.redis_prefix,
        consumer="server",
        cluster_id=uuid4(),
        members="servers",
    )
    pull = Pull(
        db=db,
        event_center=pull_center,
        clock=clock,
        registry=registry,
        settings=settings,
        broker_name="test",
    )
    reports = Reports(
        db=db,
        event_center=event_center,
        clock=clock,
        registry=registry,
        broker_name="test",
        reported=pull.reported,
    )

    async def ready() -> tuple[bool, dict[str, Any]]:
        return True, {}

    yield Context(
        settings=settings,
        db=db,
        clock=clock,
        event_center=event_center,
        registry=registry,
        keys=keys,
        submitter=submitter,
        changer=changer,
        pull=pull,
        reports=reports,
        health=Health(ready),
    )
    await submitter.stop()
    await changer.stop()
    await reports.stop()
    await pull_center.close()


@pytest_asyncio.fixture
async def client(context: Context) -> AsyncIterator[httpx.AsyncClient]:
    """A client on this machine of a server without a key."""
    async with client_of(context) as http:
        yield http


@pytest_asyncio.fixture
async def orders(client: httpx.AsyncClient) -> str:
    """A biz_type with a callback_url."""
    body = {"callback_url": "http://127.0.0.1:9/callback", "allow_callback_override": True}
    assert (await client.put("/v1/biz/orders", json=body)).status_code == 201
    return "orders"


def client_of(
    context: Context, *, event_center: EventCenter | None = None, **changed: Any
) -> httpx.AsyncClient:
    """A client of an app over the same parts, with some settings or the event center changed."""
    settings = msgspec.structs.replace(context.settings, **changed)
    own = Context(
        settings=settings,
        db=context.db,
        clock=context.clock,
        event_center=event_center or context.event_center,
        registry=context.registry,
        keys=context.keys,
        submitter=context.submitter,
        changer=context.changer,
        pull=context.pull,
        reports=context.reports,
        health=context.health,
    )
    app = with_console(build_app(own), Console(own, CLUSTER))
    transport = httpx.ASGITransport(app=app)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost:8080")
