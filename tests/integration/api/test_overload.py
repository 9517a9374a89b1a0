"""More than the database takes: what finds no room is told so at once, counted, and nothing of it
is kept."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator

import httpx
import psycopg
import pytest
import pytest_asyncio
from redis.asyncio import Redis

from broker import changer, grouping, patience
from broker.api.context import Context
from tests.fix_sessions import Sessions, until
from wheel_timer import database, metrics, streams
from wheel_timer.biz import BizTypeIn
from wheel_timer.database import Database
from wheel_timer.errors import DatabaseUnavailable
from wheel_timer.eventcenter import EventCenter

TASK = {"biz_type": "orders", "delay": 3600}
FENCE = "SELECT pg_advisory_lock(wheel_lock_class('timer_pointer'), 0)"


@pytest_asyncio.fixture
async def stuck(context: Context, sessions: Sessions) -> AsyncIterator[psycopg.AsyncConnection]:
    """A database that answers no writer, until this session is closed."""
    await context.registry.put("orders", BizTypeIn(callback_url="http://127.0.0.1:9/"), None)
    session = await sessions.open()
    await session.execute(FENCE)
    yield session


def rejected() -> int:
    """tasks_rejected_total{reason="overloaded"}."""
    found = re.search(
        r'tasks_rejected_total\{reason="overloaded"\} (\S+)', metrics.scrape().decode()
    )
    return int(float(found[1])) if found else 0


async def test_submits_beyond_the_queue_are_refused_and_counted(
    client: httpx.AsyncClient,
    context: Context,
    stuck: psycopg.AsyncConnection,
    sessions: Sessions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grouping, "QUEUE_ROWS_MAX", 3)
    monkeypatch.setattr(grouping, "SLOW_S", 60)
    before = rejected()
    under_way = asyncio.create_task(client.post("/v1/tasks", json=TASK))
    await sessions.until_waiting("wheel_submit")
    waiting = [asyncio.create_task(client.post("/v1/tasks", json=TASK)) for _ in range(3)]
    await asyncio.sleep(0.05)
    for path, body, tasks in (
        ("/v1/tasks", TASK, 1),
        ("/v1/tasks/batch", {"tasks": [TASK, TASK]}, 2),
    ):
        refused = await client.post(path, json=body)
        assert refused.status_code == 503
        assert refused.json()["type"].endswith("overloaded")
        assert int(refused.headers["retry-after"]) >= 1
        before += tasks
        assert rejected() == before
    await stuck.close()
    assert [(await one).status_code for one in (under_way, *waiting)] == [201] * 4
    assert await sessions.value("SELECT count(*) FROM timer_task") == 4


async def test_who_has_waited_for_too_long_is_refused_and_does_not_hold_up_the_others(
    client: httpx.AsyncClient,
    context: Context,
    stuck: psycopg.AsyncConnection,
    sessions: Sessions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Behind a database that stood for long waits the work of clients that have gone."""
    monkeypatch.setattr(grouping, "SLOW_S", 60)
    loop = asyncio.get_running_loop()
    path = "/v1/biz/orders/tasks/none"
    under_way = asyncio.create_task(client.post("/v1/tasks", json=TASK))
    await sessions.until_waiting("wheel_submit")
    batch = {"tasks": [TASK, TASK]}
    old = [
        asyncio.create_task(client.post("/v1/tasks", json=TASK)),
        asyncio.create_task(client.post("/v1/tasks/batch", json=batch)),
    ]
    await until_queued(context, 3)
    mark_s = loop.time()
    monkeypatch.setattr(patience, "is_over", lambda since_s, _now_s: since_s <= mark_s)
    await asyncio.sleep(0.01)
    fresh = asyncio.create_task(client.post("/v1/tasks", json=TASK))
    # Those before it are told when the next one comes, not only once the database is back.
    for refused in await asyncio.wait_for(asyncio.gather(*old), 5):
        assert refused.status_code == 503
        assert refused.json()["type"].endswith("overloaded")
        assert int(refused.headers["retry-after"]) >= 1
    await stuck.close()
    assert [(await one).status_code for one in (under_way, fresh)] == [201, 201]
    assert await sessions.value("SELECT count(*) FROM timer_task") == 2
    monkeypatch.setattr(patience, "is_over", lambda _since_s, _now_s: True)
    late = await client.delete(path)
    assert late.status_code == 503
    monkeypatch.undo()
    assert (await client.delete(path)).status_code == 404


async def until_queued(context: Context, rows: int) -> None:
    """Return as soon as so many submits wait for their turn."""

    async def enough() -> bool:
        return context.submitter._grouping.rows >= rows

    await until(enough)


async def test_changes_are_bounded_in_bytes_too(
    client: httpx.AsyncClient,
    context: Context,
    sessions: Sessions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await context.registry.put("orders", BizTypeIn(callback_url="http://127.0.0.1:9/"), None)
    paths = []
    for _ in range(4):
        made = await client.post("/v1/tasks", json=TASK)
        paths.append(made.headers["location"])
    monkeypatch.setattr(changer, "QUEUE_BYTES_MAX", 25_000)
    session = await sessions.open()
    await session.execute(FENCE)
    body = {"biz_data": "x" * 10_000}
    first = asyncio.create_task(client.patch(paths[0], json=body))
    await sessions.until_waiting("wheel_change")
    rest = [asyncio.create_task(client.patch(path, json=body)) for path in paths[1:]]
    done, waiting = await asyncio.wait(rest, timeout=1)
    (refused,) = [one.result() for one in done]
    assert (refused.status_code, len(waiting)) == (503, 2)
    await session.close()
    assert [(await one).status_code for one in (first, *waiting)] == [200] * 3
    assert (await client.patch(paths[3], json=body)).status_code == 200


async def test_only_so_many_wait_for_a_connection(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "POOL_WAITERS_MAX", 3)
    db = Database(database_url, pool_size=1, name="narrow")
    await db.fetch("cluster_id")
    reading = asyncio.create_task(db.read("SELECT pg_sleep(0.2)", timeout_s=5))
    await asyncio.sleep(0.05)
    waiting = [asyncio.create_task(db.fetch("cluster_id")) for _ in range(3)]
    await asyncio.sleep(0)
    with pytest.raises(DatabaseUnavailable, match="too many") as refused:
        await db.fetch("cluster_id")
    assert not refused.value.outcome_unknown
    await asyncio.gather(reading, *waiting)
    await db.fetch("cluster_id")
    await db.close()


async def test_any_number_of_callers_share_some_connections_to_redis(
    event_center: EventCenter, redis_client: Redis
) -> None:
    before = (await redis_client.info("clients"))["connected_clients"]
    await asyncio.gather(*(event_center.ping() for _ in range(1_000)))
    after = (await redis_client.info("clients"))["connected_clients"]
    assert after - before <= streams.CONNECTIONS_MAX
