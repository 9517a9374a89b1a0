"""
Faults drawn at random, two at once now and then, over one long load with one account at its end.

A seed is a plan: what breaks when, for how long. Of each target (Postgres, Redis, the endpoint, the
daemons, the brokers, one process's network) one thing is broken at a time; what has died is started
again, as by whoever looks after services. What is done is told as it is done.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, NamedTuple

from tests.chaos import postgres, redis
from tests.chaos.case import Case
from tests.chaos.network import BREAKS
from tests.chaos.servers import crash, freeze, start, thaw
from tests.chaos.world import World
from tests.fault.harness import Process
from tests.fix_proxy import Proxy

CONCURRENCY: Final = 64
PROCESSES: Final = 2
RESTART_S: Final = 0.5
GAP_S: Final = (0.3, 4.0)
AT_ONCE: Final = 2
# How long a target is left alone after a fault of its own is over, by plan.
REST_S: Final = 3.0
BEFORE_S: Final = 3.0
RECOVERY_S: Final = 12.0
AFTER_S: Final = 10.0


class Blow(NamedTuple):
    """One fault of a plan, at_s after its begin. pick: in [0, 1), who or how, where there are more
    ways than one."""

    at_s: float
    kind: str
    for_s: float
    pick: float


class Kind(NamedTuple):
    """for_s: the shortest and the longest of it."""

    target: str
    for_s: tuple[float, float]
    act: Callable[[World, Blow], Awaitable[None]]


def _alone(fault: Callable[[World], Awaitable[None]]) -> Callable[[World, Blow], Awaitable[None]]:
    """A fault that is over once it has happened."""

    async def act(world: World, blow: Blow) -> None:
        await fault(world)

    return act


async def _freeze_postgres(world: World, blow: Blow) -> None:
    freeze(world.postgres)
    await asyncio.sleep(blow.for_s)
    thaw(world.postgres)


async def _lock_postgres(world: World, blow: Blow) -> None:
    async with world.session(autocommit=False) as other:
        await other.execute("LOCK TABLE timer_task IN ACCESS EXCLUSIVE MODE")
        await asyncio.sleep(blow.for_s)
        await other.rollback()


async def _refuse_writes(world: World, blow: Blow) -> None:
    await world.sql(postgres.ERRORS)
    await asyncio.sleep(blow.for_s)
    await world.sql(postgres.NO_ERRORS)


async def _hold_snapshot(world: World, blow: Blow) -> None:
    async with world.session(autocommit=False) as other:
        await other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await other.execute("SELECT count(*) FROM timer_task")
        await asyncio.sleep(blow.for_s)


async def _end_sessions(world: World, blow: Blow) -> None:
    await world.sql(f"SELECT pg_terminate_backend(pid) FROM ({postgres.BACKENDS}) AS ours")


async def _flush_redis(world: World, blow: Blow) -> None:
    async with world.redis_client() as client:
        await client.flushall()


async def _drop_lanes(world: World, blow: Blow) -> None:
    async with world.redis_client() as client:
        for lane in await client.keys(redis.LANE):
            await client.delete(lane)


async def _stop_redis(world: World, blow: Blow) -> None:
    await crash(world.redis)
    await asyncio.sleep(blow.for_s)
    await start(world.redis)


async def _freeze_redis(world: World, blow: Blow) -> None:
    freeze(world.redis)
    await asyncio.sleep(blow.for_s)
    thaw(world.redis)


async def _fill_redis(world: World, blow: Blow) -> None:
    async with world.redis_client() as client:
        await client.config_set("maxmemory", "1")
        await asyncio.sleep(blow.for_s)
        await client.config_set("maxmemory", "0")


def _leader(world: World, blow: Blow) -> Process | None:
    """Or another daemon, where none leads that is alive."""
    leader = world.leader()
    return leader if leader in world.daemons else _one(world.daemons, blow)


def _broker(world: World, blow: Blow) -> Process | None:
    return _one(world.brokers, blow)


def _one(processes: list[Process], blow: Blow) -> Process | None:
    return processes[int(blow.pick * len(processes))] if processes else None


def _killed(
    whom: Callable[[World, Blow], Process | None],
) -> Callable[[World, Blow], Awaitable[None]]:
    async def act(world: World, blow: Blow) -> None:
        process = whom(world, blow)
        if process is not None and process.is_alive:
            process.kill()
            world.gone(process)

    return act


def _stopped(
    whom: Callable[[World, Blow], Process | None],
) -> Callable[[World, Blow], Awaitable[None]]:
    async def act(world: World, blow: Blow) -> None:
        process = whom(world, blow)
        if process is not None and process.is_alive:
            world.gone(process)
            process.stop()
            await process.gone()

    return act


def _frozen(
    whom: Callable[[World, Blow], Process | None],
) -> Callable[[World, Blow], Awaitable[None]]:
    async def act(world: World, blow: Blow) -> None:
        process = whom(world, blow)
        if process is not None and process.is_alive:
            process.freeze()
            await asyncio.sleep(blow.for_s)
            process.thaw()

    return act


async def _cut_process(world: World, blow: Blow) -> None:
    """One process from one of the servers, in one of the ways."""
    ends = [
        proxy for process in (*world.daemons, *world.brokers) for proxy in world.proxies(process)
    ]
    if ends:
        which, rest = divmod(blow.pick * len(ends), 1)
        await _cut(ends[int(which)], blow, rest)


async def _cut_endpoint(world: World, blow: Blow) -> None:
    await _cut(world.endpoint_proxy, blow, blow.pick)


async def _cut(proxy: Proxy, blow: Blow, way: float) -> None:
    await BREAKS[int(way * len(BREAKS))](proxy)
    await asyncio.sleep(blow.for_s)
    await proxy.heal()


MOMENT: Final = (0.0, 0.0)
KINDS: Final = {
    "postgres restarted": Kind("postgres", MOMENT, _alone(postgres.restart)),
    "postgres killed": Kind("postgres", MOMENT, _alone(postgres.kill)),
    "a backend killed": Kind("postgres", MOMENT, _alone(postgres.kill_backend)),
    "our sessions ended": Kind("postgres", MOMENT, _end_sessions),
    "postgres frozen": Kind("postgres", (0.5, 6.0), _freeze_postgres),
    "the wheel locked": Kind("postgres", (0.5, 12.0), _lock_postgres),
    "one write in a hundred refused": Kind("postgres", (1.0, 6.0), _refuse_writes),
    "a snapshot held": Kind("postgres", (2.0, 20.0), _hold_snapshot),
    "redis flushed": Kind("redis", MOMENT, _flush_redis),
    "the lane deleted": Kind("redis", MOMENT, _drop_lanes),
    "redis emptied": Kind("redis", MOMENT, _alone(redis.restart_empty)),
    "redis killed": Kind("redis", (0.0, 8.0), _stop_redis),
    "redis frozen": Kind("redis", (0.5, 8.0), _freeze_redis),
    "redis full": Kind("redis", (0.5, 6.0), _fill_redis),
    "the leader killed": Kind("daemons", MOMENT, _killed(_leader)),
    "the leader stopped": Kind("daemons", MOMENT, _stopped(_leader)),
    "the leader frozen": Kind("daemons", (0.5, 16.0), _frozen(_leader)),
    "a broker killed": Kind("brokers", MOMENT, _killed(_broker)),
    "a broker stopped": Kind("brokers", MOMENT, _stopped(_broker)),
    "a broker frozen": Kind("brokers", (0.5, 9.0), _frozen(_broker)),
    "a process cut off": Kind("network", (0.5, 8.0), _cut_process),
    "the endpoint cut off": Kind("endpoint", (0.5, 4.0), _cut_endpoint),
}


def plan(draw: random.Random, seconds: float) -> Iterator[Blow]:
    """What breaks when; all of it is over within so many seconds."""
    free_s: dict[str, float] = defaultdict(float)
    ends_s: list[float] = []
    at_s = 0.0
    while True:
        at_s += draw.uniform(*GAP_S)
        name = draw.choice(list(KINDS))
        kind = KINDS[name]
        blow = Blow(at_s, name, draw.uniform(*kind.for_s), draw.random())
        if at_s > seconds:
            return
        ends_s = [end_s for end_s in ends_s if end_s > at_s]
        is_over = at_s + blow.for_s <= seconds
        if len(ends_s) < AT_ONCE and free_s[kind.target] <= at_s and is_over:
            ends_s.append(at_s + blow.for_s)
            free_s[kind.target] = at_s + blow.for_s + REST_S
            yield blow


async def _look_after(world: World) -> None:
    """Whoever has died is started again, for ever."""
    while True:
        for process in (*world.daemons, *world.brokers):
            if not process.is_alive:
                world.gone(process)
        # One that starts while its servers are away may end at once.
        with suppress(AssertionError):
            if len(world.daemons) < PROCESSES:
                await world.daemon()
            if len(world.brokers) < PROCESSES:
                await world.broker()
        await asyncio.sleep(RESTART_S)


async def _strike(world: World, blows: list[Blow]) -> None:
    began_s = time.monotonic()
    # A target may need longer than by plan to be there again.
    busy: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def strike(blow: Blow) -> None:
        kind = KINDS[blow.kind]
        async with busy[kind.target]:
            _tell(blow.kind, f"for {blow.for_s:.1f} s" if blow.for_s else "")
            await kind.act(world, blow)
            if blow.for_s:
                _tell(blow.kind, "is over")

    async with asyncio.TaskGroup() as under_way:
        for blow in blows:
            await asyncio.sleep(max(0.0, began_s + blow.at_s - time.monotonic()))
            under_way.create_task(strike(blow))


def _tell(*words: str) -> None:
    # By the clock of the processes' own words.
    moment = datetime.now(UTC).isoformat(timespec="milliseconds").partition("+")[0]
    print(f"    {moment}Z {' '.join(words)}".rstrip(), flush=True)


async def rage(world: World) -> None:
    """The plan of this world's seed; then everybody is there."""
    seconds = 60 * minutes_of(world.case)
    looking_after = asyncio.create_task(_look_after(world))
    try:
        await _strike(world, list(plan(world.random, seconds)))

        async def are_there() -> bool:
            there = [one for one in (*world.daemons, *world.brokers) if one.is_alive]
            return len(there) == 2 * PROCESSES and world.leader() in there

        await world.until(are_there, "everybody is there, and somebody leads")
    finally:
        looking_after.cancel()
        await asyncio.gather(looking_after, return_exceptions=True)


def storm(minutes: float) -> Case:
    """Of so many minutes."""
    return Case(
        name="storm",
        what="faults at random, one or two at a time; as long as --minutes says",
        fault=rage,
        at_s=BEFORE_S,
        load_s=60 * minutes + BEFORE_S + AFTER_S + RECOVERY_S,
        rate_s=80,
        proxied=True,
        endpoint_proxied=True,
        duplicates=None,
        lost_max=round(20 * CONCURRENCY * minutes),
        recovery_s=RECOVERY_S,
        back_ms=700,
        drain_s=60,
    )


def minutes_of(case: Case) -> float:
    """How long it was to be."""
    return (case.load_s - BEFORE_S - AFTER_S - RECOVERY_S) / 60


CASES: Final = (storm(1.0),)
