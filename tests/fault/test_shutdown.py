"""SIGTERM to real processes: what was asked is served, what was begun ends, the rest is others'."""

from __future__ import annotations

import asyncio
import time

import httpx
import pytest

from tests.fault.harness import Cluster
from tests.fix_endpoint import Answer, Endpoint
from tests.fix_hands import BIZ_TYPE
from tests.fix_sessions import Sessions, until
from wheel_timer.cli.machine import free_ports

LEASED = "SELECT count(*) FROM timer_task WHERE lease_until IS NOT NULL"


@pytest.mark.timing
async def test_a_broker_that_is_told_to_end_serves_until_nobody_is_sent_to_it_and_ends_its_calls(
    cluster: Cluster, endpoint: Endpoint, sessions: Sessions
) -> None:
    """Its call takes longer than anything else here; a second broker has come meanwhile."""
    await cluster.configure(timeout=5)
    (port,) = free_ports(1)
    broker = await cluster.broker(role="both", port=port, drain_delay=1.5)
    daemons = [await cluster.daemon(), await cluster.daemon()]
    leader = daemons[0]
    await leader.comes_to("leader.elected")
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
    moment_ns = await daemons[1].comes_to("leader.elected")
    assert moment_ns / 1e9 - told_s < 1
    await cluster.audits_hold()


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


async def _is_ready(client: httpx.AsyncClient) -> bool:
    try:
        return (await client.get("/readyz")).status_code == 200
    except httpx.HTTPError:
        return False


async def _is_draining(client: httpx.AsyncClient) -> bool:
    answer = await client.get("/readyz")
    return (answer.status_code, answer.json()) == (503, {"status": "draining"})
