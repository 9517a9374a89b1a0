"""SIGTERM to real processes: what was asked is served, what was begun ends, the rest is others'."""

from __future__ import annotations

import asyncio
import json
import time
from functools import partial

import httpx
import pytest

from tests.fault.harness import Cluster
from tests.fix_endpoint import Answer, Endpoint
from tests.fix_hands import BIZ_TYPE
from tests.fix_sessions import Sessions, until
from wheel_timer.cli.machine import free_ports

RATE_S = 60
LEASED = "SELECT count(*) FROM timer_task WHERE lease_until IS NOT NULL"


@pytest.mark.timing
async def test_a_broker_that_is_told_to_end_serves_until_nobody_is_sent_to_it_and_ends_its_calls(
    cluster: Cluster, endpoint: Endpoint, sessions: Sessions
) -> None:
    """Its call takes longer than anything else here; a second broker has come meanwhile."""
    await cluster.configure(timeout=5)
    (port,) = free_ports(1)
    broker = await cluster.broker(role="both", port=port, drain_delay=1.5)
    leader = await cluster.daemon()
    await leader.comes_to("leader.elected")
    standby = await cluster.daemon()
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=5) as client:
        await until(lambda: _is_ready(client))
        endpoint.answer = Answer(delay_s=2.5)
        await cluster.submit_at(0)
        await endpoint.wait_for(1)
        endpoint.answer = Answer()
        heir = await cluster.broker()
        await heir.comes_to("clock.measured", 2)

        told_s = time.monotonic()
        broker.stop()
        leader.stop()
        await until(lambda: _is_draining(client))
        submitted = await client.post("/v1/tasks", json={"biz_type": BIZ_TYPE, "delay": 0})
        assert submitted.status_code == 201
        # What is submitted to it is called by the other.
        await endpoint.wait_for(2)
        assert endpoint.received[1].task_id == submitted.json()["task_id"]
        assert await broker.gone() == 0
        with pytest.raises(httpx.ConnectError):
            await client.get("/readyz")
    assert time.monotonic() - told_s > 1.5
    assert await sessions.value(LEASED) == 0
    assert await sessions.value("SELECT count(*) FROM timer_task WHERE status = 1") == 2
    assert await sessions.value("SELECT count(*) FROM timer_attempt") == 0
    # The lease was given back: nobody had to wait for its end, or for a lock to fall.
    assert await leader.gone() == 0
    moment_ns = await standby.comes_to("leader.elected")
    assert moment_ns / 1e9 - told_s < 1
    await cluster.audits_hold()


@pytest.mark.slow
@pytest.mark.timing
async def test_a_call_of_a_minute_ends_before_its_broker_does(
    cluster: Cluster, endpoint: Endpoint, sessions: Sessions
) -> None:
    """By a timeout of its own, of which its biz_type's says nothing."""
    await cluster.configure(timeout=5, allow_callback_override=True)
    await cluster.daemon()
    broker = await cluster.broker()
    await broker.comes_to("clock.measured", 2)
    endpoint.answer = Answer(delay_s=60)
    own = {"url": endpoint.url, "timeout": 70}
    await cluster.submit_at(0, callback=json.dumps(own).encode())
    await endpoint.wait_for(1)
    broker.stop()
    assert await broker.gone(timeout_s=80) == 0
    assert len(endpoint.received) == 1
    assert await sessions.value("SELECT count(*) FROM timer_task WHERE status = 1") == 1


@pytest.mark.slow
@pytest.mark.timing
async def test_told_twice_it_gives_back_its_calls_and_ends(
    cluster: Cluster, endpoint: Endpoint, sessions: Sessions
) -> None:
    endpoint.answer = Answer(fault="silence")
    await cluster.daemon()
    broker = await cluster.broker()
    await broker.comes_to("clock.measured", 2)
    await cluster.submit_at(*[0] * 20)
    await endpoint.wait_for(20)
    endpoint.answer = Answer()
    broker.stop()
    await asyncio.sleep(0.1)
    broker.stop()
    assert await broker.gone(timeout_s=5) == 0
    assert await sessions.value(LEASED) == 0
    await cluster.broker()
    calls = await cluster.all_arrive(timeout_s=8)
    assert set(calls.values()) == {2}


@pytest.mark.slow
@pytest.mark.timing
async def test_rolling_restarts_of_all_roles_under_http_load_lose_and_repeat_nothing(
    cluster: Cluster, endpoint: Endpoint, sessions: Sessions
) -> None:
    """Two brokers of both roles; a client goes on to the other where one does not answer."""
    ports = free_ports(2)
    brokers = [await cluster.broker(role="both", port=port, drain_delay=0.5) for port in ports]
    daemons = [await cluster.daemon(), await cluster.daemon()]
    answered: list[str] = []
    async with httpx.AsyncClient(timeout=5) as client:

        async def submit(number: int) -> None:
            task = {"biz_type": BIZ_TYPE, "biz_id": f"n{number}", "delay": 0.2}
            for attempt in range(100):
                url = f"http://127.0.0.1:{ports[(number + attempt) % 2]}/v1/tasks"
                try:
                    answer = await client.post(url, json=task)
                except httpx.HTTPError:
                    answer = None
                if answer is not None and answer.is_success:
                    answered.append(answer.json()["task_id"])
                    return
                await asyncio.sleep(0.05)
            raise AssertionError(f"nobody took {task}")

        async def load(seconds: float) -> None:
            began_s = time.monotonic()
            submits = []
            for number in range(round(seconds * RATE_S)):
                await asyncio.sleep(max(0.0, began_s + number / RATE_S - time.monotonic()))
                submits.append(asyncio.create_task(submit(number)))
            await asyncio.gather(*submits)

        for port in ports:
            await until(partial(_is_ready, client, f"http://127.0.0.1:{port}"))
        loading = asyncio.create_task(load(8))
        for place, port in enumerate(ports):
            brokers[place].stop()
            daemons[place].stop()
            assert await brokers[place].gone() == 0
            assert await daemons[place].gone() == 0
            brokers[place] = await cluster.broker(role="both", port=port, drain_delay=0.5)
            daemons[place] = await cluster.daemon()
            await until(partial(_is_ready, client, f"http://127.0.0.1:{port}"))
        await loading
    assert len(set(answered)) == len(answered) == 8 * RATE_S
    await endpoint.wait_for(len(answered))
    await sessions.until("SELECT count(*) = 0 FROM timer_task WHERE status = 0")
    assert sorted(call.task_id for call in endpoint.received) == sorted(answered)
    assert await sessions.value("SELECT count(*) FROM timer_attempt") == 0
    await cluster.audits_hold()


async def _is_ready(client: httpx.AsyncClient, url: str = "") -> bool:
    try:
        return (await client.get(f"{url}/readyz")).status_code == 200
    except httpx.HTTPError:
        return False


async def _is_draining(client: httpx.AsyncClient) -> bool:
    answer = await client.get("/readyz")
    return (answer.status_code, answer.json()) == (503, {"status": "draining"})
