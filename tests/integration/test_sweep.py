"""The sweep hand: what was published and never settled gets a requeue row; nothing else does."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands, NewHands, ref_to, task_at
from tests.fix_lanes import Lanes
from tests.fix_sessions import Sessions
from tests.fix_tasks import SETTLE
from wheel_timer.database import Database
from wheel_timer.errors import LeadershipLost
from wheel_timer.store.claim import claim
from wheel_timer.store.settle import settle_again, settle_final
from wheel_timer.store.submit import submit
from wheel_timer.store.sweep import PAGE_ROWS
from wheel_timer.task import Claim, NewTask, Result

ROWS: Final = "SELECT count(*) FROM timer_requeue"
SWEPT: Final = "SELECT sweep_time FROM timer_pointer"


async def published(
    hands: Hands, db: Database, clock: DatabaseClock, tasks: int = 1, *, spread_ms: int = 0
) -> list[NewTask]:
    """Plain tasks that the hand has published; the clock stands where they are due."""
    now_ms = clock.freeze()
    await hands.serve()
    made = [task_at(now_ms + 2_000 + spread_ms * n // tasks) for n in range(tasks)]
    for first in range(0, tasks, 1_000):
        await submit(db, 0, made[first : first + 1_000])
    clock.freeze(now_ms + 2_000 + spread_ms)
    await hands.serve()
    return made


async def settle(db: Database, mine: Claim, outcome: str, delay_ms: int = 0) -> None:
    result = Result(
        mine.task_id, mine.start_time_ms, "orders", mine.attempt, mine.revision, outcome,
        delay_ms=delay_ms,
    )  # fmt: skip
    if outcome == "finished":
        await settle_final(db, [result])
    else:
        await settle_again(db, 0, [result])


async def test_what_the_event_center_lost_is_found_and_published_again(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    (task,) = await published(hands, db, clock)
    assert await lanes.ids() == [task.task_id]
    await lanes.lose()
    assert await hands.sweep.sweep_to(hands.due.current_ms) == 1
    assert await sessions.row("SELECT due_at, reason FROM timer_requeue") == (
        hands.due.current_ms + 1,
        "sweep",
    )
    await audits_hold()
    clock.advance(1_000)
    await hands.serve()
    assert await lanes.ids() == [task.task_id]
    await audits_hold()


async def test_a_healthy_lane_is_swept_without_a_trace(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    tasks = await published(hands, db, clock, 2)
    finished, retried = (await claim(db, [ref_to(t) for t in tasks], [1000, 1000])).claims
    await settle(db, finished, "finished")
    await settle(db, retried, "retry", delay_ms=3_600_000)
    before = await sessions.row("SELECT due_at, reason FROM timer_requeue")
    assert await hands.sweep.sweep_to(hands.due.current_ms) == 0
    assert await sessions.row("SELECT due_at, reason FROM timer_requeue") == before
    assert await sessions.value(SWEPT) == hands.due.current_ms
    await audits_hold()


async def test_a_task_in_the_middle_of_its_call_is_covered_but_not_counted_as_lost(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    (task,) = await published(hands, db, clock)
    (mine,) = (await claim(db, [ref_to(task)], [30_000])).claims
    assert await hands.sweep.sweep_to(hands.due.current_ms) == 0
    assert await sessions.value("SELECT due_at FROM timer_requeue") == mine.lease_until_ms
    await audits_hold()


@pytest.mark.parametrize("outcome", ["finished", "retry"])
async def test_a_settle_that_meets_a_sweep_about_to_commit_comes_after_it(
    outcome: str,
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    """The sweep has seen the task pending and written its row, when the settle comes."""
    (task,) = await published(hands, db, clock)
    (mine,) = (await claim(db, [ref_to(task)], [1000])).claims
    pointer = await sessions.open()
    async with pointer.transaction():
        # The sweep takes the pointer row last: with its rows written, uncommitted, it waits here.
        await pointer.execute("SELECT FROM timer_pointer FOR UPDATE")
        sweeping = asyncio.create_task(hands.sweep.sweep_to(hands.due.current_ms))
        await sessions.until_waiting("wheel_sweep")
        settling = asyncio.create_task(settle(db, mine, outcome, delay_ms=60_000))
        await sessions.until_waiting("wheel_settle")
        await audits_hold()
    await asyncio.gather(sweeping, settling)
    await audits_hold()
    if outcome == "retry":
        row = await sessions.row("SELECT due_at, reason FROM timer_requeue")
        assert row == (clock.now_ms() + 60_000, "retry")
    else:
        assert await sessions.value(ROWS) == 0


@pytest.mark.parametrize("outcome", ["finished", "retry"])
async def test_a_sweep_that_meets_a_settle_about_to_commit_sees_what_it_made_of_the_task(
    outcome: str,
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    """A row written for what the sweep's snapshot still shows would name a task that is done."""
    (task,) = await published(hands, db, clock)
    now_ms = clock.now_ms()
    settler = await sessions.open()
    async with settler.transaction():
        if outcome == "finished":
            await settler.execute(SETTLE, [1, 0, 0, None, [task.task_id]])
        else:
            await settler.execute("UPDATE timer_task SET next_at = %s", [now_ms + 60_000])
            await settler.execute(
                "INSERT INTO timer_requeue (task_id, shard, start_time, due_at, biz_type, reason)"
                " VALUES (%s, 0, %s, %s, 'orders', 'retry')",
                [task.task_id, task.start_time_ms, now_ms + 60_000],
            )
        sweeping = asyncio.create_task(hands.sweep.sweep_to(hands.due.current_ms))
        await sessions.until_waiting("wheel_sweep")
        await audits_hold()
    assert await sweeping == 0
    await audits_hold()
    assert await sessions.value(ROWS) == int(outcome == "retry")
    assert await sessions.value(SWEPT) == hands.due.current_ms


@pytest.mark.parametrize(
    ("tasks", "spread_ms"),
    [
        (PAGE_ROWS - 1, 0),
        (PAGE_ROWS, 0),
        (PAGE_ROWS + 1, 0),
        (PAGE_ROWS + 1, 900),
        (2 * PAGE_ROWS + 7, 3),
    ],
)
async def test_pages_may_end_in_the_middle_of_a_millisecond(
    tasks: int,
    spread_ms: int,
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    await published(hands, db, clock, tasks, spread_ms=spread_ms)
    assert await hands.sweep.sweep_to(hands.due.current_ms) == tasks
    assert await sessions.value(ROWS) == tasks
    assert await sessions.value(SWEPT) == hands.due.current_ms
    await audits_hold()


@pytest.mark.parametrize("after_pages", [1, 2])
async def test_a_sweep_that_breaks_off_after_a_page_leaves_every_task_covered(
    after_pages: int,
    new_hands: NewHands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    """sweep_time goes to the last complete millisecond only; the heir reads the rest again."""
    old = new_hands()
    await old.lead()
    await published(old, db, clock, 2 * PAGE_ROWS + 500)
    pages = 0
    real_fetch = old.db.fetch_one

    async def broken_off(name: str, *rest: object, **more: object) -> object:
        nonlocal pages
        if name == "sweep":
            pages += 1
            if pages > after_pages:
                raise LeadershipLost(0, 0)
        return await real_fetch(name, *rest, **more)  # type: ignore[arg-type]

    old.db.fetch_one = broken_off  # type: ignore[assignment,method-assign]
    with pytest.raises(LeadershipLost):
        await old.sweep.sweep_to(clock.now_ms())
    assert await sessions.value(ROWS) == after_pages * PAGE_ROWS
    await audits_hold()
    await old.leader.resign()
    heir = new_hands()
    await heir.lead()
    assert await heir.sweep.sweep_to(clock.now_ms()) == (2 - after_pages) * PAGE_ROWS + 500
    await audits_hold()


async def test_the_sweep_passes_neither_current_time_nor_what_is_not_published_yet(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    now_ms = clock.freeze()
    await hands.serve()
    await submit(db, 0, [task_at(now_ms + 60_000)])
    # Its caller may not ask for more than current_time; the function holds the line all the same.
    await hands.sweep.sweep_to(now_ms + 5_000)
    assert await sessions.value(SWEPT) == hands.due.current_ms
    await audits_hold()


async def test_the_sweep_follows_the_due_hand_by_one_visibility_time(
    new_hands: NewHands, db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    """Where current_time stood one visibility time ago; a new leader knows nothing of before."""
    hands = new_hands(visibility_s=0.2)
    term = await hands.lead()
    await hands.sweep.tick()  # the first one, which knows nothing of this event center
    await hands.serve()
    assert hands.due.current_ms > term.sweep_time_ms
    assert (await hands.sweep.tick()).work == 0
    assert await sessions.value(SWEPT) == term.sweep_time_ms
    stood_ms = hands.due.current_ms
    await asyncio.sleep(0.21)
    await hands.sweep.tick()
    assert await sessions.value(SWEPT) == stood_ms


async def test_tasks_of_other_laps_are_not_swept(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    now_ms = clock.freeze()
    await hands.serve()
    lap_ms = 10_000_000_000
    await submit(db, 0, [task_at(now_ms + 2_000 + lap_ms), task_at(now_ms + 2_000 + 30 * lap_ms)])
    clock.advance(2_000)
    await hands.serve()
    assert await hands.sweep.sweep_to(hands.due.current_ms) == 0
    assert await sessions.value(ROWS) == 0
    await audits_hold()
