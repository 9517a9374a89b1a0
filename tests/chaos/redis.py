"""Faults of Redis: whatever is in it may vanish, and it may be away."""

from __future__ import annotations

from typing import Final

from tests.chaos.case import Case
from tests.chaos.world import World


async def flush(world: World) -> None:
    """Entries, groups, heartbeats, the epoch: everything is gone."""
    async with world.redis_client() as redis:
        assert await redis.dbsize()
        await redis.flushall()


CASES: Final = (Case(name="redis-flushed", what="FLUSHALL", fault=flush, recovery_s=7.0),)
