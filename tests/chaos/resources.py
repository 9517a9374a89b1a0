"""A machine that has run out of something: file descriptors, processor time."""

from __future__ import annotations

import asyncio
import time
from typing import Final

from tests.chaos.case import Case
from tests.chaos.world import World
from tests.fault.launch import Trouble

CONCURRENCY: Final = 64
STARVED_S: Final = 4.0
# A fifth of the time awake, in slices shorter than any deadline of ours.
AWAKE_S: Final = 0.04
ASLEEP_S: Final = 0.16
# What a broker has open of its own, and some for clients.
FILES: Final = 64


async def starve(world: World) -> None:
    """The leader and one broker get a fifth of the time."""
    starved = [await world.led(), world.brokers[0]]
    until_s = time.monotonic() + STARVED_S
    while time.monotonic() < until_s:
        for process in starved:
            process.freeze()
        await asyncio.sleep(ASLEEP_S)
        for process in starved:
            process.thaw()
        await asyncio.sleep(AWAKE_S)


async def use_up_files(world: World) -> None:
    """Clients that connect to a broker and say nothing, more than it can have."""
    port = world.port(world.brokers[0])
    silent: list[asyncio.StreamWriter] = []
    for _ in range(2 * FILES):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        silent.append(writer)
    await asyncio.sleep(STARVED_S)
    for writer in silent:
        writer.transport.abort()


CASES: Final = (
    Case(
        name="starved",
        what="a fifth of the processor time for the leader and a broker",
        fault=starve,
        load_s=11,
        duplicates=None,
        lost_max=CONCURRENCY,
    ),
    Case(
        name="files-used-up",
        what=f"a broker with {FILES} file descriptors, and twice as many silent clients",
        fault=use_up_files,
        broker_troubles=(Trouble(files=FILES),),
        load_s=11,
        duplicates=None,
        lost_max=CONCURRENCY,
    ),
)
