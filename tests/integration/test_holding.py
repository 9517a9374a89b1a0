"""Held lanes: paused, braked, breaker open. What waits is neither called nor lost nor piled up."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from broker.holding import Holding
from broker.lane import Lane
from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_delivery import BIZ_TYPE, Delivery
from tests.fix_endpoint import Answer, Endpoint
from tests.fix_hands import Hands
from tests.fix_lanes import Lanes
from wheel_timer.store.fetch import fetch
from wheel_timer.store.hold import hold
from wheel_timer.task import Ref

Another = Callable[..., Awaitable[Delivery]]
HOUR_MS = 3_600_000
MINUTE_MS = 60_000


async def until_held(delivery: Delivery, count: int) -> None:
    async with asyncio.timeout(10):
        while len(await delivery.held()) != count:  # noqa: ASYNC110 - a table tells nobody
            await asyncio.sleep(0.02)


@pytest_asyncio.fixture
async def turning(hands: Hands) -> AsyncIterator[Hands]:
    """A daemon whose due hand turns by itself."""

    async def turn() -> None:
        while True:
            await hands.clock.measure()
            tick = await hands.due.tick()
            await asyncio.sleep(min(0.1, tick.next_s))

    task = asyncio.create_task(turn())
    yield hands
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def ids_called(endpoint: Endpoint) -> list[str]:
    return sorted(call.task_id for call in endpoint.received)


# -- pause and brake ------------------------------------------------------------------------------


async def test_what_is_due_while_paused_is_called_once_after_everything_was_started_anew(
    delivery: Delivery,
    another_delivery: Another,
    endpoint: Endpoint,
    turning: Hands,
    lanes: Lanes,
    audits_hold: AuditsHold,
) -> None:
    await delivery.configure(callback_url=endpoint.url, paused=True)
    ids = [*await delivery.submit(600), *await delivery.submit(600, in_ms=1_000)]
    await until_held(delivery, 1_200)
    rows = await delivery.held()
    now_ms = delivery.clock.now_ms()
    assert all(now_ms + 50 * MINUTE_MS < due_at for _, due_at in rows)
    assert len({due_at // MINUTE_MS for _, due_at in rows}) > 5
    await delivery.until(lambda: delivery.notifier.lane(BIZ_TYPE).depth == 0)
    # Only now and then one that was published twice is still on its way.
    async with asyncio.timeout(10):
        while await lanes.ids():  # noqa: ASYNC110 - Redis tells nobody
            await asyncio.sleep(0.05)
    await audits_hold()
    await delivery.stop()
    await lanes.lose()
    heir = await another_delivery()
    await heir.configure(callback_url=endpoint.url)
    await endpoint.wait_for(1_200, timeout_s=20)
    await heir.settled(ids)
    assert ids_called(endpoint) == sorted(map(str, ids))
    await audits_hold()


async def test_a_pause_stops_new_calls_at_every_broker_within_two_seconds(
    delivery: Delivery, another_delivery: Another, endpoint: Endpoint
) -> None:
    endpoint.answer = Answer(delay_s=0.05)
    await delivery.configure(callback_url=endpoint.url, max_concurrency=4)
    await another_delivery()
    ids = await delivery.submit(400)
    await endpoint.wait_for(10)
    await delivery.configure(callback_url=endpoint.url, max_concurrency=4, paused=True)
    await asyncio.sleep(2)
    called = len(endpoint.received)
    await asyncio.sleep(0.3)
    assert len(endpoint.received) == called < 400
    statuses = await delivery.statuses(ids)
    assert statuses.count("finished") == called
    ((leases,),) = await delivery.rows(
        "SELECT count(*) FROM timer_task WHERE lease_until IS NOT NULL AND status = 0"
    )
    assert leases == 0


async def test_the_brake_stops_and_lets_go_all_lanes(
    delivery: Delivery, endpoint: Endpoint, turning: Hands
) -> None:
    await delivery.configure("refunds", callback_url=endpoint.url)
    await delivery.registry.pull_brake("an incident", actor="local")
    ids = [*await delivery.submit(20), *await delivery.submit(20, biz_type="refunds")]
    await until_held(delivery, 40)
    assert endpoint.received == []
    await delivery.registry.pull_brake(None, actor="local")
    await endpoint.wait_for(40)
    assert ids_called(endpoint) == sorted(map(str, ids))


# -- the breaker ----------------------------------------------------------------------------------


async def test_what_a_tasks_own_url_answers_holds_nobody_else(
    delivery: Delivery, endpoint: Endpoint
) -> None:
    await delivery.configure(
        callback_url=endpoint.url,
        allow_callback_override=True,
        retry={"ladder": [7_200]},
        breaker={"consecutive": 3, "open_for": 300},
    )
    # Nobody listens there.
    await delivery.submit(9, callback=b'{"url": "http://127.0.0.1:1/"}')
    await delivery.until_row("SELECT FROM timer_task WHERE failures = 1 HAVING count(*) = 9")
    assert delivery.notifier.lane(BIZ_TYPE).gate.breaker.is_closed
    ids = await delivery.submit(1)
    assert await delivery.settled(ids) == ["finished"]


async def test_an_open_breaker_spends_attempts_on_probes_only_and_closes_on_success(
    delivery: Delivery, endpoint: Endpoint, clock: DatabaseClock, turning: Hands
) -> None:
    await delivery.configure(
        callback_url=endpoint.url,
        max_concurrency=1,
        retry={"ladder": [7_200]},
        breaker={"consecutive": 3, "open_for": 5},
    )
    endpoint.answer = Answer(500)
    ids = await delivery.submit(50)
    await endpoint.wait_for(3)
    lane = delivery.notifier.lane(BIZ_TYPE)
    await delivery.until(lambda: not lane.gate.breaker.is_closed)
    await asyncio.sleep(0.5)
    assert len(endpoint.received) == 3
    clock.set(clock.now_ms() + 6_000)
    await endpoint.wait_for(4)
    await asyncio.sleep(0.5)
    assert len(endpoint.received) == 4
    endpoint.answer = Answer(200)
    clock.set(clock.now_ms() + 11_000)
    await endpoint.wait_for(50, timeout_s=20)
    # Those that had failed come within a minute; all others are done.
    await delivery.until_row("SELECT FROM timer_task WHERE status = 0 HAVING count(*) <= 4")
    ((last,),) = await delivery.rows("SELECT max(next_at) FROM timer_task WHERE status = 0")
    assert last is None or last <= clock.now_ms() + MINUTE_MS
    clock.set(clock.now_ms() + MINUTE_MS + 5_000)
    assert set(await delivery.settled(ids)) == {"finished"}
    ((attempts,),) = await delivery.rows("SELECT sum(failures) FROM timer_task")
    assert attempts == 4


async def test_what_is_being_put_away_when_its_lane_opens_comes_back(
    delivery: Delivery, endpoint: Endpoint, turning: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_at_it, may_go_on = asyncio.Event(), asyncio.Event()

    async def slowly(*arguments: Any) -> None:
        is_at_it.set()
        await may_go_on.wait()
        await hold(*arguments)

    monkeypatch.setattr("broker.holding.hold", slowly)
    await delivery.configure(callback_url=endpoint.url, paused=True)
    # By now the hand is past what it found: it publishes no second reference of this task.
    now_ms = int(delivery.clock.now_ms())
    await delivery.until_row(f'SELECT FROM timer_pointer WHERE "current_time" >= {now_ms}')
    ids = await delivery.submit(1)
    await is_at_it.wait()
    # Whoever looks for what is held now finds nothing yet.
    monkeypatch.setattr(Holding, "look", lambda _: None)
    await delivery.configure(callback_url=endpoint.url)
    may_go_on.set()
    await endpoint.wait_for(1)
    assert await delivery.settled(ids) == ["finished"]


async def test_what_one_broker_finds_out_lets_the_others_probe_at_once(
    delivery: Delivery, another_delivery: Another, endpoint: Endpoint, turning: Hands
) -> None:
    await delivery.configure(
        callback_url=endpoint.url,
        max_concurrency=2,
        retry={"ladder": [7_200]},
        breaker={"consecutive": 3, "open_for": 300},
    )
    another = await another_delivery()
    both = (delivery, another)
    await delivery.until(lambda: all(slots(one) == 1 for one in both))
    endpoint.answer = Answer(500)
    ids = await delivery.submit(200)
    breakers = [one.notifier.lane(BIZ_TYPE).gate.breaker for one in both]
    await delivery.until(lambda: not any(breaker.is_closed for breaker in breakers))
    await delivery.until_row("SELECT FROM timer_requeue HAVING count(*) >= 150")
    endpoint.answer = Answer(200)
    # The five minutes of one of them are over.
    assert breakers[0].heard(delivery.clock.now_ms(), delivery.clock.now_ms())
    delivery.notifier._try_endpoint(delivery.notifier.lane(BIZ_TYPE))
    # The other one may find nothing left to probe with: half-open is as far as it gets then.
    await delivery.until(
        lambda: not any(breaker.is_open(delivery.clock.now_ms()) for breaker in breakers),
        timeout_s=5,
    )
    await delivery.until_row("SELECT FROM timer_task WHERE status = 0 HAVING count(*) <= 8")
    assert len(await delivery.statuses(ids)) == 200


async def test_what_was_held_comes_back_beside_what_keeps_coming(
    delivery: Delivery, endpoint: Endpoint, turning: Hands
) -> None:
    """What is read ahead of its moment must not pass for work enough."""
    await delivery.configure(callback_url=endpoint.url, rate_limit=100.0, paused=True)
    held = await delivery.submit(200)
    await until_held(delivery, 200)
    coming = [await delivery.submit(10, in_ms=1_500 + 250 * n) for n in range(30)]
    await delivery.configure(callback_url=endpoint.url, rate_limit=100.0)
    await delivery.settled(held)
    assert "pending" in await delivery.statuses(coming[-1])


async def test_retries_are_recalled_by_a_probe_that_comes_while_nothing_is_held(
    delivery: Delivery, endpoint: Endpoint, turning: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    has_fetched = asyncio.Event()

    async def fetch_and_tell(*arguments: Any, **named: Any) -> list[Ref]:
        refs = await fetch(*arguments, **named)
        has_fetched.set()
        return refs

    monkeypatch.setattr("broker.holding.fetch", fetch_and_tell)
    await delivery.configure(
        callback_url=endpoint.url,
        retry={"ladder": [7_200]},
        breaker={"consecutive": 3, "open_for": 300},
    )
    endpoint.answer = Answer(500)
    await delivery.submit(3)
    lane = delivery.notifier.lane(BIZ_TYPE)
    await delivery.until(lambda: not lane.gate.breaker.is_closed)
    await delivery.until_row("SELECT FROM timer_requeue WHERE reason = 'retry' HAVING count(*) = 3")
    endpoint.answer = Answer(200)
    has_fetched.clear()
    assert lane.gate.breaker.heard(delivery.clock.now_ms(), delivery.clock.now_ms())
    delivery.notifier._try_endpoint(lane)
    await has_fetched.wait()
    await delivery.submit(1)
    soon_ms = int(delivery.clock.now_ms()) + MINUTE_MS + 10_000
    await delivery.until_row(
        "SELECT FROM timer_requeue WHERE reason = 'retry'"
        f" AND due_at < {soon_ms} HAVING count(*) = 3"
    )


async def test_a_look_that_breaks_does_not_end_the_looking(resting_delivery: Delivery) -> None:
    looks: list[int] = []

    def lanes() -> dict[str, Lane]:
        looks.append(1)
        if len(looks) == 1:
            raise RuntimeError("broken")
        return {}

    holding = Holding(
        db=resting_delivery.db,
        clock=resting_delivery.clock,
        shards=1,
        visibility_ms=MINUTE_MS,
        lookahead_ms=1_000,
        lanes=lanes,
        acknowledge=lambda refs: None,
        emptied=lambda lane: None,
        deliver=lambda refs, not_before_ms: None,
    )
    running = asyncio.create_task(holding.run())
    await resting_delivery.until(lambda: len(looks) == 1)
    holding.look()
    await resting_delivery.until(lambda: len(looks) == 2)
    await holding.stop()
    await running


async def test_three_hours_of_outage_kill_no_task_and_keep_no_new_one_waiting(
    delivery: Delivery,
    endpoint: Endpoint,
    clock: DatabaseClock,
    turning: Hands,
    audits_hold: AuditsHold,
) -> None:
    await delivery.configure(callback_url=endpoint.url)
    endpoint.answer = Answer(503)
    ids = await delivery.submit(300)
    lane = delivery.notifier.lane(BIZ_TYPE)
    await delivery.until(lambda: not lane.gate.breaker.is_closed)
    for _ in range(6):
        clock.advance(30 * MINUTE_MS)
        await delivery.clock.measure()
        ids += await delivery.submit(10)
        await asyncio.sleep(0.1)
    endpoint.answer = Answer(200)
    clock.advance(6 * MINUTE_MS)
    await delivery.until(lambda: lane.gate.breaker.is_closed)
    (fresh,) = await delivery.submit()
    assert await delivery.settled([fresh]) == ["finished"]
    clock.advance(MINUTE_MS + 5_000)
    assert set(await delivery.settled(ids)) == {"finished"}
    ((failures,),) = await delivery.rows("SELECT max(failures) FROM timer_task")
    assert failures <= 5
    await audits_hold()


# -- concurrency ----------------------------------------------------------------------------------


async def test_max_concurrency_holds_over_all_brokers_together(
    delivery: Delivery, another_delivery: Another, endpoint: Endpoint
) -> None:
    await delivery.configure(callback_url=endpoint.url, max_concurrency=1)
    another = await another_delivery()
    both = (delivery, another)
    await delivery.until(lambda: sum(slots(one) for one in both) == 1)
    endpoint.answer = Answer(delay_s=0.01)
    ids = await delivery.submit(60)
    await endpoint.wait_for(60)
    assert set(await delivery.settled(ids)) == {"finished"}
    at_ns = sorted(call.arrival_ns for call in endpoint.received)
    # The next one begins only after the last was answered.
    assert min(b - a for a, b in itertools.pairwise(at_ns)) > 9_000_000


async def test_references_of_a_lane_go_to_the_broker_that_has_its_slot(
    delivery: Delivery, another_delivery: Another, endpoint: Endpoint, redis_client: Redis
) -> None:
    await delivery.configure(callback_url=endpoint.url, max_concurrency=1)
    await delivery.until(lambda: slots(delivery) == 1)
    ids = await delivery.submit(30, in_ms=1_400)
    await delivery.until_pending(redis_client, 30)
    # One of them has no slot from now on, whichever it is.
    await another_delivery()
    assert set(await delivery.settled(ids)) == {"finished"}
    assert ids_called(endpoint) == sorted(map(str, ids))


def slots(delivery: Delivery) -> int:
    return delivery.notifier.lane(BIZ_TYPE).slots
