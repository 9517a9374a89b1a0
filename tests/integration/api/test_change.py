"""A change of mind by HTTP: every call in every state, by both names, and every bad field."""

from __future__ import annotations

import asyncio
from typing import Any, Final
from uuid import UUID

import httpx
import pytest

from broker import changer
from broker.api.context import Context
from tests.fix_audits import AuditsHold
from tests.fix_change import EVERYTHING, TIMEOUT_MS, result_of
from tests.fix_clock import DatabaseClock
from tests.fix_hands import ref_to
from tests.fix_sessions import Sessions
from wheel_timer.store.claim import claim
from wheel_timer.store.settle import settle_final
from wheel_timer.store.task import lookup
from wheel_timer.task import Claim, NewTask
from wheel_timer.wheel import new_task_id

STATES: Final = ("pending", "delivering", "finished", "failed", "cancelled")
Task = dict[str, Any]


async def submitted(client: httpx.AsyncClient, **fields: Any) -> Task:
    """A task an hour ahead, as GET shows it."""
    body = {"biz_type": "orders", "biz_id": "a/1", "delay": 3600, "biz_data": {"n": 1}} | fields
    answer = await client.post("/v1/tasks", json=body)
    assert answer.status_code == 201, answer.text
    return await shown(client, answer.json()["task_id"])


async def shown(client: httpx.AsyncClient, task_id: str) -> Task:
    task: Task = (await client.get(f"/v1/tasks/{task_id}")).json()
    return task


async def claimed(context: Context, task: Task) -> Claim:
    """A broker's claim of a task that is due."""
    task_id = UUID(task["task_id"])
    row = (await lookup(context.db, [task_id]))[task_id]
    ref = ref_to(NewTask(task_id, row.start_time, "orders"))
    (mine,) = (await claim(context.db, [ref], [TIMEOUT_MS])).claims
    return mine


async def task_in(
    state: str, client: httpx.AsyncClient, context: Context, clock: DatabaseClock
) -> Task:
    """A task in this state; the clock stands, but for a pending one."""
    if state == "pending":
        return await submitted(client)
    clock.freeze()
    await context.clock.measure()
    task = await submitted(client, delay=0)
    mine = await claimed(context, task)
    if state != "delivering":
        await settle_final(context.db, [result_of(mine, state, error="e", http_status=500)])
    return await shown(client, task["task_id"])


async def test_a_task_too_large_to_come_along_is_answered_whole(
    client: httpx.AsyncClient, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changer, "SHOWN_BYTES_MAX", 1_000)
    task = await submitted(client, biz_data="x" * 1_000)
    answer = await client.delete(f"/v1/tasks/{task['task_id']}")
    assert answer.json() == await shown(client, task["task_id"])
    assert answer.json()["biz_data"] == "x" * 1_000


async def test_what_is_cancelled_is_counted_once(
    client: httpx.AsyncClient, orders: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[tuple[str, str, int]] = []
    monkeypatch.setattr("wheel_timer.metrics.tasks_settled", lambda *facts: counted.append(facts))
    task = await submitted(client)
    for _ in range(2):
        assert (await client.delete(f"/v1/tasks/{task['task_id']}")).status_code == 200
    assert counted == [("orders", "cancelled", 1)]


# call -> what each of STATES answers: the HTTP status, and the task's status or the problem.
DELIVERING: Final = (409, "task-delivering")
SETTLED: Final = (409, "task-settled")
ANSWERS: Final[dict[tuple[str, str], tuple[tuple[int, str], ...]]] = {
    ("PATCH", ""): ((200, "pending"), DELIVERING, SETTLED, SETTLED, SETTLED),
    ("DELETE", ""): ((200, "cancelled"), DELIVERING, SETTLED, SETTLED, (200, "cancelled")),
    ("DELETE", "?stop=true"): (
        *((200, "cancelled"), (202, "delivering"), SETTLED, SETTLED, (200, "cancelled")),
    ),
    ("DELETE", "?discard=true"): (
        *((200, "cancelled"), DELIVERING, SETTLED, (200, "cancelled"), (200, "cancelled")),
    ),
    ("POST", "/run"): ((200, "pending"), DELIVERING, SETTLED, SETTLED, SETTLED),
    ("POST", "/replay"): (
        *((200, "pending"), (200, "delivering"), (200, "pending")),
        *((200, "pending"), (200, "pending")),
    ),
}


@pytest.mark.parametrize("by_biz_id", [False, True], ids=["by task_id", "by biz_id"])
@pytest.mark.parametrize("call", ANSWERS, ids=" ".join)
@pytest.mark.parametrize("state", STATES)
async def test_what_each_call_answers_in_each_state(
    state: str,
    call: tuple[str, str],
    by_biz_id: bool,
    client: httpx.AsyncClient,
    context: Context,
    clock: DatabaseClock,
    orders: str,
    audits_hold: AuditsHold,
) -> None:
    task = await task_in(state, client, context, clock)
    path = f"/v1/biz/{orders}/tasks/a%2F1" if by_biz_id else f"/v1/tasks/{task['task_id']}"
    method, rest = call
    body = {"max_age": 5} if method == "PATCH" else None
    answer = await client.request(method, path + rest, json=body)
    status, named = ANSWERS[call][STATES.index(state)]
    assert answer.status_code == status, answer.text
    now = await shown(client, task["task_id"])
    if status == 409:
        problem = answer.json()
        assert problem["type"] == f"/problems/{named}"
        assert problem["task"] == now
    else:
        assert answer.json() == now
        assert now["status"] == named
    # Repeatable: said again, it is answered in the same way.
    if call != ("POST", "/run"):
        assert (await client.request(method, path + rest, json=body)).status_code == status
    await audits_hold()


async def test_a_task_that_is_not_there_is_404(client: httpx.AsyncClient, orders: str) -> None:
    names = (str(new_task_id(10**12)), "00000000-0000-4000-8000-000000000000", "x")
    paths = [f"/v1/tasks/{name}" for name in names]
    paths += [f"/v1/biz/{orders}/tasks/none", f"/v1/biz/{orders}/tasks/%00"]
    for path in paths:
        for method, rest in ANSWERS:
            body = {"max_age": 5} if method == "PATCH" else None
            answer = await client.request(method, path + rest, json=body)
            assert (answer.status_code, answer.json()["type"]) == (404, "/problems/not-found")
        for empty in ({}, {"start_time": 1_000_000_000}, {"retry": {"max_attempts": 2}}):
            assert (await client.patch(path, json=empty)).status_code == 404


async def test_a_patch_merges_and_takes_away(
    client: httpx.AsyncClient, orders: str, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    own = {"url": "http://127.0.0.1:9/own", "headers": {"x-a": "1", "x-token": "s"}, "timeout": 5}
    task = await submitted(client, callback=own, retry={"max_attempts": 3}, max_age=60)
    path = f"/v1/tasks/{task['task_id']}"
    patch: Task = {
        "callback": {"headers": {"x-a": None, "x-b": "2"}, "timeout": 6},
        "retry": {"ladder": [1, 2]},
        "biz_data": {"m": 2},
        "max_age": None,
    }
    answer = await client.patch(
        path, json=patch, headers={"content-type": "application/merge-patch+json"}
    )
    assert answer.status_code == 200, answer.text
    now = answer.json()
    assert now["callback"]["url"] == own["url"]
    assert now["callback"]["timeout"] == 6
    assert now["callback"]["headers"] == {"x-b": "2", "x-token": {"set": True}}
    assert now["retry"] == {"max_attempts": 3, "ladder": [1, 2]}
    assert (now["biz_data"], now["max_age"], now["revision"]) == ({"m": 2}, None, 2)
    assert now["start_time"] == task["start_time"]
    patch = {"callback": None, "retry": None, "biz_data": None, "delay": 7200}
    now = (await client.patch(path, json=patch)).json()
    assert (now["callback"], now["retry"], now["task_id"]) == (None, None, task["task_id"])
    assert "biz_data" not in now
    assert now["start_time"] > task["start_time"]
    data = {"biz_data_base64": "AAE=", "content_type": "application/octet-stream"}
    now = (await client.patch(path, json=data)).json()
    assert (now["biz_data_base64"], now["content_type"]) == ("AAE=", "application/octet-stream")
    before = await sessions.row(EVERYTHING)
    assert (await client.patch(path, json={})).json() == now
    assert await sessions.row(EVERYTHING) == before
    fields = "SELECT array_agg(new->>'fields' ORDER BY change_id) FROM timer_change"
    fields += " WHERE action = 'task.patch'"
    assert await sessions.value(fields) == [
        '["biz_data", "callback", "retry", "max_age"]',
        '["biz_data", "callback", "retry"]',
        '["biz_data"]',
    ]
    await audits_hold()


BAD: Final[tuple[tuple[Any, int, str], ...]] = (
    (b"{", 400, "#"),
    (b"[]", 422, "#"),
    (b"null", 422, "#"),
    ({"task_id": "x"}, 422, "#/task_id"),
    ({"biz_id": "x"}, 422, "#/biz_id"),
    ({"start_time": None}, 422, "#/start_time"),
    ({"delay": None}, 422, "#/delay"),
    ({"delay": -1}, 422, "#/delay"),
    ({"delay": "1"}, 422, "#/delay"),
    ({"start_time": "soon"}, 422, "#/start_time"),
    ({"start_time": 5}, 422, "#/start_time"),
    ({"start_time": True}, 422, "#/start_time"),
    ({"start_time": 1_800_000_000, "delay": 1}, 422, "#/start_time"),
    ({"delay": 300_000_000_000}, 422, "#/delay"),
    ({"delay": 253_402_000_000}, 422, "#/delay"),
    ({"max_age": "1"}, 422, "#/max_age"),
    ({"max_age": -1}, 422, "#/max_age"),
    ({"biz_data_base64": "?"}, 422, "#/biz_data_base64"),
    ({"biz_data_base64": 1}, 422, "#/biz_data_base64"),
    ({"biz_data": 1, "biz_data_base64": "AA=="}, 422, "#/biz_data"),
    ({"biz_data": None, "content_type": "text/plain"}, 422, "#/content_type"),
    ({"content_type": "x"}, 422, "#/content_type"),
    ({"content_type": 1}, 422, "#/content_type"),
    ({"callback": {"timeout": 5}}, 422, "#/callback/url"),
    ({"callback": "http://a/"}, 422, "#/callback"),
    ({"callback": {"url": "ftp://a/"}}, 422, "#/callback/url"),
    ({"callback": {"url": "http://a/", "timeout": "x"}}, 422, "#/callback/timeout"),
    ({"callback": {"url": "http://a/", "headers": {"host": "x"}}}, 422, "#/callback/headers/host"),
    ({"retry": {"max_attempts": 0}}, 422, "#/retry/max_attempts"),
    ({"retry": {"ladder": [1], "backoff": {}}}, 422, "#/retry"),
    ({"retry": 5}, 422, "#/retry"),
    ({"biz_data": "x" * 300_000}, 413, "#/biz_data"),
)


@pytest.mark.parametrize(("body", "status", "pointer"), BAD)
async def test_a_bad_patch_names_the_field_and_changes_nothing(
    body: Any,
    status: int,
    pointer: str,
    client: httpx.AsyncClient,
    orders: str,
    sessions: Sessions,
) -> None:
    task = await submitted(client)
    before = await sessions.row(EVERYTHING)
    path = f"/v1/tasks/{task['task_id']}"
    sent = {"content": body} if isinstance(body, bytes) else {"json": body}
    answer = await client.patch(path, **sent)
    assert answer.status_code == status, answer.text
    pointers = [error["pointer"] for error in answer.json()["errors"]]
    assert pointer in pointers
    assert await sessions.row(EVERYTHING) == before


async def test_other_bad_requests(client: httpx.AsyncClient, orders: str) -> None:
    path = f"/v1/tasks/{(await submitted(client))['task_id']}"
    assert (await client.delete(f"{path}?stop=yes")).status_code == 422
    assert (await client.delete(f"{path}?force=true")).status_code == 422
    assert (await client.post(f"{path}/run", json={"at": 1})).status_code == 422
    assert (await client.post(f"{path}/replay", content=b"x")).status_code == 422
    assert (await client.post(f"{path}/run", json={})).status_code == 200
    text = {"content-type": "text/plain"}
    assert (await client.patch(path, content=b"{}", headers=text)).status_code == 415
    assert (await client.put(path, json={})).status_code == 405
    assert (await client.get(f"{path}/run")).status_code == 405


async def test_a_patch_is_held_to_what_its_biz_type_allows(
    client: httpx.AsyncClient, orders: str, sessions: Sessions
) -> None:
    own = {"url": "http://127.0.0.1:9/own"}
    task = await submitted(client, callback=own)
    path = f"/v1/biz/{orders}/tasks/a%2F1"
    no_url = {"callback_url": None, "allow_callback_override": True, "max_past": 60}
    assert (await client.put(f"/v1/biz/{orders}", json=no_url)).status_code == 200
    answer = await client.patch(path, json={"callback": None})
    assert answer.json()["errors"][0]["pointer"] == "#/callback"
    answer = await client.patch(path, json={"start_time": "2020-01-01T00:00:00Z"})
    assert answer.json()["errors"][0]["pointer"] == "#/start_time"
    strict = {"callback_url": "http://127.0.0.1:9/"}
    assert (await client.put(f"/v1/biz/{orders}", json=strict)).status_code == 200
    answer = await client.patch(path, json={"callback": {"timeout": 3}})
    assert answer.json()["errors"][0]["pointer"] == "#/callback"
    assert (await shown(client, task["task_id"]))["revision"] == 1


async def test_what_becomes_due_is_published_by_the_broker_itself(
    client: httpx.AsyncClient, context: Context, orders: str, audits_hold: AuditsHold
) -> None:
    task = await submitted(client)
    assert (await client.post(f"/v1/tasks/{task['task_id']}/run")).status_code == 200
    await context.changer.stop()
    refs = await context.event_center.read([orders], count=10, block_ms=500)
    assert [str(ref.task_id) for ref in refs] == [task["task_id"]]
    await audits_hold()


async def test_many_changes_at_once_of_one_task_happen_one_after_the_other(
    client: httpx.AsyncClient, orders: str, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    """By both of its names; each is answered with what it did."""
    task = await submitted(client)
    paths = (f"/v1/tasks/{task['task_id']}", f"/v1/biz/{orders}/tasks/a%2F1")
    patches = [
        client.patch(paths[n % 2], json={"biz_data": n, "delay": 3600 + n}) for n in range(40)
    ]
    answers = await asyncio.gather(*patches)
    assert {answer.status_code for answer in answers} == {200}
    assert (await shown(client, task["task_id"]))["revision"] == 41
    assert (
        await sessions.value("SELECT count(*) FROM timer_change WHERE action = 'task.patch'") == 40
    )
    cancels = await asyncio.gather(*[client.delete(paths[n % 2]) for n in range(20)])
    assert {answer.status_code for answer in cancels} == {200}
    action = "SELECT count(*) FROM timer_change WHERE action = 'task.cancel'"
    assert await sessions.value(action) == 1
    await audits_hold()
