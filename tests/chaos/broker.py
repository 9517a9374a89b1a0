"""Faults of the brokers, which take submits in and make the calls."""

from __future__ import annotations

import asyncio
from typing import Final

from tests.chaos.case import Case
from tests.chaos.world import World

CONCURRENCY: Final = 64


async def kill(world: World) -> None:
    """SIGKILL to one of two, another comes."""
    doomed = world.brokers[0]
    doomed.kill()
    world.gone(doomed)
    await world.broker()


async def freeze(world: World) -> None:
    """SIGSTOP until its claims have run out, then SIGCONT."""
    frozen = world.brokers[0]
    frozen.freeze()
    # Its callbacks' timeout and the margin, and somebody to look again.
    await asyncio.sleep(7.0)
    frozen.thaw()
    measured = len(frozen.times("clock.measured"))
    await frozen.comes_to("clock.measured", measured + 1)


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
        name="broker-frozen",
        what="SIGSTOP past its claims, then SIGCONT",
        fault=freeze,
        load_s=13,
        answer_s=0.1,
        duplicates=None,
        lost_max=CONCURRENCY,
        contradicts=True,
    ),
)
