"""Faults of the daemon that moves the hands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import zip_longest
from typing import Final

from daemon.leader import LEASE_S
from tests.chaos.case import Case
from tests.chaos.world import World
from tests.fault.launch import Trouble

TAKEOVER_S: Final = 1.0
STEPS: Final = (
    "due.closed",
    "due.fenced",
    "due.published",
    "due.rearmed",
    "due.advanced",
    "sweep.page",
    "sweep.done",
)
STEP_S: Final = 12.0
RACES: Final = 6
LOOK_S: Final = 2.0
HIDE_LEASE: Final = "ALTER TABLE timer_pointer RENAME COLUMN lease_until TO hidden"
SHOW_LEASE: Final = "ALTER TABLE timer_pointer RENAME COLUMN hidden TO lease_until"
BLOCKED_S: Final = LEASE_S + 4
CUT_LOCK: Final = """
SELECT pg_terminate_backend(l.pid) FROM pg_locks AS l
WHERE l.locktype = 'advisory' AND l.classid = CAST('timer_requeue' AS regclass) AND l.granted
"""


async def kill(world: World) -> None:
    """SIGKILL; somebody else leads."""
    leader = await world.led()
    leader.kill()
    world.gone(leader)
    await world.led(other_than=leader, within_s=5)


async def kill_at_every_step(world: World) -> None:
    """Each leader kills itself at a step of its tick, the next at the next step."""
    leader = await world.led()
    heir = await world.daemon(die=(STEPS[0], 2))
    leader.kill()
    world.gone(leader)
    for step, next_step in zip_longest(STEPS, STEPS[1:]):
        doomed = heir
        heir = await world.daemon(die=None if next_step is None else (next_step, 2))
        await doomed.comes_to(step, timeout_s=STEP_S)
        await doomed.gone()
        world.gone(doomed)
    await world.led()


def races(times: int) -> Callable[[World], Awaitable[None]]:
    """The leader is killed again and again, with five standing by; each election has one winner."""

    async def fault(world: World) -> None:
        for _ in range(times):
            leader = await world.led()
            await world.daemon()
            leader.kill()
            world.gone(leader)
            await world.led(other_than=leader, within_s=5)
        ((epoch,),) = await world.sql("SELECT epoch FROM timer_pointer WHERE shard = 0")
        assert epoch == times + 1, f"{times} elections, epoch {epoch}"

    return fault


async def freeze(world: World) -> None:
    """SIGSTOP past its lease, then SIGCONT: it finds an heir and stands by."""
    leader = await world.led()
    leader.freeze()
    await world.led(other_than=leader, within_s=LEASE_S + 5)
    await asyncio.sleep(0.5)
    before = len(leader.times("leader.stepped_down"))
    advanced = len(leader.times("due.advanced"))
    leader.thaw()
    await leader.comes_to("leader.stepped_down", before + 1)
    assert len(leader.times("due.advanced")) == advanced, "a frozen leader moved a hand once awake"


async def block_loop(world: World) -> None:
    """The leader's event loop stands still, for longer than its lease: the first daemon's."""
    leader = await world.led()
    assert leader is world.daemons[0], "the one that will stand still does not lead"
    await leader.comes_to("due.closed")
    await world.led(other_than=leader, within_s=LEASE_S + 8)
    await leader.comes_to("leader.stepped_down")


async def cut_lock(world: World) -> None:
    """The session that holds its lock is ended; the process goes on, and must find out."""
    leader = await world.led()
    elected = len(leader.times("leader.elected"))
    assert await world.sql(CUT_LOCK)

    async def is_led_anew() -> bool:
        return sum(len(one.times("leader.elected")) for one in world.daemons) > elected

    await world.until(is_led_anew, "somebody is elected", 20)


async def hide_lease(world: World) -> None:
    """Every question about the lease is an error: nobody believes to lead on, nobody is elected."""
    leader = await world.led()
    stepped_down = len(leader.times("leader.stepped_down"))
    await world.sql(HIDE_LEASE)
    await leader.comes_to("leader.stepped_down", stepped_down + 1, timeout_s=LEASE_S)
    advanced = len(leader.times("due.advanced"))
    await asyncio.sleep(LOOK_S)
    assert len(leader.times("due.advanced")) == advanced, "it moves a hand, and does not lead"
    assert world.leader() is None, "somebody is elected, and cannot be"
    await world.sql(SHOW_LEASE)
    await world.led()


CASES: Final = (
    Case(name="leader-killed", what="SIGKILL", fault=kill, recovery_s=TAKEOVER_S),
    Case(
        name="leader-steps",
        what="SIGKILL at every step of a tick, one leader after the other",
        fault=kill_at_every_step,
        daemons=1,
        settings={"visibility": 2},
        load_s=16,
        recovery_s=TAKEOVER_S,
    ),
    Case(
        name="leader-races",
        what=f"{RACES} leaders killed while five stand by",
        fault=races(RACES),
        daemons=6,
        recovery_s=TAKEOVER_S,
    ),
    Case(
        name="leader-races-100",
        what="a hundred",
        fault=races(100),
        daemons=6,
        load_s=100,
        recovery_s=TAKEOVER_S,
        is_long=True,
    ),
    Case(
        name="leader-frozen",
        what="SIGSTOP past its lease, then SIGCONT",
        fault=freeze,
        load_s=LEASE_S + 10,
    ),
    Case(
        name="leader-same-name",
        what="the same between two daemons of one host name and pid",
        fault=freeze,
        daemon_troubles=(Trouble(name="twin"), Trouble(name="twin")),
        load_s=LEASE_S + 10,
    ),
    Case(
        name="leader-blocked",
        what="its event loop stands still for longer than its lease",
        fault=block_loop,
        daemon_troubles=(Trouble(block=("due.closed", 12, BLOCKED_S)),),
        load_s=BLOCKED_S + 8,
    ),
    Case(
        name="leader-lock-cut",
        what="the session of its lock is ended while it lives",
        fault=cut_lock,
        load_s=12,
    ),
    Case(
        name="leader-no-lease",
        what="renewals and elections are errors: nobody leads meanwhile",
        fault=hide_lease,
        load_s=18,
    ),
)
