"""The tests' own tools do what their docstrings say."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError

from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import task_at
from tests.fix_proxy import PostgresProxy, RedisProxy
from wheel_timer.database import Database
from wheel_timer.store.submit import submit


async def test_each_test_has_a_migrated_database_of_its_own(database_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(database_url) as connection:
        cursor = await connection.execute("SELECT count(*) FROM timer_task")
        assert await cursor.fetchone() == (0,)


def test_the_clock_can_be_set_frozen_advanced_and_cleared(clock: DatabaseClock) -> None:
    real_ms = clock.now_ms()
    clock.freeze(1_000_000_000_000)
    assert clock.now_ms() == 1_000_000_000_000
    assert clock.advance(1_500) == 1_000_000_001_500
    assert clock.now_ms() == 1_000_000_001_500
    clock.set(2_000_000_000_000)
    assert 2_000_000_000_000 <= clock.now_ms() < 2_000_000_060_000
    clock.clear()
    assert real_ms <= clock.now_ms() < real_ms + 60_000


async def test_audits_that_do_not_hold_say_which(
    database_url: str, db: Database, clock: DatabaseClock, audits_hold: AuditsHold
) -> None:
    await submit(db, 0, [task_at(clock.now_ms())])
    await audits_hold()
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        hands = 'UPDATE timer_pointer SET sweep_time = %s, "current_time" = %s'
        ahead_ms = clock.now_ms() + 60_000
        await connection.execute(hands, [ahead_ms, ahead_ms])
        with pytest.raises(AssertionError, match="disorder"):
            await audits_hold()
        await connection.execute("SELECT setval('timer_closed_to_0', %s)", [ahead_ms])
        await connection.execute("DELETE FROM timer_requeue")
        with pytest.raises(AssertionError, match=r"(?s)uncovered.*lost"):
            await audits_hold()
        await connection.execute("DELETE FROM timer_task")
        with pytest.raises(AssertionError, match="ledger_balance"):
            await audits_hold()


async def test_a_stopped_proxy_refuses_and_a_healed_one_serves(
    postgres_proxy: PostgresProxy,
) -> None:
    async with await psycopg.AsyncConnection.connect(postgres_proxy.url) as connection:
        await connection.execute("SELECT 1")
        await postgres_proxy.stop()
        with pytest.raises(psycopg.OperationalError):
            await connection.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError):
        await psycopg.AsyncConnection.connect(postgres_proxy.url)
    await postgres_proxy.heal()
    async with await psycopg.AsyncConnection.connect(postgres_proxy.url) as connection:
        await connection.execute("SELECT 1")


async def test_a_deaf_proxy_holds_replies_back_until_it_is_healed(
    redis_proxy: RedisProxy, redis_client: Redis, redis_prefix: str
) -> None:
    client = Redis.from_url(redis_proxy.url)
    await client.ping()
    redis_proxy.deaf("replies")
    call = asyncio.ensure_future(client.set(f"{redis_prefix}:held", "1"))
    async with asyncio.timeout(5):
        while await redis_client.get(f"{redis_prefix}:held") is None:
            assert not call.done()
    assert not call.done()
    await redis_proxy.heal()
    assert await call
    await client.aclose()


async def test_a_cut_resets_open_connections_only(redis_proxy: RedisProxy) -> None:
    client = Redis.from_url(redis_proxy.url, retry=Retry(NoBackoff(), 0))
    await client.ping()
    assert redis_proxy.connections == 1
    await redis_proxy.cut()
    with pytest.raises(RedisConnectionError):
        await client.ping()
    assert await client.ping()
    await client.aclose()
