"""The console's pages of the wheel: hands, lanes, how late calls were, what is coming."""

from __future__ import annotations

import re
from uuid import uuid4

import httpx

from broker.api.context import Context
from tests.fix_clock import DatabaseClock
from tests.fix_console import sign_in
from tests.fix_hands import task_at
from tests.fix_tasks import submit_all
from tests.integration.api.conftest import client_of
from tests.integration.api.test_keys import ADMIN_KEY, make
from wheel_timer.database import Database
from wheel_timer.eventcenter import EventCenter
from wheel_timer.lateness import class_of
from wheel_timer.store import lanetime

MINUTE_MS = 60_000
PAGE_BYTES_MAX = 90_000


async def lanes_of(http: httpx.AsyncClient, query: str = "") -> list[str]:
    page = (await http.get(f"/console/wheel{query}")).text
    return re.findall(r'<th scope="row"><a href="/console/tasks\?biz_type=[^"]*">([^<]+)', page)


async def test_lanes_are_those_that_hold_back_and_those_with_the_most_to_do(
    client: httpx.AsyncClient, context: Context, db: Database, clock: DatabaseClock
) -> None:
    for n in range(40):
        body = {"callback_url": "http://127.0.0.1:9/"}
        await client.put(f"/v1/biz/lane.{n:02}", json=body)
    at_ms = clock.now_ms() + 5 * MINUTE_MS
    held, paused, full = "lane.33", "lane.34", "lane.35"
    tasks = [task_at(at_ms + n, full) for n in range(9)]
    await submit_all(db, [*tasks, task_at(at_ms, held), task_at(at_ms, paused)])
    await client.post(f"/v1/biz/{paused}/pause")
    await lanetime.add(db, {(held, "rate_limited"): 90_000.0, ("lane.01", "paused"): 5.0})
    shown = await lanes_of(client)
    assert sorted(shown[:2]) == [held, paused]
    assert shown[2] == full
    assert len(shown) == 15
    page = await client.get("/console/wheel")
    assert "The 15 of 40" in page.text
    assert "held 1 min 30 s by its rate limit" in page.text
    assert len(page.content) < PAGE_BYTES_MAX
    assert await lanes_of(client, "?search=LANE.0") == [f"lane.{n:02}" for n in range(10)]
    assert "There is no such biz_type" in (await client.get("/console/wheel?search=x")).text


async def test_the_last_hour_and_the_next_ones_are_drawn(
    client: httpx.AsyncClient, context: Context, db: Database, clock: DatabaseClock, orders: str
) -> None:
    now_ms = clock.now_ms()
    empty = (await client.get("/console/wheel")).text
    assert "No task was called for the first time" in empty
    counts = {(orders, class_of(3.0)): 99, (orders, class_of(700.0)): 1}
    await context.event_center.add_lateness(counts, now_ms)
    await submit_all(db, [task_at(now_ms + 40 * MINUTE_MS + n, orders) for n in range(7)])
    page = (await client.get("/console/wheel")).text
    assert "100 first calls; half of them within 4 ms of their moment" in page
    assert "7 pending tasks, by the quarter hour" in page
    assert re.search(r"<title>\d\d:\d\d to \d\d:\d\d, in \d+ min: 7 tasks</title>", page)
    part = (await client.get("/console/wheel", headers={"hx-target": "now"})).text
    assert "<svg" not in part
    assert 'id="now"' in part
    assert 'id="lanes"' in part


async def test_a_narrowed_key_sees_its_own_calls_only(
    context: Context, db: Database, clock: DatabaseClock
) -> None:
    keyed = client_of(context, admin_key=ADMIN_KEY)
    now_ms = clock.now_ms()
    for name, tasks in (("ours", 3), ("theirs", 4)):
        body = {"callback_url": "http://127.0.0.1:9/"}
        headers = {"authorization": f"Bearer {ADMIN_KEY}"}
        await keyed.put(f"/v1/biz/{name}", json=body, headers=headers)
        at_ms = now_ms + 20 * MINUTE_MS
        await submit_all(db, [task_at(at_ms + n, name) for n in range(tasks)])
        await context.event_center.add_lateness({(name, 4): tasks * 10}, now_ms)
        await lanetime.add(db, {(name, "concurrency"): 60_000.0})
    await sign_in(keyed, (await make(keyed, scopes=["read"], biz_types=["ours"]))["key"])
    page = (await keyed.get("/console/wheel")).text
    assert "30 first calls" in page
    assert "3 pending tasks, by the quarter hour" in page
    assert "theirs" not in page
    assert await lanes_of(keyed) == ["ours"]
    forecast = (await keyed.get("/console/forecast?hours=1")).text
    assert "3 tasks in 1 hour" in forecast
    assert (await keyed.get("/console/forecast?biz_type=theirs")).status_code == 404


async def test_while_redis_is_away_the_page_says_what_it_does_not_know(
    client: httpx.AsyncClient, context: Context, orders: str
) -> None:
    away = EventCenter("redis://127.0.0.1:1/0", prefix="x", consumer="test", cluster_id=uuid4())
    page = await client_of(context, event_center=away).get("/console/wheel")
    assert page.status_code == 200
    assert "Not known: the event center is away" in page.text
    assert "not known" in page.text
    await away.close()


async def test_the_forecast_names_minutes_and_seconds_that_hold_too_much(
    client: httpx.AsyncClient, db: Database, clock: DatabaseClock
) -> None:
    body = {"callback_url": "http://127.0.0.1:9/", "rate_limit": 0.1}
    assert (await client.put("/v1/biz/slow", json=body)).status_code == 201
    at_ms = clock.now_ms() + 20 * MINUTE_MS
    await submit_all(db, [task_at(at_ms, "slow") for _ in range(12)])
    for hours in (1, 3, 24, 72):
        page = await client.get(f"/console/forecast?biz_type=slow&hours={hours}")
        assert page.status_code == 200
        assert "12 tasks in" in page.text
        assert "1 minute holds more" in page.text
        assert len(page.content) < PAGE_BYTES_MAX
        assert 'class="column over"' in page.text
    assert '<td class="number" data-label="Tasks">12</td>' in page.text
    for query, status in (("hours=x", 422), ("biz_type=A B", 422), ("biz_type=nobody", 404)):
        assert (await client.get(f"/console/forecast?{query}")).status_code == status
