"""Faults of Redis: whatever is in it may vanish, and it may be away."""

from __future__ import annotations

import asyncio
import os
import shutil
from typing import Final

from tests.chaos.case import Case
from tests.chaos.load import BIZ_TYPE
from tests.chaos.servers import crash, freeze, start, thaw
from tests.chaos.world import World
from wheel_timer.streams import GROUP

AWAY_S: Final = 5.0
LANE: Final = f"wt:*:lane:{BIZ_TYPE}"
GARBAGE: Final = 50


async def _lane(world: World) -> str:
    """The key of the one lane."""
    async with world.redis_client() as redis:
        (key,) = await redis.keys(LANE)
        return os.fsdecode(key)


async def flush(world: World) -> None:
    """Entries, groups, heartbeats, the epoch: everything is gone."""
    async with world.redis_client() as redis:
        assert await redis.dbsize()
        await redis.flushall()


async def restart(world: World) -> None:
    """It comes back with what it had."""
    await asyncio.to_thread(world.redis.stop)
    await start(world.redis)


async def restart_empty(world: World) -> None:
    """kill -9, and its files are gone."""
    await crash(world.redis)
    for path in world.redis.data.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    await start(world.redis)


async def kill(world: World) -> None:
    """kill -9: what the last second brought may be lost."""
    await crash(world.redis)
    await start(world.redis)


async def stay_away(world: World) -> None:
    """It is gone for some time: what is due meanwhile is called all the same."""
    await crash(world.redis)
    await asyncio.sleep(AWAY_S)
    await start(world.redis)


async def stand_still(world: World) -> None:
    """SIGSTOP."""
    freeze(world.redis)
    await asyncio.sleep(AWAY_S)
    thaw(world.redis)


async def fill(world: World) -> None:
    """Out of memory: every write is refused."""
    async with world.redis_client() as redis:
        await redis.config_set("maxmemory", "1")
        await asyncio.sleep(AWAY_S)
        await redis.config_set("maxmemory", "0")


async def destroy_group(world: World) -> None:
    """XGROUP DESTROY."""
    lane = await _lane(world)
    async with world.redis_client() as redis:
        assert await redis.xgroup_destroy(lane, GROUP)


async def delete_stream(world: World) -> None:
    """DEL."""
    lane = await _lane(world)
    async with world.redis_client() as redis:
        assert await redis.delete(lane)


async def trim_stream(world: World) -> None:
    """XTRIM MAXLEN 0: entries that are pending come back with nothing in them."""
    lane = await _lane(world)
    async with world.redis_client() as redis:
        for _ in range(5):
            await redis.xtrim(lane, maxlen=0, approximate=False)
            await asyncio.sleep(0.1)


async def add_garbage(world: World) -> None:
    """Entries that nobody of us wrote."""
    lane = await _lane(world)
    async with world.redis_client() as redis:
        for number in range(GARBAGE):
            garbage = world.random.randbytes(world.random.randint(0, 60))
            field = ("r", "x")[number % 2]
            await redis.xadd(lane, {field: garbage})


CASES: Final = (
    Case(name="redis-flushed", what="FLUSHALL", fault=flush),
    Case(name="redis-restarted", what="a restart with its data", fault=restart),
    Case(name="redis-emptied", what="kill -9, and its files are gone", fault=restart_empty),
    Case(name="redis-killed", what="kill -9 inside the fsync window", fault=kill),
    Case(name="redis-away", what=f"gone for {AWAY_S:g} s", fault=stay_away, load_s=12),
    Case(name="redis-frozen", what=f"SIGSTOP for {AWAY_S:g} s", fault=stand_still, load_s=12),
    Case(name="redis-full", what=f"out of memory for {AWAY_S:g} s", fault=fill, load_s=12),
    Case(name="redis-group-gone", what="XGROUP DESTROY", fault=destroy_group),
    Case(name="redis-stream-gone", what="DEL of the lane", fault=delete_stream),
    Case(name="redis-trimmed", what="XTRIM MAXLEN 0, again and again", fault=trim_stream),
    Case(name="redis-garbage", what="entries that are none of ours", fault=add_garbage),
)
