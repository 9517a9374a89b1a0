"""Workers by HTTP: reserve and every report in every state, by holders and by others."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import httpx
import pytest

from broker.api.context import Context
from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_pull import VERBS, Task, reserved, said, shown, submitted


async def test_a_task_is_reserved_and_finished(
    client: httpx.AsyncClient, jobs: str, audits_hold: AuditsHold
) -> None:
    task_id = await submitted(client, biz_id="a/1")
    (task,) = await reserved(client)
    assert task["task_id"] == task_id
    assert task["biz_data"] == {"n": 1}
    assert (task["status"], task["attempts"], task["failures"]) == ("delivering", 1, 0)
    assert (await shown(client, task_id))["status"] == "delivering"
    await audits_hold()
    answer = await said(client, "finish", task)
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "finished"
    # A reply that was lost is asked for again.
    assert (await said(client, "finish", task)).status_code == 200
    (attempt,) = (await shown(client, task_id))["attempt_log"]
    assert (attempt["outcome"], attempt["attempt"]) == ("finished", 1)
    assert attempt["published_time"] <= attempt["started_time"]
    await audits_hold()


async def test_nothing_due_is_an_empty_answer_after_the_wait(
    client: httpx.AsyncClient, jobs: str
) -> None:
    began = time.monotonic()
    assert await reserved(client, wait=0.5) == []
    assert 0.45 < time.monotonic() - began < 10
    assert await reserved(client, wait=0) == []


async def test_a_worker_is_woken_at_the_moment_of_a_task(
    client: httpx.AsyncClient, jobs: str
) -> None:
    waiting = asyncio.create_task(reserved(client, wait=10))
    await asyncio.sleep(0.05)
    moment = time.time() + 0.5
    await submitted(client, delay=None, start_time=moment)
    (task,) = await waiting
    assert 0 <= time.time() - moment < 5
    assert task["attempts"] == 1


async def test_a_batch_brings_what_is_due_up_to_max(client: httpx.AsyncClient, jobs: str) -> None:
    ids = {await submitted(client) for _ in range(7)}
    found: list[Task] = []
    while len(found) < 7:
        tasks = await reserved(client, max=5)
        assert 1 <= len(tasks) <= 5
        found += tasks
    assert {task["task_id"] for task in found} == ids


async def test_a_released_task_comes_after_its_delay_without_a_failure(
    client: httpx.AsyncClient, jobs: str, audits_hold: AuditsHold
) -> None:
    task_id = await submitted(client)
    (task,) = await reserved(client)
    answer = await said(client, "release", task, delay=3600)
    assert answer.status_code == 200, answer.text
    assert answer.json()["waiting"]["reason"] == "released"
    assert await reserved(client, wait=0) == []
    await audits_hold()
    assert (await client.post(f"/v1/tasks/{task_id}/run")).status_code == 200
    (task,) = await reserved(client)
    assert (task["attempts"], task["failures"]) == (2, 0)
    assert (await said(client, "release", task)).status_code == 200
    (task,) = await reserved(client)
    assert (task["attempts"], task["failures"]) == (3, 0)
    outcomes = [a["outcome"] for a in (await shown(client, task_id))["attempt_log"]]
    assert outcomes == ["released", "released"]
    await audits_hold()


async def test_a_buried_task_is_a_dead_letter_and_is_replayed(
    client: httpx.AsyncClient, jobs: str, audits_hold: AuditsHold
) -> None:
    task_id = await submitted(client)
    (task,) = await reserved(client)
    answer = await said(client, "bury", task, reason="no such customer")
    assert answer.status_code == 200, answer.text
    listed = (await client.get("/v1/tasks?status=failed&biz_type=jobs")).json()["items"]
    assert [(one["task_id"], one["last_error"]) for one in listed] == [
        (task_id, "no such customer")
    ]
    await audits_hold()
    assert (await client.post(f"/v1/tasks/{task_id}/replay")).status_code == 200
    (again,) = await reserved(client)
    assert again["task_id"] == task_id
    assert (await said(client, "finish", again)).status_code == 200
    await audits_hold()


async def test_a_bury_tells_who_is_to_hear_of_failures_and_erases(
    client: httpx.AsyncClient, jobs: str, audits_hold: AuditsHold
) -> None:
    assert (await client.put("/v1/biz/hears", json={"delivery": "pull"})).status_code == 201
    body = {"on_failed": "hears", "erase_data": True}
    assert (await client.patch("/v1/biz/jobs", json=body)).status_code == 200
    finished, buried = await submitted(client), await submitted(client)
    for task in [*await reserved(client), *await reserved(client)]:
        verb = "finish" if task["task_id"] == finished else "bury"
        assert (await said(client, verb, task)).status_code == 200
    for task_id in (finished, buried):
        assert "biz_data" not in await shown(client, task_id)
    answer = await client.post("/v1/biz/hears/reserve", json={"wait": 5})
    (notice,) = answer.json()["tasks"]
    assert notice["biz_data"]["task_id"] == buried
    assert notice["biz_data"]["last_error"] == "buried"
    await audits_hold()


async def test_what_is_in_hand_and_what_waits_is_listed_and_a_dead_one_discarded(
    client: httpx.AsyncClient, jobs: str, audits_hold: AuditsHold
) -> None:
    waits = await submitted(client, delay=600)
    dead = await submitted(client)
    (task,) = await reserved(client)
    await said(client, "bury", task)
    held = await submitted(client)
    await reserved(client)
    listed = (await client.get("/v1/tasks?biz_type=jobs")).json()["items"]
    assert {one["task_id"]: one["status"] for one in listed} == {
        waits: "pending",
        dead: "failed",
        held: "delivering",
    }
    assert (await client.delete(f"/v1/tasks/{dead}?discard=true")).status_code == 200
    assert (await shown(client, dead))["status"] == "cancelled"
    assert (await said(client, "finish", task)).status_code == 409
    await audits_hold()


async def test_touch_moves_the_end_of_a_reservation(
    client: httpx.AsyncClient, jobs: str, clock: DatabaseClock, audits_hold: AuditsHold
) -> None:
    await submitted(client)
    (task,) = await reserved(client, ttr=5)
    assert (await said(client, "touch", task, ttr=600)).status_code == 200
    clock.advance(60_000)
    await audits_hold()
    assert (await said(client, "finish", task)).status_code == 200
    await audits_hold()


@pytest.mark.parametrize("verb", VERBS)
async def test_a_late_report_of_an_expired_holder_is_refused(
    verb: str, client: httpx.AsyncClient, jobs: str, clock: DatabaseClock, context: Context
) -> None:
    await submitted(client)
    (task,) = await reserved(client, ttr=5)
    clock.advance(6_000)
    await context.clock.measure()
    answer = await said(client, verb, task)
    assert answer.status_code == 409, answer.text
    assert answer.json()["type"] == "/problems/claim-lost"
    assert answer.json()["task"]["status"] == "pending"
    assert (await shown(client, task["task_id"]))["attempts"] == 1


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("after", ["finish", "bury", "release", "replaced"])
async def test_every_report_in_every_state(
    verb: str, after: str, client: httpx.AsyncClient, jobs: str, audits_hold: AuditsHold
) -> None:
    await submitted(client, biz_id="x")
    (task,) = await reserved(client)
    if after == "replaced":
        body = {"biz_type": "jobs", "biz_id": "x", "delay": 3600, "on_duplicate": "replace"}
        assert (await client.post("/v1/tasks", json=body)).status_code == 200
    else:
        assert (await said(client, after, task, **DELAYED.get(after, {}))).status_code == 200
    before = await shown(client, task["task_id"])
    answer = await said(client, verb, task)
    assert answer.status_code == (200 if verb == after else 409), answer.text
    # A report said again, or by somebody else, changes nothing.
    assert await shown(client, task["task_id"]) == before
    await audits_hold()


DELAYED: Final = {"release": {"delay": 3600}}


async def test_a_reserved_task_is_not_cancelled_nor_changed(
    client: httpx.AsyncClient, jobs: str
) -> None:
    task_id = await submitted(client)
    (task,) = await reserved(client)
    for method, body in (("DELETE", None), ("PATCH", {"delay": 5})):
        answer = await client.request(method, f"/v1/tasks/{task_id}", json=body)
        assert answer.json()["type"] == "/problems/task-delivering"
    assert (await client.delete(f"/v1/tasks/{task_id}?stop=true")).status_code == 202
    assert (await said(client, "release", task)).json()["status"] == "cancelled"


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("reserve", {"max": 0}, "#/max"),
        ("reserve", {"wait": 31}, "#/wait"),
        ("reserve", {"ttr": 0.5}, "#/ttr"),
        ("reserve", {"many": 1}, "#/many"),
        ("finish", {}, "#/claim"),
        ("finish", {"claim": "?"}, "#/claim"),
        ("finish", {"claim": "é"}, "#/claim"),
        ("release", {"claim": "x", "delay": -1}, "#/delay"),
        ("bury", {"claim": "x", "reason": 1}, "#/reason"),
        ("touch", {"claim": "x", "ttr": 90_000}, "#/ttr"),
    ],
)
async def test_a_bad_field_is_named(
    path: str, body: Task, pointer: str, client: httpx.AsyncClient, jobs: str
) -> None:
    task_id = await submitted(client, delay=3600)
    url = "/v1/biz/jobs/reserve" if path == "reserve" else f"/v1/tasks/{task_id}/{path}"
    answer = await client.post(url, json=body)
    assert answer.status_code == 422, answer.text
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]


async def test_a_claim_of_another_task_is_none(client: httpx.AsyncClient, jobs: str) -> None:
    await submitted(client)
    (mine,) = await reserved(client)
    other = await submitted(client, delay=3600)
    answer = await said(client, "finish", mine | {"task_id": other})
    assert answer.status_code == 422, answer.text


async def test_only_what_is_pulled_is_reserved(
    client: httpx.AsyncClient, jobs: str, orders: str
) -> None:
    assert (await client.post("/v1/biz/orders/reserve")).status_code == 422
    assert (await client.post("/v1/biz/nobody/reserve")).status_code == 404


async def test_a_paused_biz_type_gives_nothing_until_it_is_resumed(
    client: httpx.AsyncClient, jobs: str
) -> None:
    await client.post("/v1/biz/jobs/pause")
    task_id = await submitted(client)
    assert await reserved(client, wait=0.3) == []
    waiting = asyncio.create_task(reserved(client, wait=10))
    await asyncio.sleep(0.1)
    await client.post("/v1/biz/jobs/resume")
    (task,) = await waiting
    assert task["task_id"] == task_id


async def test_no_more_than_max_concurrency_are_reserved_at_once(
    client: httpx.AsyncClient, jobs: str
) -> None:
    await client.patch("/v1/biz/jobs", json={"max_concurrency": 2})
    for _ in range(3):
        await submitted(client)
    held = [*await reserved(client, max=3)]
    while len(held) < 2:
        held += await reserved(client, max=3)
    assert len(held) == 2
    assert await reserved(client, wait=0.3) == []
    waiting = asyncio.create_task(reserved(client, wait=10))
    await asyncio.sleep(0.1)
    assert (await said(client, "finish", held[0])).status_code == 200
    assert len(await waiting) == 1


async def test_what_is_too_old_no_worker_gets(
    client: httpx.AsyncClient, jobs: str, clock: DatabaseClock, context: Context
) -> None:
    clock.set(clock.now_ms())
    old = await submitted(client, max_age=5)
    clock.advance(6_000)
    await context.clock.measure()
    assert await reserved(client, wait=1) == []
    await context.pull.stop()  # what it has to settle is settled then
    task = await shown(client, old)
    assert (task["status"], task["last_error"]) == ("failed", "expired")


async def test_fifty_workers_hold_each_task_once(
    client: httpx.AsyncClient, jobs: str, audits_hold: AuditsHold
) -> None:
    tasks = [{"biz_type": "jobs", "delay": 0} for _ in range(400)]
    answer = await client.post("/v1/tasks/batch", json={"tasks": tasks})
    ids = {one["task_id"] for one in answer.json()["results"]}
    held: list[str] = []
    empty = 0

    async def work() -> None:
        nonlocal empty
        while len(held) < len(ids):
            got = await reserved(client, wait=3)
            if not got and len(held) < len(ids):
                empty += 1
            for task in got:
                held.append(task["task_id"])
                assert (await said(client, "finish", task)).status_code == 200
            if len(held) == len(ids):
                done.set()

    done = asyncio.Event()
    workers = [asyncio.create_task(work()) for _ in range(50)]
    async with asyncio.timeout(60):
        await done.wait()
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    assert empty == 0
    assert sorted(held) == sorted(ids)
    await audits_hold()
