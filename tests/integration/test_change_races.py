"""Changes of mind against everybody who moves the same task, step by step and all at once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from psycopg import AsyncConnection

from broker.changer import Changer, Wish
from tests.fix_audits import AuditsHold
from tests.fix_change import HOUR_MS, TIMEOUT_MS, claimed, one, result_of, row_of
from tests.fix_clock import DatabaseClock
from tests.fix_delivery import Delivery
from tests.fix_endpoint import Answer, Endpoint
from tests.fix_hands import Hands, ref_to, task_at
from tests.fix_lanes import Lanes
from tests.fix_sessions import Sessions
from wheel_timer.database import STATEMENT_TIMEOUT_S, Database, Rows, run
from wheel_timer.store.change import Change
from wheel_timer.store.claim import claim
from wheel_timer.store.settle import settle_again, settle_final
from wheel_timer.store.submit import submit
from wheel_timer.store.task import attempts
from wheel_timer.task import NewTask, Status
from wheel_timer.wheel import new_task_id

NEW: Final = {"has_data": True, "biz_data": b"new"}
REQUEUED: Final = "SELECT array_agg(array[start_time, due_at]) FROM timer_requeue"


class Uncommitted(Database):
    """The store's functions in a transaction that stays open, on a session of its own."""

    def __init__(self, session: AsyncConnection[Any]) -> None:
        self._session = session

    async def fetch(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout_s: float = STATEMENT_TIMEOUT_S,
    ) -> Rows:
        return await run(self._session, name, params, timeout_s)


@asynccontextmanager
async def uncommitted(sessions: Sessions) -> AsyncIterator[Database]:
    """What is done by it commits when the block is left. The fence gives it a second."""
    session = await sessions.open()
    async with session.transaction():
        yield Uncommitted(session)


@pytest.fixture
async def due(db: Database, clock: DatabaseClock) -> NewTask:
    """A task that is due now; the clock stands."""
    task = task_at(clock.freeze(), biz_data=b"old")
    await submit(db, 0, [task])
    return task


async def test_a_cancel_that_meets_a_claim_about_to_commit_comes_too_late(
    db: Database, due: NewTask, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    async with uncommitted(sessions) as broker:
        assert (await claim(broker, [ref_to(due)], [TIMEOUT_MS])).claims
        cancelling = asyncio.create_task(one(db, due, "cancel"))
        await sessions.until_waiting("wheel_change")
    assert (await cancelling).verdict == "delivering"
    await audits_hold()


async def test_a_claim_that_meets_a_cancel_about_to_commit_gets_nothing(
    db: Database, due: NewTask, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    async with uncommitted(sessions) as business:
        assert (await one(business, due, "cancel")).verdict == "done"
        claiming = asyncio.create_task(claim(db, [ref_to(due)], [TIMEOUT_MS]))
        await sessions.until_waiting("wheel_claim")
    assert (await claiming).claims == []
    await audits_hold()


@pytest.mark.parametrize("to_ms", [0, HOUR_MS])
async def test_a_claim_that_meets_a_move_about_to_commit_gets_nothing(
    to_ms: int, db: Database, due: NewTask, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    """Once from its home, once from a place that is no more."""
    place = due.start_time_ms
    if to_ms:
        place += 1
        await one(db, due, "patch", to_time_ms=place)
    there = NewTask(due.task_id, place, due.biz_type)
    async with uncommitted(sessions) as business:
        await one(business, due, "patch", to_time_ms=due.start_time_ms + HOUR_MS)
        claiming = asyncio.create_task(claim(db, [ref_to(there)], [TIMEOUT_MS]))
        await sessions.until_waiting("wheel_claim")
    assert (await claiming).claims == []
    assert (await row_of(db, due)).attempts == 0
    await audits_hold()


@pytest.mark.parametrize("outcome", ["finished", "retry"])
@pytest.mark.parametrize("settles_first", [True, False])
async def test_a_replace_against_the_settle_of_the_old_life(
    settles_first: bool,
    outcome: str,
    db: Database,
    clock: DatabaseClock,
    due: NewTask,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    mine = await claimed(db, due)

    async def settle(database: Database) -> None:
        result = result_of(mine, outcome, life=mine.life, delay_ms=60_000)
        if outcome == "finished":
            await settle_final(database, [result])
        else:
            await settle_again(database, 0, [result])

    async def replace(database: Database) -> str:
        to_ms = due.start_time_ms + HOUR_MS
        what = {"to_time_ms": to_ms, "has_traceparent": True, **NEW}
        return (await one(database, due, "replace", **what)).verdict

    async with uncommitted(sessions) as first:
        if settles_first:
            await settle(first)
            second: asyncio.Task[Any] = asyncio.create_task(replace(db))
            await sessions.until_waiting("wheel_change")
        else:
            verdict = await replace(first)
            second = asyncio.create_task(settle(db))
            await sessions.until_waiting("wheel_settle")
    if settles_first:
        verdict = await second
    await second
    row = await row_of(db, due)
    assert (row.status, row.biz_data, row.failures) == (Status.PENDING, b"new", 0)
    assert row.start_time == due.start_time_ms + HOUR_MS
    is_retried = settles_first and outcome == "retry"
    assert row.life == (1 if is_retried else 2)
    assert verdict == ("revived" if settles_first and outcome == "finished" else "done")
    kept = [past.outcome for past in await attempts(db, due.task_id)]
    assert kept == (["retry"] if is_retried else [] if settles_first else ["superseded"])
    assert await sessions.value("SELECT count(*) FROM timer_requeue") == 0
    await audits_hold()


async def test_a_move_inside_the_fence_is_found_by_the_hand(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    """It has read closed_to and takes its new place for one that the hand will come to."""
    now_ms = clock.freeze()
    task = task_at(now_ms + HOUR_MS)
    await submit(db, 0, [task])
    await hands.serve()
    async with uncommitted(sessions) as business:
        moved = await one(business, task, "patch", to_time_ms=now_ms + 1_600)
        assert not moved.is_near
        clock.advance(1_000)
        await hands.serve()
        assert await lanes.ids() == []
    await audits_hold()
    await hands.serve()
    assert await lanes.ids() == [task.task_id]
    await audits_hold()


async def test_a_move_that_waits_while_its_moment_is_closed_is_near(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    now_ms = clock.freeze()
    task = task_at(now_ms + HOUR_MS)
    await submit(db, 0, [task])
    await hands.serve()
    closer = await sessions.open()
    async with closer.transaction():
        await closer.execute("SELECT pg_advisory_xact_lock(wheel_lock_class('timer_pointer'), 0)")
        moving = asyncio.create_task(one(db, task, "patch", to_time_ms=now_ms + 1_900))
        await sessions.until_waiting("wheel_change")
        await closer.execute("SELECT setval('timer_closed_to_0', %s)", [now_ms + 2_000])
    assert (await moving).is_near
    assert await sessions.value(REQUEUED) == [[now_ms + 1_900, now_ms + 4_000]]
    await audits_hold()


@pytest.mark.parametrize("to_ms", [HOUR_MS, -HOUR_MS])
@pytest.mark.parametrize("sweeps_first", [True, False])
async def test_a_move_against_the_sweep_leaves_no_row_for_the_old_place(
    sweeps_first: bool,
    to_ms: int,
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    now_ms = clock.freeze()
    task = task_at(now_ms + 5_000)
    await submit(db, 0, [task])
    clock.advance(5_000)
    await hands.serve()
    to_time_ms = now_ms + to_ms
    if sweeps_first:
        pointer = await sessions.open()
        async with pointer.transaction():
            await pointer.execute("SELECT FROM timer_pointer FOR UPDATE")
            sweeping = asyncio.create_task(hands.sweep.sweep_to(hands.due.current_ms))
            await sessions.until_waiting("wheel_sweep")
            moving = asyncio.create_task(one(db, task, "patch", to_time_ms=to_time_ms))
            await sessions.until_waiting("wheel_change")
        await asyncio.gather(sweeping, moving)
    else:
        async with uncommitted(sessions) as business:
            await one(business, task, "patch", to_time_ms=to_time_ms)
            sweeping = asyncio.create_task(hands.sweep.sweep_to(hands.due.current_ms))
            await sessions.until_waiting("wheel_sweep")
        await sweeping
    requeued = await sessions.value("SELECT array_agg(start_time) FROM timer_requeue")
    assert requeued == (None if to_ms > 0 else [to_time_ms])
    await audits_hold()


@pytest.mark.parametrize("to_ms", [HOUR_MS, -HOUR_MS])
async def test_a_move_between_a_publish_and_its_rearm_is_not_undone(
    to_ms: int,
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    """The hand has published the old place by the requeue row that the move has changed."""
    now_ms = clock.freeze()
    task = task_at(now_ms)
    await submit(db, 0, [task])
    clock.advance(2_000)
    with hands.db.gate("rearm") as rearm:
        serving = asyncio.create_task(hands.serve())
        await rearm.arrived()
        assert set(await lanes.ids()) == {task.task_id}
        await one(db, task, "patch", to_time_ms=now_ms + to_ms)
    await serving
    requeued = await sessions.value("SELECT array_agg(start_time) FROM timer_requeue")
    assert requeued == (None if to_ms > 0 else [now_ms + to_ms])
    await audits_hold()
    assert (await claim(db, [ref_to(task)], [TIMEOUT_MS])).claims == []


async def test_a_hundred_releases_of_one_task_spend_nothing(
    db: Database, due: NewTask, clock: DatabaseClock, audits_hold: AuditsHold
) -> None:
    for _ in range(100):
        mine = await claimed(db, due, clock.now_ms())
        await settle_again(db, 0, [result_of(mine, "released", delay_ms=1_000)])
        clock.advance(1_000)
    row = await row_of(db, due)
    assert (row.attempts, row.failures, row.life, row.revision) == (100, 0, 1, 1)
    await audits_hold()
    mine = await claimed(db, due, clock.now_ms())
    await settle_final(db, [result_of(mine, "finished")])
    assert (await row_of(db, due)).status == Status.FINISHED


async def test_the_late_success_of_an_old_body_does_not_finish_the_new_one(
    delivery: Delivery, endpoint: Endpoint, audits_hold: AuditsHold
) -> None:
    """Frozen in its call, replaced, thawed: the broker's 200 is for a life that is over."""
    endpoint.answer = Answer(delay_s=1.0)
    (task_id,) = await delivery.submit(biz_data=b"old")
    await endpoint.wait_for(1)
    endpoint.answer = Answer()
    task = await delivery.task(task_id)
    there = NewTask(task_id, task.start_time, task.biz_type)
    to_ms = int(delivery.clock.now_ms()) + 1_500
    what = {"to_time_ms": to_ms, "has_traceparent": True, **NEW}
    changed = await one(delivery.db, there, "replace", **what)
    assert (changed.verdict, changed.is_near) == ("done", True)
    await delivery.event_center.publish_direct(
        [ref_to(there)._replace(start_time_ms=to_ms, moment_ms=to_ms)]
    )
    calls = await endpoint.wait_for(2)
    assert [call.body for call in calls] == [b"old", b"new"]
    assert [call.webhook_id for call in calls] == [str(task_id), f"{task_id}-r2"]
    assert await delivery.settled([task_id]) == ["finished"]
    row = await delivery.task(task_id)
    assert (row.life, row.revision, row.attempts, row.biz_data) == (2, 2, 2, b"new")
    assert [(p.outcome, p.life) for p in await delivery.attempts(task_id)] == [("superseded", 1)]
    await audits_hold()


async def test_of_a_cancel_and_the_delivery_exactly_one_wins_and_the_answer_says_which(
    delivery: Delivery, endpoint: Endpoint, audits_hold: AuditsHold
) -> None:
    """Around the moment of the claim, some 12 ms ahead, and after it."""
    dice = random.Random(5)
    changer = Changer(db=delivery.db, event_center=delivery.event_center, clock=delivery.clock)
    begin_ms = int(delivery.clock.now_ms()) + 300
    tasks = []
    for n in range(400):
        moment_ms = begin_ms + n * 3
        tasks.append(NewTask(new_task_id(moment_ms), moment_ms, "orders"))
    await delivery.submit(tasks)

    async def cancel(task: NewTask) -> str:
        # Some come late, so that the delivery wins a part of them on a busy machine, too.
        latest_ms = 200 if dice.random() < 0.25 else 5
        at_ms = task.start_time_ms + dice.uniform(-25, latest_ms)
        await asyncio.sleep(max(0.0, (at_ms - delivery.clock.now_ms()) / 1000))
        return (await changer.change(Wish(Change(task.task_id, "cancel")))).verdict

    verdicts = await asyncio.gather(*map(cancel, tasks))
    statuses = await delivery.settled([task.task_id for task in tasks])
    called = {call.task_id for call in endpoint.received}
    for task, verdict, status in zip(tasks, verdicts, statuses, strict=True):
        was_called = str(task.task_id) in called
        if verdict == "done":
            assert (status, was_called) == ("cancelled", False)
        else:
            assert verdict in ("delivering", "settled")
            assert (status, was_called) == ("finished", True)
    assert "done" in verdicts
    assert {"delivering", "settled"} & set(verdicts)
    await changer.stop()
    await audits_hold()
