"""A biz_id that is taken: every cell of the on_duplicate table, alone and a thousand at once."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import Any, Final
from uuid import UUID

import httpx
import pytest

from broker.api.context import Context
from broker.api.times import format_time
from tests.fix_audits import AuditsHold
from tests.fix_change import EVERYTHING, LEASE_MS, result_of
from tests.fix_clock import DatabaseClock
from tests.fix_sessions import Sessions
from tests.integration.api.test_change import Task, claimed, shown
from wheel_timer.store.settle import settle_final

STATES: Final = ("pending", "delivering", "finished", "failed", "cancelled")
NEW: Final = {
    "biz_data": {"new": 1},
    "content_type": "application/x+json",
    "callback": {"url": "http://127.0.0.1:9/new"},
    "retry": {"max_attempts": 2},
    "max_age": 7.0,
}
DIFFERS: Final = ["biz_data", "content_type", "callback", "retry", "max_age"]


async def first_in(
    state: str, client: httpx.AsyncClient, context: Context, clock: DatabaseClock
) -> Task:
    """The task that holds the key, in this state; the clock stands."""
    clock.freeze()
    await context.clock.measure()
    body: Task = {"biz_type": "orders", "biz_id": "k", "biz_data": "old"}
    body |= {"retry": {"max_attempts": 9}, "callback": {"url": "http://127.0.0.1:9/"}}
    body["delay"] = 3600 if state == "pending" else 0
    answer = await client.post("/v1/tasks", json=body)
    assert answer.status_code == 201
    task = await shown(client, answer.json()["task_id"])
    if state != "pending":
        mine = await claimed(context, task)
        if state != "delivering":
            await settle_final(context.db, [result_of(mine, state, error="e", http_status=500)])
    return await shown(client, task["task_id"])


# (on_duplicate, is its time earlier): what the submit does in each of STATES.
KEPT: Final = ("kept",) * 5
CELLS: Final[dict[tuple[str | None, bool], tuple[str, ...]]] = {
    (None, True): KEPT,
    ("keep", True): KEPT,
    ("keep", False): KEPT,
    ("reject", True): ("rejected",) * 5,
    ("replace", True): ("replaced", "new life", "revived", "revived", "revived"),
    ("replace", False): ("replaced", "new life", "revived", "revived", "revived"),
    ("earliest", True): ("replaced", "kept", "kept", "kept", "kept"),
    ("earliest", False): KEPT,
    ("latest", True): KEPT,
    ("latest", False): ("replaced", "kept", "kept", "kept", "kept"),
}


EVERY_CELL: Final = [
    *((state, cell, "single") for state in STATES for cell in CELLS),
    # Many tasks in a request are answered by code of their own.
    *(
        (state, (on_duplicate, False), way)
        for state in ("pending", "finished")
        for on_duplicate in ("keep", "replace")
        for way in ("batch", "ndjson")
    ),
    ("pending", ("reject", True), "batch"),
    ("pending", ("reject", True), "ndjson"),
]


@pytest.mark.parametrize(("state", "cell", "way"), EVERY_CELL)
async def test_every_cell(
    state: str,
    cell: tuple[str | None, bool],
    way: str,
    client: httpx.AsyncClient,
    context: Context,
    clock: DatabaseClock,
    orders: str,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    old = await first_in(state, client, context, clock)
    before = await sessions.row(EVERYTHING)
    on_duplicate, is_earlier = cell
    expected = CELLS[cell][STATES.index(state)]
    start_ms = clock.now_ms() + (60_000 if is_earlier else 7_200_000)
    if state != "pending":
        start_ms = clock.now_ms() - 60_000 if is_earlier else start_ms
    task = {"biz_type": orders, "biz_id": "k", "start_time": start_ms / 1000, **NEW}
    if on_duplicate is not None:
        task["on_duplicate"] = on_duplicate
    said = await submit(client, way, task)
    now = await shown(client, old["task_id"])
    is_new = expected in ("replaced", "new life", "revived")
    if expected == "rejected":
        assert said == (409, None, None)
    elif way != "ndjson":
        status = 201 if expected == "revived" else 200
        assert said == (status, expected != "revived", None if is_new else ["start_time", *DIFFERS])
    else:
        assert said == (201 if expected == "revived" else 200, None, None)
    if not is_new:
        assert now == old
        assert await sessions.row(EVERYTHING) == before
        await audits_hold()
        return
    assert now["status"] == "pending"
    assert UUID(now["task_id"]) == UUID(old["task_id"])
    assert (now["life"], now["revision"]) == (1 if expected == "replaced" else 2, 2)
    assert (now["attempts"], now["failures"]) == (old["attempts"], 0)
    assert (now["finish_time"], now["expire_time"]) == (None, None)
    assert now["start_time"] == format_time(start_ms)
    assert {name: now[name] for name in ("biz_data", "content_type", "max_age", "retry")} == {
        name: NEW[name] for name in ("biz_data", "content_type", "max_age", "retry")
    }
    assert now["callback"]["url"] == "http://127.0.0.1:9/new"
    action = "SELECT array_agg(DISTINCT action || ' ' || actor) FROM timer_change"
    assert await sessions.value(f"{action} WHERE action LIKE 'task.%%'") == ["task.replace local"]
    await audits_hold()


async def submit(
    client: httpx.AsyncClient, way: str, task: Task
) -> tuple[int, bool | None, list[str] | None]:
    """(what a single submit's status would be, duplicate, differs)."""
    if way == "single":
        answer = await client.post("/v1/tasks", json=task)
        body = answer.json()
        return answer.status_code, body.get("duplicate"), body.get("differs")
    if way == "batch":
        body = (await client.post("/v1/tasks/batch", json={"tasks": [task]})).json()
        (item,) = body["results"]
        if body["rejected"]:
            return item["error"]["status"], None, None
        return 201 if body["accepted"] else 200, item.get("duplicate", False), item.get("differs")
    headers = {"content-type": "application/x-ndjson"}
    lines = json.dumps(task).encode() + b"\n"
    body = (await client.post("/v1/tasks/batch", content=lines, headers=headers)).json()
    if body["rejected"]:
        return body["errors"][0]["error"]["status"], None, None
    return 201 if body["accepted"] else 200, None, None


async def test_a_thousand_at_once_of_one_key_make_one_task_and_an_honest_answer_each(
    client: httpx.AsyncClient, orders: str, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    """All five policies mixed, each submit with a time of its own."""
    policies = ["keep", "reject", "replace", "earliest", "latest"] * 200
    moments = random.Random(7).sample(range(1_900_000_000, 1_900_100_000), len(policies))

    async def one(policy: str, moment: int) -> httpx.Response:
        body = {"biz_type": orders, "biz_id": "k", "start_time": moment, "biz_data": moment}
        return await client.post("/v1/tasks", json=body | {"on_duplicate": policy})

    answers = await asyncio.gather(*map(one, policies, moments))
    told = Counter(
        (policy, answer.status_code) for policy, answer in zip(policies, answers, strict=True)
    )
    assert sum(count for (_, status), count in told.items() if status == 201) == 1
    assert {status for policy, status in told if policy == "reject"} <= {201, 409}
    assert {status for policy, status in told if policy != "reject"} <= {200, 201}
    assert {a.json()["task_id"] for a in answers} == {answers[0].json()["task_id"]}
    now = await shown(client, answers[0].json()["task_id"])
    # What it was replaced with, as the answers have said it, is what it has gone through.
    replaced = [
        moment
        for moment, policy, answer in zip(moments, policies, answers, strict=True)
        if answer.status_code == 200 and "differs" not in answer.json()
    ]
    assert now["revision"] == 1 + len(replaced)
    assert now["biz_data"] in replaced
    assert await sessions.value("SELECT count(*) FROM timer_task WHERE status <> 4") == 1
    await audits_hold()


@pytest.mark.parametrize(("policy", "wins"), [("earliest", min), ("latest", max)])
async def test_the_time_that_wins_brings_its_data_whatever_the_order(
    policy: str, wins: Any, client: httpx.AsyncClient, orders: str, audits_hold: AuditsHold
) -> None:
    moments = random.Random(3).sample(range(1_900_000_000, 1_900_100_000), 200)

    async def one(moment: int) -> httpx.Response:
        body = {"biz_type": orders, "biz_id": "k", "start_time": moment, "biz_data": moment}
        return await client.post("/v1/tasks", json=body | {"on_duplicate": policy})

    answers = await asyncio.gather(*map(one, moments))
    now = await shown(client, answers[0].json()["task_id"])
    assert now["biz_data"] == wins(moments)
    await audits_hold()


async def test_a_lease_that_ran_out_is_no_delivery(
    client: httpx.AsyncClient, context: Context, clock: DatabaseClock, orders: str
) -> None:
    """The broker has died: the task counts as pending, and its life goes on."""
    task = await first_in("delivering", client, context, clock)
    clock.advance(LEASE_MS + 1)
    await context.clock.measure()
    body = {"biz_type": orders, "biz_id": "k", "delay": 60, "on_duplicate": "latest"}
    assert (await client.post("/v1/tasks", json=body)).status_code == 200
    now = await shown(client, task["task_id"])
    assert (now["life"], now["revision"], now["status"]) == (1, 2, "pending")
    assert [past["outcome"] for past in now["attempt_log"]] == ["lost"]
