"""Faults of the daemon that moves the hands."""

from __future__ import annotations

import asyncio
from typing import Final

from daemon.leader import LEASE_S
from tests.chaos.case import Case
from tests.chaos.world import World

TAKEOVER_S: Final = 1.0


async def kill(world: World) -> None:
    """SIGKILL; somebody else leads."""
    leader = await world.led()
    leader.kill()
    world.gone(leader)
    await world.led(other_than=leader, within_s=5)


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


CASES: Final = (
    Case(name="leader-killed", what="SIGKILL", fault=kill, recovery_s=TAKEOVER_S),
    Case(
        name="leader-frozen",
        what="SIGSTOP past its lease, then SIGCONT",
        fault=freeze,
        load_s=LEASE_S + 10,
    ),
)
