"""Faults of the brokers, which take submits in and make the calls; and of everything at once."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from daemon.leader import LEASE_S
from tests.chaos.case import Case
from tests.chaos.clock import shift
from tests.chaos.servers import crash, start, thaw
from tests.chaos.servers import freeze as freeze_server
from tests.chaos.world import World
from tests.fault.launch import Trouble

CONCURRENCY: Final = 64
MANY: Final = 500
SLOW_S: Final = 4.0
# The callbacks' timeout and a claim's margin, and somebody to look again.
CLAIM_OVER_S: Final = 7.0
DOWN_S: Final = 5.0
ASLEEP_S: Final = LEASE_S + 3
STARTING: Final = "delivery.starting"
HOUR_MS: Final = 3_600_000


async def kill(world: World) -> None:
    """SIGKILL to one of two, another comes."""
    doomed = world.brokers[0]
    doomed.kill()
    world.gone(doomed)
    await world.broker()


async def kill_under_many(world: World) -> None:
    """SIGKILL to the only one, once it has hundreds of calls under way."""

    async def has_many() -> bool:
        return world.receiver.under_way() >= MANY

    await world.until(has_many, f"{MANY} calls are under way", 15)
    doomed = world.brokers[0]
    doomed.kill()
    world.gone(doomed)
    await world.broker()


async def freeze(world: World) -> None:
    """SIGSTOP until its claims have run out, then SIGCONT."""
    frozen = world.brokers[0]
    frozen.freeze()
    await asyncio.sleep(CLAIM_OVER_S)
    frozen.thaw()
    measured = len(frozen.times("clock.measured"))
    await frozen.comes_to("clock.measured", measured + 1)


async def stand_still(world: World) -> None:
    """One is about to call somebody, and does not come to it before its claims have run out."""
    blocked = world.brokers[0]
    await blocked.comes_to(STARTING)
    await asyncio.sleep(CLAIM_OVER_S)
    measured = len(blocked.times("clock.measured"))
    await blocked.comes_to("clock.measured", measured + 1)


async def stop_in_turn(world: World) -> None:
    """SIGTERM to each process, once another of its kind is there."""
    for old in list(world.daemons):
        await world.daemon()
        old.stop()
        assert await old.gone() == 0
        world.gone(old)
    for old in list(world.brokers):
        await world.broker()
        world.gone(old)
        old.stop()
        assert await old.gone() == 0


async def restart_processes(world: World) -> None:
    """SIGKILL to all daemons and brokers at once, and as many start; the servers stay."""
    _kill_processes(world)
    await _start_all(world)


def _kill_processes(world: World) -> None:
    for process in (*world.daemons, *world.brokers):
        process.kill()
        world.gone(process)


async def _kill_all(world: World) -> None:
    _kill_processes(world)
    for server in (world.postgres, world.redis):
        await crash(server)


async def _start_all(world: World, trouble: Trouble = Trouble()) -> None:
    for _ in range(2):
        await world.daemon(trouble=trouble)
        await world.broker(trouble=trouble)
    await world.led()


async def restart_everything(world: World) -> None:
    """SIGKILL to all processes and both servers; some seconds later all start."""
    await _kill_all(world)
    await asyncio.sleep(DOWN_S)
    for server in (world.postgres, world.redis):
        await start(server)
    await _start_all(world)


async def freeze_everything(world: World) -> None:
    """SIGSTOP to all processes and servers, as a machine that is put to sleep."""
    for process in (*world.daemons, *world.brokers):
        process.freeze()
    for server in (world.postgres, world.redis):
        freeze_server(server)
    await asyncio.sleep(ASLEEP_S)
    for server in (world.redis, world.postgres):
        thaw(server)
    for process in (*world.brokers, *world.daemons):
        process.thaw()
    await world.led()


async def down_for_an_hour(world: World) -> None:
    """The same, and when they start it is an hour later: by all clocks, as far as they can see."""
    await _kill_all(world)
    # Redis goes by its own clock, and brokers that beat a moment ago would count as alive.
    await asyncio.sleep(DOWN_S)
    for server in (world.postgres, world.redis):
        await start(server)
    await shift(world, HOUR_MS)
    began_s = time.monotonic()
    await _start_all(world, Trouble(skew_s=HOUR_MS / 1000))
    assert time.monotonic() - began_s < 30


CASES: Final = (
    Case(
        name="broker-killed",
        what="SIGKILL with calls under way",
        fault=kill,
        answer_s=0.3,
        biz={"max_concurrency": 2 * CONCURRENCY},
        duplicates=None,
        lost_max=CONCURRENCY,
    ),
    Case(
        name="broker-killed-500",
        what=f"SIGKILL to the only one, with {MANY} calls under way",
        fault=kill_under_many,
        brokers=1,
        answer_s=SLOW_S,
        biz={"max_concurrency": 1_000, "timeout": SLOW_S + 2},
        rate_s=150,
        at_s=5,
        duplicates=None,
        lost_max=1_000,
        recovery_s=10,
    ),
    Case(
        name="broker-frozen",
        what="SIGSTOP past its claims, then SIGCONT",
        fault=freeze,
        load_s=13,
        answer_s=0.1,
        duplicates=None,
        lost_max=CONCURRENCY,
        contradicts=True,
    ),
    Case(
        name="broker-blocked",
        what="its event loop stands still past its claims, right before a call",
        fault=stand_still,
        broker_troubles=(Trouble(block=(STARTING, 150, CLAIM_OVER_S)),),
        at_s=1,
        load_s=13,
        answer_s=0.1,
        duplicates=None,
        lost_max=CONCURRENCY,
    ),
    Case(
        name="rolling-restart",
        what="SIGTERM to every process, one after the other",
        fault=stop_in_turn,
        at_s=1.5,
        load_s=12,
    ),
    Case(
        name="processes-killed",
        what="SIGKILL to all daemons and brokers, which start again at once",
        fault=restart_processes,
        load_s=12,
        duplicates=None,
        lost_max=2 * CONCURRENCY,
        recovery_s=2,
    ),
    Case(
        name="all-killed",
        what=f"SIGKILL to all processes and servers, a start {DOWN_S:g} s later",
        fault=restart_everything,
        load_s=14,
        duplicates=None,
        lost_max=2 * CONCURRENCY,
        back_ms=700,
    ),
    Case(
        name="all-frozen",
        what=f"SIGSTOP to all processes and servers for {ASLEEP_S:g} s, longer than the lease",
        fault=freeze_everything,
        load_s=ASLEEP_S + 10,
        # Every client of that time asks again all the while, and all of them live in one process.
        rate_s=60,
        duplicates=None,
        lost_max=2 * CONCURRENCY,
    ),
    Case(
        name="all-down-an-hour",
        what="the same, and an hour has passed by all clocks",
        fault=down_for_an_hour,
        load_s=14,
        duplicates=None,
        lost_max=2 * CONCURRENCY,
        back_ms=700,
    ),
)
