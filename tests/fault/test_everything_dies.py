"""Brokers, Redis, Postgres, everything: killed under load, and all that was accepted arrives."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from typing import Any, Final

import psutil
import pytest
from redis.asyncio import Redis

from tests.fault.harness import Cluster, NewCluster
from tests.fix_endpoint import Answer, Endpoint
from tests.fix_sessions import Sessions, until
from tests.processes import tell
from wheel_timer.embedded import EmbeddedPostgres, EmbeddedRedis
from wheel_timer.store.migrate import migrate

RATE_S: Final = 100
# The least there may be: what is lost on its way is found this soon.
FAST: Final[dict[str, Any]] = {"lookahead": 0.5, "visibility": 2}
LOST: Final = "SELECT count(*) FROM timer_attempt WHERE outcome = 'lost'"


@pytest.mark.slow
@pytest.mark.timing
async def test_brokers_killed_and_frozen_in_their_calls_cost_each_call_one_attempt(
    cluster: Cluster, endpoint: Endpoint, sessions: Sessions
) -> None:
    await cluster.configure(timeout=0.6)
    endpoint.answer = Answer(delay_s=0.3)
    await cluster.daemon()
    doomed, frozen = await cluster.broker(), await cluster.broker()
    for broker in (doomed, frozen):
        await broker.comes_to("clock.measured", 2)
    await cluster.submit_at(*range(0, 2_000, 5))
    await endpoint.wait_for(100)
    doomed.kill()
    frozen.freeze()
    await cluster.broker()
    calls = await cluster.all_arrive()
    lost = await sessions.value(LOST)
    assert lost > 0
    # Called twice is only what was in flight; nothing that was merely read, or claimed ahead.
    assert sum(calls.values()) <= len(cluster.submitted) + lost
    # Awake again, it settles what it had in hand, and starts nothing that is somebody else's.
    facts = "SELECT array_agg(t.* ORDER BY t.task_id)::text FROM timer_task AS t"
    before = await sessions.value(facts)
    frozen.thaw()
    measured = len(frozen.times("clock.measured"))
    await frozen.comes_to("clock.measured", measured + 2)
    frozen.stop()
    assert await frozen.gone() == 0
    assert await sessions.value(facts) == before
    again = Counter(call.task_id for call in endpoint.received) - calls
    # One it may have been sending at that very instruction; whatever was ready to go stays.
    assert again.total() <= 1
    await cluster.audits_hold()


@pytest.mark.slow
@pytest.mark.timing
async def test_a_rolling_restart_under_load_calls_everybody_once(
    cluster: Cluster, sessions: Sessions
) -> None:
    """Each process is asked to end while another is there: nothing is lost, late, or repeated."""
    processes = [await cluster.daemon(), await cluster.broker()]
    await processes[1].comes_to("clock.measured", 2)
    await processes[0].comes_to("leader.elected")
    load = asyncio.create_task(cluster.load(RATE_S, 4.0, 1_000))
    for _ in range(2):
        heirs = [await cluster.daemon(), await cluster.broker()]
        await heirs[1].comes_to("clock.measured", 2)
        for process in processes:
            process.stop()
        assert await asyncio.gather(*(process.gone() for process in processes)) == [0, 0]
        await heirs[0].comes_to("leader.elected")
        processes = heirs
    await load
    calls = await cluster.all_arrive()
    assert max(calls.values()) == 1
    assert await sessions.value("SELECT count(*) FROM timer_attempt") == 0


@pytest.mark.timing
async def test_a_redis_flushed_under_load_is_made_good_by_the_sweep_and_the_nets(
    new_cluster: NewCluster, own_redis: EmbeddedRedis, database_url: str, sessions: Sessions
) -> None:
    """Entries, groups, heartbeats, the epoch: everything in Redis is gone, twice."""
    cluster = await new_cluster(database_url, own_redis.url, "wt")
    daemon = await cluster.daemon(**FAST)
    broker = await cluster.broker(**FAST)
    await broker.comes_to("clock.measured", 2)
    await daemon.comes_to("leader.elected")
    load = asyncio.create_task(cluster.load(RATE_S, 2.0, 1_200))
    client = Redis.from_url(cluster.redis_url)
    for _ in range(2):
        await daemon.comes_to("due.advanced", len(daemon.times("due.advanced")) + 4)
        await client.flushall()
    await client.aclose()
    await load
    # A claim under way when the flush came is settled as ever: nothing is called twice for it.
    calls = await cluster.all_arrive()
    assert max(calls.values()) == 1
    assert await sessions.value(LOST) == 0


@pytest.mark.slow
@pytest.mark.timing
async def test_everything_killed_at_once_and_started_again_delivers_all_that_was_accepted(
    cluster: Cluster, sessions: Sessions
) -> None:
    await cluster.configure(timeout=0.6)
    first = [await cluster.daemon(**FAST), await cluster.daemon(**FAST)]
    brokers = [await cluster.broker(**FAST), await cluster.broker(**FAST)]
    for broker in brokers:
        await broker.comes_to("clock.measured", 2)
    await cluster.load(RATE_S, 1.0, 600)
    for process in first + brokers:
        process.kill()
    # Accepted while nobody is there, due before anybody is.
    await cluster.submit_at(*range(0, 500, 10))
    await cluster.daemon(**FAST)
    await cluster.broker(**FAST)
    calls = await cluster.all_arrive()
    # Called twice is only what a dead broker had called, or claimed, and not settled.
    assert sum(calls.values()) <= len(cluster.submitted) + await sessions.value(LOST)


def crash(server: EmbeddedPostgres) -> None:
    """SIGKILL to all of its processes at once, and a new start."""
    assert server.process is not None
    whole = psutil.Process(server.process.pid)
    tell((whole, *whole.children()), signal.SIGKILL)
    server.process.wait()
    server.start()
    server.wait_ready(60)


@pytest.mark.slow
@pytest.mark.timing
async def test_a_postgres_that_crashes_under_load_forgets_nothing_it_has_accepted(
    new_cluster: NewCluster, own_postgres: EmbeddedPostgres, redis_url: str, redis_prefix: str
) -> None:
    """What closes and advances had not reached the disk is forgotten: the hands stand earlier."""
    await asyncio.to_thread(migrate, own_postgres.url, "public", 1)
    cluster = await new_cluster(own_postgres.url, redis_url, redis_prefix)
    daemons = [await cluster.daemon(**FAST), await cluster.daemon(**FAST)]
    broker = await cluster.broker(**FAST)
    await broker.comes_to("clock.measured", 2)
    load = asyncio.create_task(cluster.load(RATE_S, 2.0, 1_200))

    async def is_underway() -> bool:
        return len(cluster.submitted) >= RATE_S

    await until(is_underway)
    await asyncio.to_thread(crash, own_postgres)
    await load
    calls = await cluster.all_arrive()
    assert len(calls) == 2 * RATE_S
    assert any(daemon.times("leader.elected") for daemon in daemons)
