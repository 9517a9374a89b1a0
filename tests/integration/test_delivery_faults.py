"""Delivery when something it stands on goes: a broker, Postgres, Redis, a value."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest
from redis.asyncio import Redis

from tests.fix_delivery import BIZ_TYPE, CLUSTER, Delivery, Reached
from tests.fix_endpoint import Answer, Endpoint
from tests.fix_proxy import PostgresProxy, RedisProxy
from wheel_timer import signal
from wheel_timer.errors import DatabaseUnavailable
from wheel_timer.eventcenter import EventCenter
from wheel_timer.store.claim import claim
from wheel_timer.streams import GROUP
from wheel_timer.task import Ref

Another = Callable[..., Awaitable[Delivery]]


def ids_called(endpoint: Endpoint) -> list[str]:
    return sorted(call.task_id for call in endpoint.received)


def texts(task_ids: list[UUID]) -> list[str]:
    return sorted(str(task_id) for task_id in task_ids)


# -- stopping -------------------------------------------------------------------------------------


async def test_a_broker_that_stops_ends_its_calls_and_hands_back_the_rest(
    delivery: Delivery, another_delivery: Another, endpoint: Endpoint
) -> None:
    await delivery.configure(callback_url=endpoint.url, max_concurrency=5)
    endpoint.answer = Answer(delay_s=0.2)
    stopping = await another_delivery()
    ids = await delivery.submit(40, in_ms=100)
    await endpoint.wait_for(5)
    await stopping.stop()
    endpoint.answer = Answer()
    assert await delivery.settled(ids) == ["finished"] * 40
    assert ids_called(endpoint) == texts(ids)
    assert await delivery.rows("SELECT task_id FROM timer_attempt") == []


async def test_a_call_that_outlasts_the_drain_is_tried_again(
    delivery: Delivery, another_delivery: Another, endpoint: Endpoint
) -> None:
    endpoint.answer = Answer(fault="silence")
    (task_id,) = await delivery.submit()
    await endpoint.wait_for(1)
    await delivery.stop(drain_s=0.05)
    later = await another_delivery()
    task = await later.task(task_id)
    (attempt,) = await later.attempts(task_id)
    assert (attempt.outcome, attempt.error_class) == ("retry", "lost")
    assert (task.failures, task.lease_until) == (1, None)


async def test_told_twice_to_stop_a_broker_gives_back_what_is_in_flight(
    delivery: Delivery, another_delivery: Another, endpoint: Endpoint
) -> None:
    """No lease has to run out, and no failure is counted for it."""
    endpoint.answer = Answer(fault="silence")
    ids = await delivery.submit(5)
    await endpoint.wait_for(5)
    stopping = asyncio.create_task(delivery.stop(drain_s=60))
    await delivery.until(lambda: delivery.notifier.is_stopping)
    delivery.at_once.set()
    async with asyncio.timeout(5):
        await stopping
    endpoint.answer = Answer()
    later = await another_delivery()
    assert await later.settled(ids) == ["finished"] * 5
    assert ids_called(endpoint) == sorted(texts(ids) * 2)
    for task_id in ids:
        (attempt,) = await later.attempts(task_id)
        assert (attempt.outcome, attempt.error_class) == ("released", "lost")
        assert (await later.task(task_id)).failures == 0


async def test_a_claim_that_was_not_started_leaves_no_trace_but_its_number(
    delivery: Delivery, another_delivery: Another, endpoint: Endpoint
) -> None:
    claimed = Reached("delivery.claimed")
    (task_id,) = await delivery.submit(in_ms=250)
    await claimed.times(1)
    await delivery.stop()
    assert endpoint.received == []
    later = await another_delivery()
    assert await later.settled([task_id]) == ["finished"]
    task = await later.task(task_id)
    assert (task.attempts, task.failures) == (2, 0)
    assert await later.attempts(task_id) == []


# -- other brokers --------------------------------------------------------------------------------


async def silent_broker(
    redis_url: str, redis_prefix: str, redis_client: Redis, *, idle_ms: int = 3_600_000
) -> list[Ref]:
    """A broker that reads what is in the lane and was last heard of idle_ms ago."""
    center = EventCenter(redis_url, prefix=redis_prefix, consumer="dead", cluster_id=CLUSTER)
    refs = await center.read([BIZ_TYPE], 100, 100)
    await redis_client.zadd(f"{redis_prefix}:brokers", {"dead": 1})
    for ref in refs:
        await redis_client.xclaim(
            center.lane_key(BIZ_TYPE), GROUP, "dead", 0, [ref.entry_id], idle=idle_ms
        )
    await center.close()
    return refs


async def test_what_a_dead_broker_had_read_is_taken_over(
    resting_delivery: Delivery,
    endpoint: Endpoint,
    redis_url: str,
    redis_prefix: str,
    redis_client: Redis,
) -> None:
    ids = await resting_delivery.submit(20, in_ms=100)
    assert len(await silent_broker(redis_url, redis_prefix, redis_client)) == 20
    await resting_delivery.start()
    assert await resting_delivery.settled(ids) == ["finished"] * 20
    assert ids_called(endpoint) == texts(ids)


async def test_what_a_dead_broker_had_claimed_waits_for_its_lease(
    resting_delivery: Delivery,
    endpoint: Endpoint,
    redis_url: str,
    redis_prefix: str,
    redis_client: Redis,
) -> None:
    (task_id,) = await resting_delivery.submit()
    refs = await silent_broker(redis_url, redis_prefix, redis_client)
    claimed = await claim(resting_delivery.db, refs, [-4_000])
    (lease_until_ms,) = (one.lease_until_ms for one in claimed.claims)
    await resting_delivery.start()
    (call,) = await endpoint.wait_for(1)
    assert call.arrival_ns / 1e6 >= lease_until_ms
    assert await resting_delivery.settled([task_id]) == ["finished"]
    (lost,) = await resting_delivery.attempts(task_id)
    assert (lost.attempt, lost.outcome) == (1, "lost")
    assert call.attempt == 2


# -- a broker that stood still ---------------------------------------------------------------------


@pytest.mark.parametrize("has_connection", [True, False])
async def test_what_was_held_up_for_longer_than_its_time_is_not_called_any_more(
    has_connection: bool, delivery: Delivery, endpoint: Endpoint
) -> None:
    """Its lease may be over: the task changed, cancelled, or somebody else's."""

    def stand_still() -> None:
        signal.on("delivery.starting", lambda: None)
        time.sleep(0.3)

    await delivery.configure(callback_url=endpoint.url, timeout=0.2)
    if has_connection:
        # It lies ready, and a request goes out over it at once.
        assert await delivery.settled(await delivery.submit()) == ["finished"]
    signal.on("delivery.starting", stand_still)
    (task_id,) = await delivery.submit()
    assert await delivery.settled([task_id]) == ["finished"]
    assert [call.attempt for call in endpoint.received] == [1, 2][not has_connection :]
    # Nobody else had anything to do with it: as if it had not been claimed.
    assert await delivery.attempts(task_id) == []
    assert (await delivery.task(task_id)).failures == 0


# -- Postgres -------------------------------------------------------------------------------------


async def test_results_outlast_a_database_that_is_away(
    delivery: Delivery,
    another_delivery: Another,
    postgres_proxy: PostgresProxy,
    endpoint: Endpoint,
) -> None:
    await delivery.stop()
    calling = await another_delivery(database_url=postgres_proxy.url)
    called = Reached("delivery.called")
    endpoint.answer = Answer(delay_s=0.2)
    ids = await calling.submit(10)
    await endpoint.wait_for(10)
    await postgres_proxy.stop()
    await called.times(10)
    await postgres_proxy.heal()
    assert await calling.settled(ids) == ["finished"] * 10
    assert ids_called(endpoint) == texts(ids)


async def test_claims_go_on_after_a_database_that_was_away(
    delivery: Delivery,
    another_delivery: Another,
    postgres_proxy: PostgresProxy,
    endpoint: Endpoint,
) -> None:
    await delivery.stop()
    calling = await another_delivery(database_url=postgres_proxy.url)
    ids = await calling.submit(10, in_ms=150)
    await postgres_proxy.stop()
    await calling.until(lambda: not calling.notifier.ready())
    assert endpoint.received == []
    await postgres_proxy.heal()
    assert await calling.settled(ids) == ["finished"] * 10
    assert ids_called(endpoint) == texts(ids)


@pytest.mark.timing
async def test_a_claim_whose_reply_was_lost_comes_back_when_its_lease_ends(
    delivery: Delivery, endpoint: Endpoint
) -> None:
    def lose_the_reply() -> None:
        signal.on("delivery.claimed", lambda: None)
        raise DatabaseUnavailable("the connection broke after the claim had committed")

    await delivery.configure(callback_url=endpoint.url, timeout=0.1)
    signal.on("delivery.claimed", lose_the_reply)
    (task_id,) = await delivery.submit()
    assert await delivery.settled([task_id]) == ["finished"]
    assert [call.attempt for call in endpoint.received] == [2]
    (attempt,) = await delivery.attempts(task_id)
    assert attempt.outcome == "lost"


# -- Redis ----------------------------------------------------------------------------------------


async def test_entries_read_in_a_lost_reply_are_read_again(
    delivery: Delivery,
    another_delivery: Another,
    redis_proxy: RedisProxy,
    redis_client: Redis,
    endpoint: Endpoint,
) -> None:
    await delivery.stop()
    reading = await another_delivery(redis_url=redis_proxy.url)
    await reading.submit()
    await endpoint.wait_for(1)
    await reading.until_pending(redis_client, 0)
    publishing = await another_delivery(is_resting=True)
    redis_proxy.deaf("replies")
    ids = await publishing.submit()
    await reading.until_pending(redis_client, 1)
    await redis_proxy.cut()
    await redis_proxy.heal()
    assert await reading.settled(ids) == ["finished"]
    assert len(endpoint.received) == 2


async def test_an_acknowledgement_that_fails_makes_no_second_call(
    delivery: Delivery,
    another_delivery: Another,
    redis_proxy: RedisProxy,
    redis_client: Redis,
    endpoint: Endpoint,
) -> None:
    await delivery.stop()
    calling = await another_delivery(redis_url=redis_proxy.url)
    endpoint.answer = Answer(delay_s=0.1)
    (task_id,) = await calling.submit()
    await endpoint.wait_for(1)
    await redis_proxy.stop()
    assert await calling.settled([task_id]) == ["finished"]
    await redis_proxy.heal()
    await calling.until_pending(redis_client, 0)
    assert len(endpoint.received) == 1


async def test_a_flushed_event_center_ends_nothing(
    delivery: Delivery, redis_client: Redis, endpoint: Endpoint
) -> None:
    await delivery.submit()
    await endpoint.wait_for(1)
    await redis_client.delete(delivery.event_center.lane_key(BIZ_TYPE))
    ids = await delivery.submit(3)
    await endpoint.wait_for(4)
    assert await delivery.settled(ids) == ["finished"] * 3


async def test_near_retries_that_cannot_be_published_are_left_to_their_net(
    delivery: Delivery,
    another_delivery: Another,
    redis_proxy: RedisProxy,
    endpoint: Endpoint,
) -> None:
    await delivery.configure(callback_url=endpoint.url, retry={"ladder": [0.05]})
    await delivery.stop()
    calling = await another_delivery(redis_url=redis_proxy.url)
    settled = Reached("delivery.settled")
    endpoint.answer = Answer(500, delay_s=0.1)
    (task_id,) = await calling.submit()
    await endpoint.wait_for(1)
    await redis_proxy.stop()
    await settled.times(1)
    rows = await calling.rows("SELECT task_id, reason FROM timer_requeue")
    assert rows == [(task_id, "retry")]
    await redis_proxy.heal()
