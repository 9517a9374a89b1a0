"""Clocks that are wrong: a machine's, and the database's, which is the one that counts."""

from __future__ import annotations

import asyncio
from typing import Final

from tests.chaos.case import Case
from tests.chaos.world import World
from tests.fault.launch import Trouble

CONCURRENCY: Final = 64
HOUR_S: Final = 3_600.0
BACK_MS: Final = -600_000
FORWARD_MS: Final = 3_600_000
HOLD_S: Final = 4.0
# The clock of DESIGN section 4 with a shift; no test's clock, of which jumps are expected.
SHIFTED: Final = """
CREATE OR REPLACE FUNCTION wheel_now_us() RETURNS bigint
LANGUAGE sql VOLATILE PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
    SELECT CAST(date_part('epoch', clock_timestamp()) * 1000000 AS bigint)
        + CAST(OFFSET_MS AS bigint) * 1000
$$
"""
SHOWN: Final = "SELECT wheel_now_ms() - date_part('epoch', clock_timestamp()) * 1000"
# A claim that was granted before the jump is called after it.
CLAIMED_S: Final = 0.2


async def shift(world: World, offset_ms: int, *, clients: bool = True) -> None:
    """From now on the database's clock is so far from the machine's; for the logs, too, and where
    it is to be right for long, for clients."""
    if clients:
        world.asking_ms = offset_ms
    # Ahead a little before it holds, back a little after: what was called between is not early.
    if offset_ms > world.offset_ms:
        world.offset_ms = offset_ms
    await world.sql(SHIFTED.replace("OFFSET_MS", str(offset_ms)))
    await asyncio.sleep(CLAIMED_S)
    world.offset_ms = offset_ms
    ((shown_ms,),) = await world.sql(SHOWN)
    assert abs(shown_ms - offset_ms) < 100


async def nothing(world: World) -> None:
    """What is wrong was so from the start."""


async def jump_back(world: World) -> None:
    """Ten minutes back; what comes in goes on, what was there waits. Then the clock is right again,
    which is a jump forward: who saw it set back follows by itself, nobody restarts or accepts
    anything, and what waited is on time from there on."""
    await shift(world, BACK_MS)
    await asyncio.sleep(HOLD_S)
    await shift(world, 0)


async def jump_forward(world: World) -> None:
    """An hour ahead: nothing is called until the clock is back."""
    await shift(world, FORWARD_MS, clients=False)
    # A call that was under way, or claimed, may still come.
    await asyncio.sleep(1.5)
    called = len(world.receiver.called)
    await asyncio.sleep(HOLD_S)
    assert len(world.receiver.called) == called, "called by a clock that had jumped an hour"
    await shift(world, 0)


CASES: Final = (
    Case(
        name="clock-daemon-ahead",
        what="the machine's clock of a daemon 1 h ahead, of a broker 1 h behind",
        fault=nothing,
        daemon_troubles=(Trouble(skew_s=HOUR_S),),
        broker_troubles=(Trouble(skew_s=-HOUR_S),),
        load_s=6,
    ),
    Case(
        name="clock-daemon-behind",
        what="the machine's clock of a daemon 1 h behind, of a broker 1 h ahead",
        fault=nothing,
        daemon_troubles=(Trouble(skew_s=-HOUR_S),),
        broker_troubles=(Trouble(skew_s=HOUR_S),),
        load_s=6,
    ),
    Case(
        name="clock-back",
        what="the database's clock jumps 10 minutes back, and is put right; nobody is asked",
        fault=jump_back,
        load_s=16,
        # By the clock that jumped forward the claims under way had run out.
        duplicates=None,
        lost_max=64,
    ),
    Case(
        name="clock-forward",
        what="the database's clock jumps 1 h forward, and back again",
        fault=jump_forward,
        load_s=12,
        # A lease runs by that clock: what is in flight when it jumps may be called twice.
        duplicates=None,
        lost_max=CONCURRENCY,
    ),
)
