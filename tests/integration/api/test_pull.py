"""Workers by HTTP: reserve and every report in every state, by holders and by others."""

from __future__ import annotations

import asyncio
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import AsyncIterator
from typing import Any, Final
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from broker.api.app import build_app
from broker.api.context import Context
from broker.pull import Pull
from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.integration.api.conftest import client_of
from wheel_timer import AsyncClient, signal
from wheel_timer.client import AsyncJob
from wheel_timer.eventcenter import EventCenter
from wheel_timer.wheel import new_task_id

Task = dict[str, Any]
VERBS: Final = ("finish", "release", "bury", "touch")
TTR_S: Final = 30


@pytest_asyncio.fixture
async def jobs(context: Context, client: httpx.AsyncClient) -> AsyncIterator[str]:
    """A biz_type that is pulled, and a broker that serves its workers."""
    body = {"delivery": "pull", "max_concurrency": 1000}
    assert (await client.put("/v1/biz/jobs", json=body)).status_code == 201
    pulse = asyncio.create_task(context.clock.run())
    context.clock.on_biz_version(context.registry.pulse)
    await context.pull.start()
    yield "jobs"
    await context.pull.stop()
    pulse.cancel()


async def submitted(client: httpx.AsyncClient, **fields: Any) -> str:
    body = {"biz_type": "jobs", "delay": 0, "biz_data": {"n": 1}} | fields
    answer = await client.post("/v1/tasks", json=body)
    assert answer.status_code == 201, answer.text
    task_id: str = answer.json()["task_id"]
    return task_id


async def reserved(client: httpx.AsyncClient, **given: Any) -> list[Task]:
    body = {"wait": 5, "ttr": TTR_S} | given
    answer = await client.post("/v1/biz/jobs/reserve", json=body, timeout=40)
    assert answer.status_code == 200, answer.text
    tasks: list[Task] = answer.json()["tasks"]
    return tasks


async def said(client: httpx.AsyncClient, verb: str, task: Task, **more: Any) -> httpx.Response:
    body = {"claim": task["claim"]} | more
    return await client.post(f"/v1/tasks/{task['task_id']}/{verb}", json=body)


async def shown(client: httpx.AsyncClient, task_id: str) -> Task:
    task: Task = (await client.get(f"/v1/tasks/{task_id}")).json()
    return task


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
    assert 0.45 < time.monotonic() - began < 2
    assert await reserved(client, wait=0) == []


async def test_a_worker_is_woken_at_the_moment_of_a_task(
    client: httpx.AsyncClient, jobs: str
) -> None:
    waiting = asyncio.create_task(reserved(client, wait=10))
    await asyncio.sleep(0.05)
    moment = time.time() + 0.5
    await submitted(client, delay=None, start_time=moment)
    (task,) = await waiting
    assert 0 <= time.time() - moment < 0.25
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


@pytest_asyncio.fixture
async def worker(context: Context, jobs: str) -> AsyncIterator[AsyncClient]:
    transport = httpx.ASGITransport(app=build_app(context))
    async with AsyncClient("http://localhost:8080", "", transport=transport) as client:
        yield client


async def test_a_loop_finishes_each_task_as_it_goes_on(
    worker: AsyncClient, client: httpx.AsyncClient, audits_hold: AuditsHold
) -> None:
    ids = [await submitted(client, biz_data={"n": n}) for n in range(3)]
    seen: list[int] = []
    work = worker.work("jobs", wait=0.5)
    async for job in work:
        seen.append(job.biz_data["n"])
        if len(seen) == 2:
            await job.bury("not this one")
        if len(seen) == 3:
            work.stop()
    assert sorted(seen) == [0, 1, 2]
    statuses = [(await shown(client, task_id))["status"] for task_id in ids]
    assert sorted(statuses) == ["failed", "finished", "finished"]
    await audits_hold()


async def test_who_leaves_the_loop_gives_the_task_back(
    worker: AsyncClient, client: httpx.AsyncClient
) -> None:
    task_id = await submitted(client)
    async for _ in worker.work("jobs"):
        break
    (task,) = await reserved(client)
    assert (task["task_id"], task["attempts"], task["failures"]) == (task_id, 2, 0)


@pytest.mark.parametrize(("on_error", "status"), [("release", "pending"), ("bury", "failed")])
async def test_a_handler_that_raises_releases_or_buries(
    on_error: Any, status: str, worker: AsyncClient, client: httpx.AsyncClient
) -> None:
    task_id = await submitted(client)
    work = worker.work("jobs", wait=0.5, on_error=on_error, error_delay=3600)

    async def handler(_job: AsyncJob) -> None:
        work.stop()
        raise ValueError("no")

    await work.run(handler)
    task = await shown(client, task_id)
    assert task["status"] == status
    assert on_error == "release" or task["last_error"] == "ValueError: no"


async def test_work_is_touched_by_itself_and_a_stop_waits_for_it(
    worker: AsyncClient, client: httpx.AsyncClient, audits_hold: AuditsHold
) -> None:
    task_id = await submitted(client)
    work = worker.work("jobs", wait=0.5, ttr=1, concurrency=3)

    async def handler(job: AsyncJob) -> None:
        work.stop()
        await asyncio.sleep(2)
        assert not job.is_lost

    await work.run(handler)
    task = await shown(client, task_id)
    assert (task["status"], task["attempts"]) == ("finished", 1)
    await audits_hold()


async def test_a_claim_made_up_for_a_task_elsewhere_finds_nothing(
    client: httpx.AsyncClient, jobs: str
) -> None:
    await submitted(client)
    (mine,) = await reserved(client)
    packed = urlsafe_b64decode(mine["claim"] + "=" * (-len(mine["claim"]) % 4))
    for shard in (0, 4095):
        other = new_task_id(1_800_000_000_000, shard)
        forged = urlsafe_b64encode(packed[:1] + other.bytes + packed[17:]).decode()
        answer = await said(client, "finish", {"task_id": str(other), "claim": forged})
        assert answer.status_code == 404, answer.text
    # Of this task, as if of another biz_type.
    forged = urlsafe_b64encode(packed[:-4] + b"jobz").decode()
    answer = await said(client, "finish", mine | {"claim": forged})
    assert answer.status_code == 404, answer.text
    assert (await said(client, "finish", mine)).status_code == 200


async def test_a_rate_limit_holds_reservations_too(client: httpx.AsyncClient, jobs: str) -> None:
    await client.patch("/v1/biz/jobs", json={"rate_limit": 10, "burst": 1})
    for _ in range(4):
        await submitted(client)
    assert len(await reserved(client, max=4)) == 1
    began = time.monotonic()
    for _ in range(3):
        assert len(await reserved(client, max=1)) == 1
    assert time.monotonic() - began > 0.2


async def test_who_is_gone_gets_nothing(
    context: Context, client: httpx.AsyncClient, jobs: str, audits_hold: AuditsHold
) -> None:
    gone = asyncio.create_task(asyncio.sleep(0))
    assert await context.pull.reserve("jobs", 1, TTR_S * 1000, 20, gone) == []
    # And one that goes while the call for it is under way.
    leaves = asyncio.Event()
    gone = asyncio.create_task(_until(leaves))
    waiting = asyncio.create_task(context.pull.reserve("jobs", 1, TTR_S * 1000, 20, gone))
    await asyncio.sleep(0.05)
    signal.on("pull.reserved", leaves.set)
    try:
        task_id = await submitted(client)
        assert await waiting == []
    finally:
        signal.clear()
    (task,) = await reserved(client)
    assert (task["task_id"], task["attempts"], task["failures"]) == (task_id, 2, 0)
    await audits_hold()


async def _until(event: asyncio.Event) -> None:
    await event.wait()


async def test_a_narrowed_key_works_on_its_own_biz_types_only(
    context: Context, client: httpx.AsyncClient, jobs: str
) -> None:
    made = {"name": "worker", "scopes": ["submit"], "biz_types": ["mails"]}
    key = (await client.post("/v1/keys", json=made)).json()["key"]
    await submitted(client)
    (task,) = await reserved(client)
    async with client_of(context, admin_key="a" * 32) as other:
        other.headers["authorization"] = f"Bearer {key}"
        assert (await other.post("/v1/biz/jobs/reserve")).status_code == 404
        for verb in VERBS:
            assert (await said(other, verb, task)).status_code == 404
    assert (await said(client, "finish", task)).status_code == 200


async def test_what_died_of_its_workers_is_failed(
    client: httpx.AsyncClient, jobs: str, clock: DatabaseClock, context: Context
) -> None:
    task_id = await submitted(client, retry={"max_attempts": 1})
    (task,) = await reserved(client, ttr=5)
    clock.advance(6_000)
    await context.clock.measure()
    assert (await client.post(f"/v1/tasks/{task_id}/run")).status_code == 200
    assert await reserved(client, wait=1) == []
    await context.pull.stop()
    assert (await shown(client, task_id))["status"] == "failed"
    assert (await said(client, "finish", task)).status_code == 409


async def test_two_brokers_share_what_is_due(
    context: Context, client: httpx.AsyncClient, jobs: str, audits_hold: AuditsHold
) -> None:
    """What one has read, and has no worker for, the other's worker gets."""
    center = EventCenter(
        context.settings.redis_url,
        prefix=context.settings.redis_prefix,
        consumer="another",
        cluster_id=uuid4(),
        members="servers",
    )
    another = Pull(
        db=context.db,
        event_center=center,
        clock=context.clock,
        registry=context.registry,
        settings=context.settings,
        broker_name="another",
    )
    await another.start()
    never = asyncio.create_task(asyncio.sleep(60))
    # The first is in the middle of a read when its worker leaves it.
    assert await reserved(client, wait=0.3) == []
    waiting = asyncio.create_task(another.reserve("jobs", 1, 30_000, 10, never))
    await asyncio.sleep(0.05)
    task_id = await submitted(client)
    (claim,) = await waiting
    assert str(claim.task_id) == task_id
    another.give_back([claim])
    (task,) = await reserved(client)
    assert (task["task_id"], task["failures"]) == (task_id, 0)
    never.cancel()
    await another.stop()
    await center.close()
    await audits_hold()
