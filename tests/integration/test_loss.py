"""The event center was lost: what was in it is there again after the next looks of the hands."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import pytest
from redis.asyncio import Redis

from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands, NewHands, ref_to, task_at
from tests.fix_lanes import Lanes, NewCenter
from tests.fix_sessions import Sessions
from wheel_timer import signal
from wheel_timer.database import Database
from wheel_timer.embedded import EmbeddedRedis
from wheel_timer.errors import DatabaseUnavailable
from wheel_timer.losses import FED_MS
from wheel_timer.store.claim import claim
from wheel_timer.store.submit import submit
from wheel_timer.task import NewTask

REASONS: Final = "SELECT array_agg(reason) FROM timer_requeue"


@pytest.fixture
async def knowing(hands: Hands) -> Hands:
    """The leader, which has seen this event center before."""
    await hands.sweep.tick()
    return hands


async def fill(hands: Hands, db: Database, clock: DatabaseClock) -> list[NewTask]:
    """A fresh task and a near one, both published; the near one's row is a published one."""
    now_ms = clock.freeze()
    await hands.serve()
    tasks = [task_at(now_ms + 2_500), task_at(now_ms)]
    await submit(db, 0, tasks)
    clock.advance(2_500)
    await hands.serve()
    return tasks


async def flushed(lanes: Lanes, client: Redis, new_center: NewCenter) -> None:
    await lanes.lose()


async def restarted(lanes: Lanes, client: Redis, new_center: NewCenter) -> None:
    """It came back from an old copy: everything is as it was, but for the lane's last second."""
    (note,) = [key async for key in client.scan_iter(f"{lanes.prefix}:seen:*")]
    await client.hset(note, "0", "of the server before")
    await client.delete(lanes.key())


async def lane_deleted(lanes: Lanes, client: Redis, new_center: NewCenter) -> None:
    """By hand; a broker that reads finds it gone."""
    broker = new_center()
    assert len(await broker.read(["orders"], 10, 100)) == 2
    await client.delete(lanes.key())
    assert await broker.read(["orders"], 10, 100) == []


Loss = Callable[[Lanes, Redis, NewCenter], Awaitable[None]]


@pytest.mark.parametrize("lost", [flushed, restarted, lane_deleted])
async def test_what_the_event_center_lost_is_there_again_at_once(
    lost: Loss,
    knowing: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    redis_client: Redis,
    new_center: NewCenter,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    tasks = await fill(knowing, db, clock)
    expected = {task.task_id for task in tasks}
    assert set(await lanes.ids()) == expected
    await knowing.sweep.tick()
    assert await sessions.value(REASONS) == ["published"]
    await lost(lanes, redis_client, new_center)
    await knowing.sweep.tick()
    await audits_hold()
    # A second, not a visibility time.
    clock.advance(1_000)
    await knowing.serve()
    assert set(await lanes.ids()) == expected
    await knowing.sweep.tick()
    clock.advance(1_000)
    await knowing.serve()
    assert len(await lanes.ids()) == len(expected), "it was found once"
    await audits_hold()


async def test_a_leader_that_dies_while_it_recovers_leaves_the_rest_to_its_heir(
    knowing: Hands,
    new_hands: NewHands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    audits_hold: AuditsHold,
) -> None:
    tasks = await fill(knowing, db, clock)
    await lanes.lose()

    def killed() -> None:
        raise DatabaseUnavailable("of the test's own")

    signal.on("sweep.done", killed)
    with pytest.raises(DatabaseUnavailable):
        await knowing.sweep.tick()
    signal.clear()
    await audits_hold()
    await knowing.leader.resign()
    heir = new_hands()
    await heir.lead()
    await heir.sweep.tick()
    clock.advance(1_000)
    await heir.serve()
    assert set(await lanes.ids()) == {task.task_id for task in tasks}
    await audits_hold()


async def test_a_call_under_way_is_not_published_again_before_its_lease_ends(
    knowing: Hands, db: Database, clock: DatabaseClock, lanes: Lanes, audits_hold: AuditsHold
) -> None:
    tasks = await fill(knowing, db, clock)
    claims = (await claim(db, [ref_to(task) for task in tasks], [10_000] * 2)).claims
    assert len(claims) == 2
    await lanes.lose()
    await knowing.sweep.tick()
    clock.advance(5_000)
    await knowing.serve()
    assert await lanes.ids() == []
    clock.advance(15_000)
    await knowing.serve()
    assert set(await lanes.ids()) == {task.task_id for task in tasks}
    await audits_hold()


async def test_a_restart_with_everything_on_disk_is_seen_as_well(
    own_redis: EmbeddedRedis, db: Database, database_url: str, clock: DatabaseClock
) -> None:
    """The append-only file may lack the last second, and nobody can say whether it does."""
    hands = Hands(database_url, own_redis.url, "wt", visibility_s=60)
    try:
        await hands.lead()
        await hands.sweep.tick()
        assert (await hands.event_center.see(0)).is_known
        recovered: list[bool] = []
        signal.on("sweep.recovered", lambda: recovered.append(True))
        await hands.sweep.tick()
        own_redis.stop()
        own_redis.start()
        own_redis.wait_ready(20)
        assert recovered == []
        # One look may meet the connection that was cut.
        await hands.sweep.tick()
        if hands.reach.is_away:
            back = asyncio.Event()
            hands.reach.on_change(lambda _: back.set())
            async with asyncio.timeout(10):
                await back.wait()
            await hands.sweep.tick()
        assert recovered == [True]
        assert (await hands.event_center.see(0)).is_known
    finally:
        signal.clear()
        await hands.close()


async def test_brokers_see_for_some_seconds_that_a_leader_was_there(
    hands: Hands, new_center: NewCenter
) -> None:
    broker = new_center("broker")
    assert not await broker.are_fed(1)
    await hands.sweep.tick()
    assert await broker.are_fed(1)
    assert not await broker.are_fed(2), "nobody leads the second shard"
    assert 0 < await broker._redis.pttl(broker._fed_key(0)) <= FED_MS
