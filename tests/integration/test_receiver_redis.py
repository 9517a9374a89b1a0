"""Receivers that share what they have seen in Redis."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from tests.unit.test_receiver import SECRET, Handler, callback
from wheel_timer.receiver import Receiver, Redis, Seen


@pytest.fixture
def store(redis_url: str, redis_prefix: str) -> Iterator[Redis]:
    store = Redis(redis_url, prefix=redis_prefix)
    yield store
    store.close()


def test_two_receivers_handle_a_callback_once(
    store: Redis, redis_url: str, redis_prefix: str
) -> None:
    other = Redis(redis_url, prefix=redis_prefix)
    handler = Handler()
    assert Receiver(SECRET, store=store).receive(*callback(), handler).status == 204
    assert Receiver(SECRET, store=other).receive(*callback(), handler).status == 200
    assert len(handler.timers) == 1
    other.close()


async def test_a_handler_that_raised_gives_the_id_back(store: Redis) -> None:
    receiver, handler = Receiver(SECRET, store=store), Handler(RuntimeError())
    with pytest.raises(RuntimeError):
        await receiver.receive_async(*callback(), handler)
    handler.returns = None
    assert (await receiver.receive_async(*callback(), handler)).status == 204
    assert (await receiver.receive_async(*callback(), handler)).status == 200


def test_who_took_too_long_does_not_end_its_successors_mark(
    redis_url: str, redis_prefix: str
) -> None:
    store = Redis(redis_url, prefix=redis_prefix, busy_s=0.001)
    assert store.begin("id", "first") is Seen.NEW
    with redis.Redis.from_url(redis_url) as looking:
        while looking.exists(redis_prefix + "id"):
            pass
    patient = Redis(redis_url, prefix=redis_prefix)
    assert patient.begin("id", "second") is Seen.NEW
    store.give_up("id", "first")
    assert patient.begin("id", "third") is Seen.BUSY
    patient.finish("id", "second")
    store.give_up("id", "first")
    assert patient.begin("id", "third") is Seen.DONE
    store.close()
    patient.close()


def test_where_redis_is_away_nothing_counts_as_handled(redis_prefix: str) -> None:
    away = Receiver(SECRET, store=Redis("redis://127.0.0.1:1", prefix=redis_prefix))
    handler = Handler()
    with pytest.raises(redis.ConnectionError):
        away.receive(*callback(), handler)
    assert handler.timers == []
