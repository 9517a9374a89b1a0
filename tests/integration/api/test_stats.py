"""GET .../stats: figures that are right where they say so, in bounded time."""

from __future__ import annotations

from uuid import uuid4

import httpx
import psycopg
import pytest

from broker.api.context import Context
from tests.fix_clock import DatabaseClock
from tests.integration.api.conftest import client_of
from wheel_timer.database import Database
from wheel_timer.eventcenter import EventCenter
from wheel_timer.store import stats
from wheel_timer.store.submit import submit
from wheel_timer.task import NewTask
from wheel_timer.wheel import LAP_S, new_task_id

LAP_MS = LAP_S * 1000
# A quarter of a minute after the ring's end: the last minute lies on both sides of it.
WRAP_MS = 1_800_000_000_000 + 15_000


async def put_tasks(db: Database, moments_ms: list[int], biz_type: str = "orders") -> None:
    await submit(db, 0, [NewTask(new_task_id(at), at, biz_type) for at in moments_ms])


async def test_they_count_the_last_minute_over_the_rings_end(
    client: httpx.AsyncClient,
    context: Context,
    orders: str,
    db: Database,
    database_url: str,
    clock: DatabaseClock,
) -> None:
    clock.freeze(WRAP_MS)
    await context.clock.measure()
    await put_tasks(db, [WRAP_MS - 1_000 * n - 1 for n in range(40)])
    await put_tasks(db, [WRAP_MS - 30_000] * 5, "refunds")
    await put_tasks(db, [WRAP_MS - 60_001, WRAP_MS - 30_000 + LAP_MS])
    await put_tasks(db, [WRAP_MS, WRAP_MS + 3_599_999, WRAP_MS + 3_600_000])
    with psycopg.connect(database_url) as connection:
        connection.execute(
            """
            UPDATE timer_task
            SET status = 1, finish_time = 1, expire_at = 2, attempts = 1 + (start_time / 1000) %% 2,
                create_time = start_time, first_attempt_time = start_time + 7
            WHERE biz_type = 'orders' AND start_time BETWEEN %s AND %s
            """,
            [WRAP_MS - 20_000, WRAP_MS - 1],
        )
        connection.execute(
            "INSERT INTO timer_dead SELECT gen_random_uuid(), 1, 'orders' FROM"
            " generate_series(1, 3)"
        )
    found = (await client.get("/v1/biz/orders/stats")).json()
    minute = found["last_minute"]
    assert (minute["due"], minute["finished"], minute["pending"]) == (40, 20, 20)
    assert (minute["again"], minute["is_complete"]) == (10, True)
    assert (minute["lateness_p50_ms"], minute["lateness_p99_ms"]) == (7, 7)
    assert found["next_hour"] == {"tasks": 2, "is_complete": True}
    assert found["failed"] == {"tasks": 3, "is_complete": True}
    assert found["rates"]["finished"] == pytest.approx(20 / 60)
    assert (found["depth"], found["in_flight"], found["is_paused"]) == (0, 0, False)


async def test_a_count_that_was_cut_off_says_so(
    client: httpx.AsyncClient,
    context: Context,
    orders: str,
    db: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stats, "LOOK_ROWS", 10)
    at_ms = int(context.clock.now_ms()) + 600_000
    await put_tasks(db, [at_ms] * 20)
    found = (await client.get("/v1/biz/orders/stats")).json()
    assert found["next_hour"] == {"tasks": 10, "is_complete": False}


async def test_what_is_pending_is_counted_by_the_ledger(
    client: httpx.AsyncClient, orders: str, db: Database
) -> None:
    far_ms = 4_000_000_000_000
    for pending in (0, 900, 1_800):
        assert (await client.get("/v1/biz/orders/stats")).json()["pending"] == pending
        wheel = (await client.get("/v1/wheel")).json()
        assert [(lane["biz_type"], lane["pending"]) for lane in wheel["lanes"]] == [
            ("orders", pending)
        ]
        assert wheel["pending"] == pending / 9 * 10
        await put_tasks(db, [far_ms] * 900)
        await put_tasks(db, [far_ms] * 100, "refunds")


async def test_without_the_event_center_the_rest_is_told(
    client: httpx.AsyncClient, context: Context, orders: str
) -> None:
    away = EventCenter("redis://127.0.0.1:1/0", prefix="x", consumer="x", cluster_id=uuid4())
    async with client_of(context, event_center=away) as lonely:
        found = (await lonely.get("/v1/biz/orders/stats")).json()
    assert (found["depth"], found["in_flight"], found["last_minute"]["due"]) == (None, None, 0)
    await away.close()


async def test_a_pause_and_the_brake_show(client: httpx.AsyncClient, orders: str) -> None:
    await client.post("/v1/wheel/pause", json={"reason": "x"})
    assert (await client.get("/v1/biz/orders/stats")).json()["is_paused"]
    await client.post("/v1/wheel/resume")
    await client.post("/v1/biz/orders/pause")
    assert (await client.get("/v1/biz/orders/stats")).json()["is_paused"]
    assert (await client.get("/v1/biz/none/stats")).status_code == 404
