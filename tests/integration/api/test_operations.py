"""/v1/operations: what may be asked for, what is meant, and what is told of it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from broker.api import operating
from broker.api.context import Context
from daemon.operations import Operator
from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands, task_at
from tests.fix_sessions import Sessions
from tests.fix_tasks import settle_as, submit_all
from wheel_timer.database import Database
from wheel_timer.task import Status

DAY_MS = 86_400_000


async def ended(client: httpx.AsyncClient, hands: Hands, path: str) -> dict[str, Any]:
    """Turn the daemon's step until the operation has ended."""
    await hands.clock.measure()
    operator = Operator(
        db=hands.db, clock=hands.clock, leader=hands.leader, shards=1, lookahead_ms=1000
    )
    for _ in range(100):
        operator.wake()
        await operator.tick()
        shown: dict[str, Any] = (await client.get(path)).json()
        if shown["state"] != "running":
            return shown
    raise AssertionError(shown)


async def test_an_operation_from_its_start_to_its_end(
    client: httpx.AsyncClient, hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    now_ms = clock.now_ms()
    await submit_all(db, [task_at(now_ms + DAY_MS + n, biz_id=f"a{n}") for n in range(12)])
    wanted = {"biz_type": "orders", "biz_id_prefix": "a1"}
    body: dict[str, Any] = {"action": "cancel", "filter": wanted}
    dry = await client.post("/v1/operations", json=body | {"dry_run": True})
    assert dry.status_code == 200
    assert (dry.json()["matched"], dry.json()["complete"]) == (3, True)
    assert [item["biz_id"] for item in dry.json()["sample"]] == ["a1", "a10", "a11"]

    started = await client.post("/v1/operations", json=body)
    assert started.status_code == 202, started.text
    begun = started.json()
    path = started.headers["location"]
    assert path == f"/v1/operations/{begun['operation_id']}"
    assert (begun["state"], begun["actor"], begun["done"]) == ("running", "local", 0)
    assert begun["filter"] == wanted | {"status": "pending"}

    done = await ended(client, hands, path)
    assert (done["state"], done["matched"], done["done"], done["skipped"]) == ("done", 3, 3, 0)
    assert done["finish_time"] >= done["create_time"]
    listed = (await client.get("/v1/operations")).json()
    assert [one["operation_id"] for one in listed["items"]] == [begun["operation_id"]]
    # Stopping what has ended changes nothing.
    stopped = await client.delete(path)
    assert (stopped.status_code, stopped.json()) == (200, done)
    changes = await sessions.row(
        "SELECT count(*), min(action), min(actor), min(object) FROM timer_change"
    )
    assert changes == (1, "operation.create", "local", begun["operation_id"])


async def test_a_stop_is_told_and_recorded_once(
    client: httpx.AsyncClient, clock: DatabaseClock, sessions: Sessions
) -> None:
    started = await client.post("/v1/operations", json={"action": "purge", "all": True})
    path = started.headers["location"]
    first = (await client.delete(path)).json()
    assert first["state"] == "stopped"
    assert (await client.delete(path)).json() == first
    stops = "SELECT count(*) FROM timer_change WHERE action = 'operation.stop'"
    assert await sessions.value(stops) == 1


@pytest.mark.parametrize(
    ("action", "meant"),
    [("cancel", 2), ("run", 2), ("shift", 2), ("replay", 3), ("purge", 10)],
)
async def test_an_action_means_the_states_that_it_is_for(
    action: str,
    meant: int,
    client: httpx.AsyncClient,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
) -> None:
    now_ms = clock.now_ms()
    session = await sessions.open()
    tasks = await submit_all(db, [task_at(now_ms + DAY_MS + n) for n in range(10)])
    await settle_as(session, tasks[2:5], Status.FAILED, now_ms)
    await settle_as(session, tasks[5:7], Status.FINISHED, now_ms)
    await settle_as(session, tasks[7:], Status.CANCELLED, now_ms)
    body: dict[str, Any] = {"action": action, "filter": {"biz_type": "orders"}, "dry_run": True}
    if action == "shift":
        body["set"] = {"delay": 60}
    assert (await client.post("/v1/operations", json=body)).json()["matched"] == meant


async def test_over_is_a_rate_by_what_there_is(
    client: httpx.AsyncClient,
    db: Database,
    clock: DatabaseClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await submit_all(db, [task_at(clock.now_ms() + DAY_MS + n) for n in range(30)])
    body = {"action": "run", "filter": {"biz_type": "orders"}, "over": 60}
    begun = (await client.post("/v1/operations", json=body)).json()
    assert (begun["rate"], begun["over"]) == (0.5, 60)
    monkeypatch.setattr(operating, "COUNT_S_MAX", 0.0)
    refused = await client.post("/v1/operations", json=body)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "#/over"


WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "#/action"),
    ({"action": "delete"}, "#/action"),
    ({"action": None}, "#/action"),
    ({"action": "cancel"}, "#/filter"),
    ({"action": "cancel", "filter": {}}, "#/filter"),
    ({"action": "cancel", "filter": None}, "#/filter"),
    ({"action": "cancel", "filter": []}, "#/filter"),
    ({"action": "cancel", "filter": {"biz_type": None}}, "#/filter"),
    ({"action": "cancel", "filter": {"status": "pending"}, "all": True}, "#/all"),
    ({"action": "cancel", "all": "yes"}, "#/all"),
    ({"action": "cancel", "all": True, "dry_run": 1}, "#/dry_run"),
    ({"action": "cancel", "all": True, "extra": 1}, "#/extra"),
    ({"action": "cancel", "filter": {"biz_id": "x"}}, "#/filter/biz_id"),
    ({"action": "cancel", "filter": {"biz_type": "UPPER"}}, "#/filter/biz_type"),
    ({"action": "cancel", "filter": {"biz_type": 1}}, "#/filter/biz_type"),
    ({"action": "cancel", "filter": {"status": "moved"}}, "#/filter/status"),
    ({"action": "cancel", "filter": {"status": "finished"}}, "#/filter/status"),
    ({"action": "run", "filter": {"status": "failed"}}, "#/filter/status"),
    ({"action": "replay", "filter": {"status": "pending"}}, "#/filter/status"),
    ({"action": "purge", "filter": {"status": "delivering"}}, "#/filter/status"),
    ({"action": "cancel", "filter": {"start_from": "soon"}}, "#/filter/start_from"),
    ({"action": "cancel", "filter": {"start_to": 5}}, "#/filter/start_to"),
    ({"action": "cancel", "filter": {"finish_from": [1]}}, "#/filter/finish_from"),
    ({"action": "cancel", "filter": {"finish_to": {}}}, "#/filter/finish_to"),
    (
        {"action": "cancel", "filter": {"start_from": 1900000001, "start_to": 1900000000}},
        "#/filter/start_to",
    ),
    ({"action": "cancel", "filter": {"http_status": 99}}, "#/filter/http_status"),
    ({"action": "cancel", "filter": {"http_status": "500"}}, "#/filter/http_status"),
    ({"action": "cancel", "filter": {"biz_id_prefix": "x"}}, "#/filter/biz_id_prefix"),
    (
        {"action": "cancel", "filter": {"biz_type": "orders", "biz_id_prefix": "a\0"}},
        "#/filter/biz_id_prefix",
    ),
    ({"action": "cancel", "filter": {"schedule_id": "x"}}, "#/filter/schedule_id"),
    ({"action": "cancel", "all": True, "rate": 0}, "#/rate"),
    ({"action": "cancel", "all": True, "rate": 1e9}, "#/rate"),
    ({"action": "cancel", "all": True, "over": 0}, "#/over"),
    ({"action": "cancel", "all": True, "over": 1e9}, "#/over"),
    ({"action": "cancel", "all": True, "rate": 1, "over": 1}, "#/over"),
    ({"action": "cancel", "all": True, "set": {"delay": 1}}, "#/set"),
    ({"action": "shift", "all": True}, "#/set"),
    ({"action": "shift", "all": True, "set": {}}, "#/set/delay"),
    ({"action": "shift", "all": True, "set": {"delay": 0}}, "#/set/delay"),
    ({"action": "shift", "all": True, "set": {"delay": "1"}}, "#/set/delay"),
    ({"action": "shift", "all": True, "set": {"delay": None}}, "#/set/delay"),
    ({"action": "shift", "all": True, "set": {"delay": -1e300}}, "#/set/delay"),
    ({"action": "shift", "all": True, "set": {"delay": 1, "time": 1}}, "#/set/time"),
]


@pytest.mark.parametrize(("body", "pointer"), WRONG)
async def test_what_is_wrong_with_an_operation_is_pointed_at(
    body: dict[str, Any], pointer: str, client: httpx.AsyncClient, sessions: Sessions
) -> None:
    answer = await client.post("/v1/operations", json=body)
    assert answer.status_code == 422, answer.text
    assert pointer in [error["pointer"] for error in answer.json()["errors"]]
    assert await sessions.value("SELECT count(*) FROM timer_operation") == 0
    assert await sessions.value("SELECT count(*) FROM timer_change") == 0


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("name", ["1", "00000000-0000-0000-0000-000000000000", "%00"])
async def test_an_operation_that_does_not_exist_is_a_404(
    method: str, name: str, client: httpx.AsyncClient
) -> None:
    answer = await client.request(method, f"/v1/operations/{name}")
    assert answer.status_code == 404


async def test_the_list_goes_on_over_pages_newest_first(
    client: httpx.AsyncClient, clock: DatabaseClock, context: Context
) -> None:
    begun = []
    for _ in range(5):
        answer = await client.post("/v1/operations", json={"action": "purge", "all": True})
        begun.append(answer.json()["operation_id"])
        clock.advance(1)
    found: list[str] = []
    query: dict[str, Any] = {"limit": 2}
    while query.get("cursor", "") is not None:
        page = (await client.get("/v1/operations", params=query)).json()
        found += [item["operation_id"] for item in page["items"]]
        query["cursor"] = page["next_cursor"]
    assert found == begun[::-1]
    for wrong in ("x", "W10", "a" * 4000):
        answer = await client.get("/v1/operations", params={"cursor": wrong})
        assert answer.status_code == 422
