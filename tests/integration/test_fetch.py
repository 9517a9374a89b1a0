"""Fetching from the line in Postgres: nobody gets it twice, and it comes round if nobody calls."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from broker.share import Share
from broker.takeover import TakeOver
from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import BIZ_TYPE, Hands, ref_to, task_at
from tests.fix_lanes import Lanes, NewCenter
from tests.fix_proxy import RedisProxy
from tests.fix_sessions import Sessions
from wheel_timer.database import Database
from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.store.claim import claim
from wheel_timer.store.fetch import fetch
from wheel_timer.store.settle import settle_again
from wheel_timer.store.submit import submit
from wheel_timer.task import NewTask, Ref, Result

VISIBILITY_MS: Final = 60_000
LOOKAHEAD_MS: Final = 1_000


async def fetched(db: Database, limit: int = 100) -> list[Ref]:
    return await fetch(
        db, 0, {BIZ_TYPE: limit}, visibility_ms=VISIBILITY_MS, lookahead_ms=LOOKAHEAD_MS
    )


async def be_away(hands: Hands) -> None:
    """The event center is away, and nobody looks whether it is back."""
    hands.reach.failed(EventCenterUnavailable("of the test's own"))
    await hands.reach.stop()


@pytest.fixture
async def alone(hands: Hands) -> Hands:
    """A leader that has no event center."""
    await be_away(hands)
    return hands


async def in_line(
    alone: Hands, db: Database, clock: DatabaseClock, count: int, biz_type: str = BIZ_TYPE
) -> list[NewTask]:
    """So many tasks, a millisecond apart, that the hand has put into the line."""
    now_ms = clock.freeze()
    await alone.serve()
    tasks = [task_at(now_ms + 2_500 + n, biz_type) for n in range(count)]
    await submit(db, 0, tasks)
    clock.advance(2_000)
    await alone.serve()
    return tasks


async def test_the_line_is_fetched_in_the_order_of_its_moments_and_only_once(
    alone: Hands, db: Database, clock: DatabaseClock, audits_hold: AuditsHold
) -> None:
    await in_line(alone, db, clock, 3, "others")
    tasks = await in_line(alone, db, clock, 30)
    first = {ref.task_id: ref for ref in await fetched(db, 10)}
    assert first == {
        task.task_id: ref_to(task)._replace(published_ms=clock.now_ms()) for task in tasks[:10]
    }
    await audits_hold()
    one, other = await asyncio.gather(fetched(db, 10), fetched(db, 10))
    ids = [ref.task_id for ref in (*one, *other)]
    assert len(ids) == len(set(ids))
    found = {*ids, *(ref.task_id for ref in await fetched(db))}
    assert found == {task.task_id for task in tasks[10:]}
    assert await fetched(db) == []
    await audits_hold()


async def test_what_a_broker_fetched_and_died_with_comes_round(
    alone: Hands, db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    tasks = await in_line(alone, db, clock, 3)
    assert len(await fetched(db)) == 3
    assert await sessions.row("SELECT min(due_at), min(reason) FROM timer_requeue") == (
        clock.now_ms() + VISIBILITY_MS,
        "published",
    )
    clock.advance(VISIBILITY_MS)
    await alone.serve()
    assert {ref.task_id for ref in await fetched(db)} == {task.task_id for task in tasks}
    await audits_hold()


async def test_a_retry_is_fetched_with_its_own_moment(
    alone: Hands, db: Database, clock: DatabaseClock, audits_hold: AuditsHold
) -> None:
    (task,) = await in_line(alone, db, clock, 1)
    clock.advance(1_000)
    (mine,) = (await claim(db, await fetched(db), [1_000])).claims
    result = Result(
        task.task_id, task.start_time_ms, BIZ_TYPE, mine.attempt, mine.revision, "retry",
        delay_ms=5_000,
    )  # fmt: skip
    await settle_again(db, 0, [result])
    retry_ms = clock.now_ms() + 5_000
    clock.advance(4_300)
    await alone.serve()
    (ref,) = await fetched(db)
    assert (ref.start_time_ms, ref.moment_ms) == (task.start_time_ms, retry_ms)
    await audits_hold()


async def test_a_task_that_is_cancelled_or_called_meanwhile_is_refused_by_the_claim(
    alone: Hands, db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    """Both ways meet there: here the event center has brought one of them, too."""
    tasks = await in_line(alone, db, clock, 2)
    clock.advance(1_000)
    refs = await fetched(db)
    assert len((await claim(db, [ref_to(tasks[0])], [1_000])).claims) == 1
    canceller = await sessions.open()
    await canceller.execute(
        "UPDATE timer_task SET status = 3, finish_time = 0, expire_at = 0 WHERE task_id = %s",
        [tasks[1].task_id],
    )
    found = await claim(db, refs, [1_000] * 2)
    assert found.claims == []
    assert [task_id for task_id, _ in found.leased] == [tasks[0].task_id]


async def test_the_hand_sweeps_what_lay_unread_in_the_lanes_when_redis_went_away(
    hands: Hands, db: Database, clock: DatabaseClock, lanes: Lanes, audits_hold: AuditsHold
) -> None:
    await hands.sweep.tick()
    (task,) = await in_line(hands, db, clock, 1)
    assert await lanes.ids() == [task.task_id]
    await be_away(hands)
    await hands.sweep.tick()
    clock.advance(500)
    await hands.serve()
    assert [ref.task_id for ref in await fetched(db)] == [task.task_id]
    await audits_hold()


async def test_a_broker_that_begins_without_redis_shares_the_work_as_postgres_counts(
    new_center: NewCenter, redis_proxy: RedisProxy
) -> None:
    await redis_proxy.stop()
    shares: list[Share] = []
    told = asyncio.Event()

    def shared(share: Share) -> None:
        shares.append(share)
        told.set()

    takeover = TakeOver(
        event_center=new_center("begins", url=redis_proxy.url),
        lanes=list,
        lanes_with_slots=list,
        deliver=lambda _: None,
        shared=shared,
        alive=lambda: 3,
        lives=lambda: True,
    )
    running = asyncio.create_task(takeover.run())
    async with asyncio.timeout(10):
        await told.wait()
    takeover.stop()
    await running
    assert shares[0] == Share(3)
    # Nobody has a place yet: a lane that one call fills is not left without any.
    assert shares[0].of(1, "orders") == 1
