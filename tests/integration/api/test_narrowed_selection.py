"""A key that sees some biz_types only: its lists and its operations are of those."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from broker.api.context import Context
from daemon.operations import Operator
from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands, task_at
from tests.fix_sessions import Sessions
from tests.fix_tasks import settle_as, submit_all
from tests.integration.api.conftest import client_of
from tests.integration.api.test_keys import ADMIN_KEY, bearer, make
from wheel_timer.database import Database
from wheel_timer.task import NewTask, Status

DAY_MS = 86_400_000


@pytest.fixture
async def tasks(db: Database, clock: DatabaseClock) -> list[NewTask]:
    """Ten of `orders.a` and ten of `mail`, in turns."""
    at_ms = clock.now_ms() + DAY_MS // 2
    return await submit_all(
        db, [task_at(at_ms + n, ("orders.a", "mail")[n % 2], biz_id=f"n{n}") for n in range(20)]
    )


@pytest.fixture
def keyed(context: Context) -> httpx.AsyncClient:
    return client_of(context, admin_key=ADMIN_KEY)


async def narrowed(keyed: httpx.AsyncClient, *patterns: str) -> dict[str, str]:
    made = await make(keyed, scopes=["read", "operate"], biz_types=list(patterns))
    return bearer(made["key"])


async def test_a_list_is_of_what_the_key_sees(
    keyed: httpx.AsyncClient, tasks: list[NewTask], sessions: Sessions, clock: DatabaseClock
) -> None:
    key = await narrowed(keyed, "orders.*")
    listed = (await keyed.get("/v1/tasks", headers=key)).json()
    assert {item["biz_type"] for item in listed["items"]} == {"orders.a"}
    assert len(listed["items"]) == 10
    hidden = await keyed.get("/v1/tasks?biz_type=mail", headers=key)
    assert hidden.status_code == 404
    session = await sessions.open()
    await settle_as(session, tasks[:6], Status.FAILED, clock.now_ms())
    dead = (await keyed.get("/v1/tasks?status=failed", headers=key)).json()
    assert {item["biz_type"] for item in dead["items"]} == {"orders.a"}
    assert len(dead["items"]) == 3


async def test_an_operation_changes_what_the_key_sees(
    keyed: httpx.AsyncClient, tasks: list[NewTask], hands: Hands, sessions: Sessions
) -> None:
    key = await narrowed(keyed, "orders.*")
    body: dict[str, Any] = {"action": "cancel", "all": True}
    dry = await keyed.post("/v1/operations", json=body | {"dry_run": True}, headers=key)
    assert dry.json()["matched"] == 10
    started = await keyed.post("/v1/operations", json=body, headers=key)
    assert started.status_code == 202, started.text
    assert started.json()["filter"] == {"status": "pending"}
    await hands.clock.measure()
    operator = Operator(
        db=hands.db, clock=hands.clock, leader=hands.leader, shards=1, lookahead_ms=1000
    )
    path = started.headers["location"]
    shown: dict[str, Any] = started.json()
    while shown["state"] == "running":
        operator.wake()
        await operator.tick()
        shown = (await keyed.get(path, headers=key)).json()
    assert (shown["matched"], shown["done"]) == (10, 10)
    cancelled = await sessions.value(
        "SELECT array_agg(DISTINCT biz_type) FROM timer_task WHERE status = 3"
    )
    assert cancelled == ["orders.a"]
    hidden = {"action": "cancel", "filter": {"biz_type": "mail"}}
    assert (await keyed.post("/v1/operations", json=hidden, headers=key)).status_code == 404


async def test_an_operation_of_others_is_not_there(
    keyed: httpx.AsyncClient, tasks: list[NewTask]
) -> None:
    key = await narrowed(keyed, "orders.*")
    paths = {}
    for name in ("mail", "orders.a"):
        body = {"action": "cancel", "filter": {"biz_type": name}}
        answer = await keyed.post("/v1/operations", json=body, headers=bearer())
        paths[name] = answer.headers["location"]
    assert (await keyed.get(paths["mail"], headers=key)).status_code == 404
    assert (await keyed.delete(paths["mail"], headers=key)).status_code == 404
    assert (await keyed.get(paths["orders.a"], headers=key)).status_code == 200
    listed = (await keyed.get("/v1/operations", headers=key)).json()["items"]
    assert [item["filter"]["biz_type"] for item in listed] == ["orders.a"]
    reader = bearer((await make(keyed, scopes=["read"]))["key"])
    assert (await keyed.delete(paths["mail"], headers=reader)).status_code == 403
