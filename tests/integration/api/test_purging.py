"""The end of a biz_type and of its tasks."""

from __future__ import annotations

from typing import Any

import httpx
import psycopg
import pytest

from daemon.operations import Operator
from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands, task_at
from tests.fix_pull import reserved, said, submitted
from tests.fix_tasks import submit_all
from wheel_timer.database import Database

DAY_MS = 86_400_000
URL = "http://a.example/callback"


async def ended(client: httpx.AsyncClient, hands: Hands, answer: httpx.Response) -> Any:
    """Turn the daemon's step until the operation that was begun has ended."""
    assert answer.status_code == 202, answer.text
    await hands.measure()
    operator = Operator(
        db=hands.db, clock=hands.clock, leader=hands.leader, shards=1, lookahead_ms=1000
    )
    for _ in range(100):
        operator.wake()
        await operator.tick()
        shown = (await client.get(answer.headers["location"])).json()
        if shown["state"] != "running":
            return shown
    raise AssertionError(shown)


def biz_types_of_tasks(database_url: str) -> list[tuple[str, int]]:
    with psycopg.connect(database_url) as connection:
        return connection.execute(
            "SELECT biz_type, count(*) FROM timer_task GROUP BY biz_type ORDER BY biz_type"
        ).fetchall()


@pytest.fixture
async def full(client: httpx.AsyncClient, db: Database, clock: DatabaseClock) -> None:
    """Two biz_types with tasks."""
    now_ms = clock.now_ms()
    for name in ("orders", "refunds"):
        await client.put(f"/v1/biz/{name}", json={"callback_url": URL})
        tasks = [task_at(now_ms + DAY_MS + n, biz_type=name, biz_id=f"a{n}") for n in range(5)]
        await submit_all(db, tasks)


async def test_a_purge_takes_the_tasks_of_one_biz_type(
    client: httpx.AsyncClient, hands: Hands, full: None, database_url: str
) -> None:
    done = await ended(client, hands, await client.post("/v1/biz/orders/purge"))
    assert (done["action"], done["state"], done["done"]) == ("purge", "done", 5)
    assert biz_types_of_tasks(database_url) == [("refunds", 5)]
    assert (await client.get("/v1/biz/orders")).status_code == 200
    assert (await client.post("/v1/biz/none/purge")).status_code == 404
    assert (await client.post("/v1/biz/orders/purge", json={"x": 1})).status_code == 422


async def test_a_delete_with_purge_takes_the_biz_type_and_its_tasks(
    client: httpx.AsyncClient, hands: Hands, full: None, database_url: str
) -> None:
    assert (await client.delete("/v1/biz/orders?purge=false")).status_code == 409
    assert (await client.delete("/v1/biz/orders?purge=yes")).status_code == 422
    answer = await client.delete("/v1/biz/orders?purge=true")
    assert (await client.get("/v1/biz/orders")).status_code == 404
    assert (await ended(client, hands, answer))["done"] == 5
    assert biz_types_of_tasks(database_url) == [("refunds", 5)]


async def test_a_delete_with_purge_takes_what_somebody_holds(
    client: httpx.AsyncClient, hands: Hands, jobs: str, database_url: str, audits_hold: AuditsHold
) -> None:
    """Nobody would look after it any more once its call has failed, or its worker has died."""
    await submitted(client)
    (held,) = await reserved(client)
    done = await ended(client, hands, await client.post("/v1/biz/jobs/purge"))
    assert (done["done"], done["skipped"]) == (0, 1)
    done = await ended(client, hands, await client.delete("/v1/biz/jobs?purge=true"))
    assert done["done"] == 1
    assert biz_types_of_tasks(database_url) == []
    late = await said(client, "finish", held)
    assert late.status_code in (404, 409), late.text
    await audits_hold()


async def test_a_delete_that_is_refused_purges_nothing(
    client: httpx.AsyncClient, full: None, database_url: str
) -> None:
    """Row and operation are one transaction: no purge of a biz_type that stays."""
    stale = {"If-Match": '"99999"'}
    refused = await client.delete("/v1/biz/orders?purge=true", headers=stale)
    assert refused.status_code == 412
    await client.patch("/v1/biz/refunds", json={"on_failed": "orders"})
    assert (await client.delete("/v1/biz/orders?purge=true")).status_code == 409
    assert (await client.get("/v1/operations")).json()["items"] == []
