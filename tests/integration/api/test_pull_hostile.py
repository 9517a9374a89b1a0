"""Workers and claims that are not as they should be; two brokers, limits, keys."""

from __future__ import annotations

import asyncio
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import UUID, uuid4

import httpx
import pytest

from broker.api.context import Context
from broker.pull import Pull
from broker.tokens import Tokens
from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_pull import TTR_S, VERBS, reserved, said, shown, submitted
from tests.integration.api.conftest import client_of
from wheel_timer import signal
from wheel_timer.eventcenter import EventCenter
from wheel_timer.store.claim import Claimed
from wheel_timer.task import Ref
from wheel_timer.wheel import home_of, new_task_id


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


async def test_the_brake_holds_workers_too(client: httpx.AsyncClient, jobs: str) -> None:
    await submitted(client)
    (mine,) = await reserved(client)
    assert (await client.post("/v1/wheel/pause", json={"reason": "x"})).status_code == 200
    await submitted(client)
    assert await reserved(client, wait=0.3) == []
    # What is in hand ends as it would.
    assert (await said(client, "finish", mine)).status_code == 200
    waiting = asyncio.create_task(reserved(client, wait=10))
    await asyncio.sleep(0.05)
    assert (await client.post("/v1/wheel/resume")).status_code == 200
    assert len(await waiting) == 1


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


async def test_copies_of_what_is_done_do_not_keep_a_worker_from_what_is_due(
    context: Context, client: httpx.AsyncClient, jobs: str
) -> None:
    """A lane that nobody reads fills with them, and they lie before what is new."""
    done = UUID(await submitted(client))
    (task,) = await reserved(client)
    await said(client, "finish", task)
    start_ms, _ = home_of(done)
    await context.event_center.publish_direct(
        [Ref(done, start_ms, start_ms, start_ms, "jobs")] * 200
    )
    fresh = await submitted(client)
    (task,) = await reserved(client, wait=9)
    assert task["task_id"] == fresh


async def test_payloads_larger_than_a_socket_come_whole(
    client: httpx.AsyncClient, jobs: str
) -> None:
    """They are read after the reservation, not by it: it must not wait for who reads slowly."""
    sent = {await submitted(client, biz_data=f"{n}" * 50_000): f"{n}" * 50_000 for n in range(4)}
    got: dict[str, str] = {}
    while len(got) < len(sent):
        got |= {task["task_id"]: task["biz_data"] for task in await reserved(client, max=4)}
    assert got == sent


async def test_a_clock_set_back_leaves_a_task_to_who_holds_it_and_touch_mends_its_end(
    client: httpx.AsyncClient, jobs: str, clock: DatabaseClock, context: Context
) -> None:
    clock.set(clock.now_ms())
    task_id = await submitted(client)
    (task,) = await reserved(client, ttr=5)
    clock.advance(-60_000)
    await context.clock.measure()
    clock.advance(6_000)
    assert (await shown(client, task_id))["status"] == "delivering"
    assert (await said(client, "touch", task, ttr=5)).status_code == 200
    clock.advance(6_000)
    assert (await said(client, "finish", task)).status_code == 409


async def test_who_waits_is_answered_when_the_broker_stops(
    context: Context, client: httpx.AsyncClient, jobs: str
) -> None:
    waiting = asyncio.create_task(reserved(client, wait=30))
    await asyncio.sleep(0.05)
    began = time.monotonic()
    await context.pull.stop()
    assert await waiting == []
    assert time.monotonic() - began < 5
    assert (await client.post("/v1/biz/jobs/reserve")).status_code == 503


async def test_who_is_in_a_call_while_the_broker_stops_is_answered_too(
    context: Context, client: httpx.AsyncClient, jobs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    called, stopping = asyncio.Event(), asyncio.Event()

    async def brings_nothing(*_: object, **__: object) -> tuple[Claimed, bool]:
        called.set()
        await stopping.wait()
        return Claimed([], [], [], []), False

    async def ends_meanwhile(_tokens: Tokens) -> None:
        stopping.set()
        for _ in range(10):
            await asyncio.sleep(0)

    monkeypatch.setattr("broker.reserving.reserve", brings_nothing)
    monkeypatch.setattr(Tokens, "stop", ends_meanwhile)
    await submitted(client)
    waiting = asyncio.create_task(reserved(client, wait=30))
    await called.wait()
    began = time.monotonic()
    await context.pull.stop()
    assert await waiting == []
    assert time.monotonic() - began < 5


async def test_what_waits_for_a_biz_type_that_is_not_pulled_any_more_is_answered(
    client: httpx.AsyncClient, jobs: str
) -> None:
    await submitted(client)
    (task,) = await reserved(client)
    waiting = asyncio.create_task(reserved(client, wait=30))
    await asyncio.sleep(0.05)
    body = {"delivery": "callback", "callback_url": "http://127.0.0.1:9/"}
    assert (await client.patch("/v1/biz/jobs", json=body)).status_code == 200
    assert await waiting == []
    assert (await client.post("/v1/biz/jobs/reserve")).status_code == 422
    # What is in hand ends as it began.
    assert (await said(client, "finish", task)).json()["status"] == "finished"
