"""A machine that has run out of something: file descriptors, processor time, disk."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.chaos.case import Case, Skipped
from tests.chaos.servers import start
from tests.chaos.world import World
from tests.fault.launch import Trouble

CONCURRENCY: Final = 64
STARVED_S: Final = 4.0
# A fifth of the time awake, in slices shorter than any deadline of ours.
AWAKE_S: Final = 0.04
ASLEEP_S: Final = 0.16
# What a broker has open of its own, and some for clients.
FILES: Final = 64
FULL_S: Final = 4.0
SMALL_MIB: Final = 8


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


async def fill_disk(world: World) -> None:
    """Redis' append-only file lies on a file system that is full for some seconds."""
    data = world.redis.data
    await asyncio.to_thread(world.redis.stop)
    owner = data.stat()
    options = f"size={SMALL_MIB}m,mode=0700,uid={owner.st_uid},gid={owner.st_gid}"
    await _command("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(data))
    try:
        await start(world.redis)
        await asyncio.to_thread(_fill, data / "ballast")
        await asyncio.sleep(FULL_S)
        await asyncio.to_thread((data / "ballast").unlink)
        if not world.redis.is_running():
            await start(world.redis)
    finally:
        # It goes once nobody uses it any more.
        await _command("umount", "--lazy", str(data))


def _fill(path: Path) -> None:
    """With whatever finds room."""
    with path.open("wb", buffering=0) as ballast:
        try:
            while True:
                ballast.write(bytes(4096))
        except OSError:
            return


async def _command(*words: str) -> None:
    def run(command: Sequence[str]) -> None:
        subprocess.run(command, check=True, capture_output=True)

    try:
        await asyncio.to_thread(run, words)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Skipped(f"{words[0]} needs root on Linux: {error}") from error


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
    Case(
        name="redis-disk-full",
        what=f"no room for Redis' append-only file for {FULL_S:g} s",
        fault=fill_disk,
        load_s=12,
    ),
)
