"""A disk that is full: under Postgres' tables, under its log, under Redis' append-only file."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

import psycopg

from tests.chaos.case import Case
from tests.chaos.servers import start
from tests.chaos.small_disk import Disk, fill
from tests.chaos.world import World

CONCURRENCY: Final = 64
FULL_S: Final = 4.0
TABLES_FULL_S: Final = 6.0
DOWN_S: Final = 20.0
REDIS_MIB: Final = 8
# A new cluster takes 68, and its log grows while it is loaded.
POSTGRES_MIB: Final = 256
# What closes and advances had not reached the disk is forgotten.
BACK_MS: Final = 700
SWITCH: Final = "SELECT pg_switch_wal()"


async def fill_redis(world: World) -> None:
    """No room for Redis' append-only file for some seconds."""
    ballast = await asyncio.to_thread(fill, world.redis.data)
    await asyncio.sleep(FULL_S)
    await asyncio.to_thread(ballast.unlink)
    if not world.redis.is_running():
        await start(world.redis)


async def fill_tables(world: World) -> None:
    """No table can grow; the log still has room in its segment. Clients are told to come later."""
    told = world.load.told_later
    ballast = await asyncio.to_thread(fill, world.postgres.data)
    await asyncio.sleep(TABLES_FULL_S)
    await asyncio.to_thread(ballast.unlink)
    assert world.load.told_later > told, "nobody was told to come later"
    assert world.postgres.is_running()


async def fill_log(world: World) -> None:
    """The log has no room for another segment: Postgres stops in the middle of a write, cannot
    recover, and stays away until there is room and somebody starts it."""
    ballast = await asyncio.to_thread(fill, world.postgres.data)

    async def is_down() -> bool:
        with suppress(psycopg.Error):
            await world.sql(SWITCH)
        return not world.postgres.is_running()

    await world.until(is_down, "Postgres is down", DOWN_S)
    await asyncio.to_thread(ballast.unlink)
    await start(world.postgres)


CASES: Final = (
    Case(
        name="postgres-disk-full",
        what=f"no room for Postgres' tables for {TABLES_FULL_S:g} s",
        fault=fill_tables,
        disk=Disk("postgres", POSTGRES_MIB),
        # Longer than a broker tries before it says so.
        patience_s=8,
        load_s=16,
        duplicates=None,
        lost_max=CONCURRENCY,
        # Should the log be the first to want a new segment, it has crashed and recovered.
        back_ms=BACK_MS,
    ),
    Case(
        name="postgres-log-full",
        what="no room for Postgres' log, which stops it for as long",
        fault=fill_log,
        disk=Disk("postgres", POSTGRES_MIB),
        load_s=13,
        duplicates=None,
        lost_max=CONCURRENCY,
        back_ms=BACK_MS,
    ),
    Case(
        name="redis-disk-full",
        what=f"no room for Redis' append-only file for {FULL_S:g} s",
        fault=fill_redis,
        disk=Disk("redis", REDIS_MIB),
        load_s=12,
    ),
)
