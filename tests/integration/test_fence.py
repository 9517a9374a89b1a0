"""Submit against close, step by step: nothing falls between the writer and the hand."""

from __future__ import annotations

import asyncio

import pytest

from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import LOOKAHEAD_MS, Hands, task_at
from tests.fix_lanes import Lanes
from tests.fix_sessions import Sessions
from wheel_timer.database import Database
from wheel_timer.errors import FenceBusy
from wheel_timer.store import due as store
from wheel_timer.store.submit import submit

FENCE_HELD_BY_ALL = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


async def test_a_submitter_inside_the_fence_makes_the_tick_unfenced_and_the_next_finds_its_row(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    now_ms = clock.freeze()
    await hands.serve()
    task = task_at(now_ms + 1_600, biz_id="order 7")
    async with sessions.submitter_in_the_fence(db, task) as submitting:
        # It has read closed_to = now + 1,000 and takes its row for one that the hand will find.
        clock.advance(1_000)
        await hands.serve()
        assert await sessions.value("SELECT wheel_closed_to_v1(CAST(0 AS smallint))") == (
            now_ms + 2_000
        )
        assert hands.due.current_ms == now_ms + LOOKAHEAD_MS
        await audits_hold()
    assert (await submitting)[0].near is False
    await audits_hold()
    assert await lanes.ids() == []

    await hands.serve()
    assert await lanes.ids() == [task.task_id]
    assert hands.due.current_ms == now_ms + 2_000
    await audits_hold()
    await hands.serve()
    assert await lanes.ids() == [task.task_id]


async def test_a_submit_that_begins_after_the_close_is_near_and_has_its_net(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    now_ms = clock.freeze()
    await hands.serve()
    # The hand has gone as far as this; a plain insert here would be behind it.
    task = task_at(now_ms + LOOKAHEAD_MS)
    assert (await submit(db, 0, [task]))[0].near
    net = await sessions.row("SELECT due_at, reason FROM timer_requeue")
    assert net == (now_ms + LOOKAHEAD_MS + 2_000, "near")
    await audits_hold()


async def test_the_moment_that_is_closed_while_a_submit_waits_for_the_fence_counts(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    """closed_to is read after the lock is there, in a statement of its own."""
    now_ms = clock.freeze()
    await hands.serve()
    task = task_at(now_ms + 1_900)
    closer = await sessions.open()
    async with closer.transaction():
        await closer.execute("SELECT pg_advisory_xact_lock(wheel_lock_class('timer_pointer'), 0)")
        submitting = asyncio.create_task(submit(db, 0, [task]))
        await sessions.until_waiting("wheel_submit")
        await closer.execute("SELECT setval('timer_closed_to_0', %s)", [now_ms + 2_000])
    assert (await submitting)[0].near
    assert await sessions.value("SELECT due_at FROM timer_requeue") == now_ms + 4_000
    await audits_hold()


async def test_an_unfenced_tick_publishes_but_moves_and_rearms_nothing(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    now_ms = clock.freeze()
    await hands.serve()
    plain, near = task_at(now_ms + 1_700), task_at(now_ms + 500)
    await submit(db, 0, [plain, near])
    clock.advance(2_000)
    async with sessions.submitter_in_the_fence(db, task_at(now_ms + 9_000, biz_id="x")):
        await hands.serve()
        assert sorted(await lanes.ids()) == sorted([plain.task_id, near.task_id])
        assert hands.due.current_ms == now_ms + LOOKAHEAD_MS
        assert await sessions.row('SELECT "current_time" FROM timer_pointer') == (
            now_ms + LOOKAHEAD_MS,
        )
        assert await sessions.row("SELECT due_at, reason FROM timer_requeue") == (
            now_ms + 3_000,
            "near",
        )
        # The next unfenced one goes on from where this one was.
        await hands.serve()
        assert len(await lanes.ids()) == 2
        await audits_hold()
    # Fenced again: the range is read from its beginning, so both are published once more.
    await hands.serve()
    assert hands.due.current_ms == now_ms + 3_000
    assert len(await lanes.ids()) == 4
    await audits_hold()


@pytest.mark.parametrize("before", ["close", "barrier", "due", "requeue_due", "advance"])
async def test_a_submit_that_runs_between_two_steps_of_a_tick_is_published_or_covered(
    before: str,
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    audits_hold: AuditsHold,
) -> None:
    now_ms = clock.freeze()
    await hands.serve()
    due, near, beyond = (task_at(now_ms + ms) for ms in (1_600, 1_700, 3_100))
    await submit(db, 0, [due])
    clock.advance(1_000)
    await hands.clock.measure()
    with hands.db.gate(before) as gate:
        ticking = asyncio.create_task(hands.due.serve())
        await gate.arrived()
        clock.advance(500)
        answers = await submit(db, 0, [near, beyond])
        await audits_hold()
    await ticking
    await audits_hold()
    assert [answer.near for answer in answers] == [True, False]
    clock.advance(4_000)
    await hands.serve()
    # The near one by its net at the latest; by the tick as well where that had not read yet.
    assert {due.task_id, near.task_id, beyond.task_id} == set(await lanes.ids())
    assert (await lanes.ids()).count(due.task_id) == 1
    assert (await lanes.ids()).count(beyond.task_id) == 1
    await audits_hold()


async def test_a_barrier_that_waited_in_vain_lets_submitters_in(
    db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    now_ms = clock.freeze()
    async with sessions.submitter_in_the_fence(db, task_at(now_ms, biz_id="x")):
        with pytest.raises(FenceBusy):
            await db.execute("barrier", {"shard": 0, "wait_ms": 50})
        assert await store.pass_barrier(db, 0, 0) is False
        # Nobody waits for the fence any more: the next submit is not held up.
        assert await sessions.value(FENCE_HELD_BY_ALL) == 0
        await submit(db, 0, [task_at(now_ms)])
    await sessions.until("SELECT wheel_barrier_try_v1(CAST(0 AS smallint))")


async def test_the_barrier_holds_nothing_once_it_is_passed(
    db: Database, sessions: Sessions
) -> None:
    assert await store.pass_barrier(db, 0, 50)
    assert await sessions.value("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0


async def test_every_shard_has_a_fence_of_its_own(
    db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    async with sessions.submitter_in_the_fence(db, task_at(clock.now_ms(), biz_id="x")):
        assert await store.pass_barrier(db, 1, 0)
        assert not await store.pass_barrier(db, 0, 0)
