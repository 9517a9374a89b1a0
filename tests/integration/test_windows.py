"""A lane takes no more than its window; what it does not take stands in line in Postgres."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Final
from uuid import UUID

import pytest
from redis.asyncio import Redis

from daemon import due
from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import BIZ_TYPE, Hands, NewHands, task_at
from tests.fix_lanes import Lanes, NewCenter, configure, refs_of
from tests.fix_sessions import Sessions
from wheel_timer import metrics, window
from wheel_timer.database import Database
from wheel_timer.store import due as store_due
from wheel_timer.store.claim import claim
from wheel_timer.store.requeue import lines, requeue_rows
from wheel_timer.store.settle import settle_again, settle_final
from wheel_timer.store.submit import submit
from wheel_timer.task import NewTask, Result

SMALL: Final = 20
IN_LINE: Final = "SELECT count(*) FROM timer_requeue WHERE reason = 'overflow'"
DUES: Final = (
    "SELECT array_agg(due_at ORDER BY due_at) FROM timer_requeue WHERE biz_type = 'orders'"
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lane that is worked off slowly has a window of SMALL."""
    monkeypatch.setattr(window, "WINDOW_MIN", SMALL)


async def due_now(
    hands: Hands, db: Database, clock: DatabaseClock, counts: dict[str, int]
) -> dict[str, list[NewTask]]:
    """So many fresh tasks of each biz_type, of one second; the hand has passed it."""
    now_ms = clock.freeze()
    await hands.serve()
    made = {
        name: [task_at(now_ms + 2_500 + n % 300, name) for n in range(count)]
        for name, count in counts.items()
    }
    tasks = [task for of_lane in made.values() for task in of_lane]
    for first in range(0, len(tasks), 1_000):
        await submit(db, 0, tasks[first : first + 1_000])
    clock.advance(2_000)
    await hands.serve()
    return made


async def work_off(
    db: Database, center_of: NewCenter, count: int, outcome: str = "finished"
) -> list[UUID]:
    """A broker reads so many, calls and settles them."""
    center = center_of("worker")
    refs = await center.read([BIZ_TYPE], count, 100)
    claims = (await claim(db, refs, [1_000] * len(refs))).claims
    results = [
        Result(c.task_id, c.start_time_ms, BIZ_TYPE, c.attempt, c.revision, outcome, delay_ms=0)
        for c in claims
    ]
    if outcome == "finished":
        await settle_final(db, results)
    else:
        await settle_again(db, 0, results)
    await center.ack(refs)
    return [c.task_id for c in claims]


async def test_what_finds_no_room_stands_in_line_spaced_and_delays_no_other(
    limited: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    made = await due_now(limited, db, clock, {BIZ_TYPE: 3 * SMALL, "calm": 2 * SMALL})
    # A tenth of its room is kept for retries.
    assert len(await lanes.ids()) == SMALL * 9 // 10
    assert set(await lanes.ids("calm")) == {task.task_id for task in made["calm"]}
    dues = await sessions.value(DUES)
    assert len(dues) == 3 * SMALL - SMALL * 9 // 10
    # From the time when half of the window is free, at the pace of the limit.
    assert dues[0] == clock.now_ms() + SMALL // 2 * 6_000 + 6_000
    assert {late - early for early, late in itertools.pairwise(dues)} <= {
        5_999,
        6_000,
        6_001,
    }
    assert limited.due.current_ms >= clock.now_ms()
    await audits_hold()
    (line,) = (await lines(db, 0)).items()
    assert line == (BIZ_TYPE, (dues[-1], made[BIZ_TYPE][0].start_time_ms + 18))
    analyzer = await sessions.open()
    await analyzer.execute("ANALYZE timer_requeue")
    assert await requeue_rows(db) == {"overflow": len(dues)}


async def test_the_line_moves_up_as_its_lane_is_worked_off(
    limited: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    new_center: NewCenter,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    made = await due_now(limited, db, clock, {BIZ_TYPE: 3 * SMALL})
    clock.advance(1_000)
    done: set[UUID] = set()
    while len(done) < 3 * SMALL:
        done |= set(await work_off(db, new_center, 12))
        await limited.fill.tick()
        clock.advance(1_000)
        await limited.serve()
        assert len(await lanes.ids()) <= SMALL
    await audits_hold()
    assert done == {task.task_id for task in made[BIZ_TYPE]}
    assert await sessions.value("SELECT count(*) FROM timer_requeue") == 0


async def test_retries_find_a_tenth_of_the_room_however_long_the_line_is(
    limited: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    new_center: NewCenter,
    audits_hold: AuditsHold,
) -> None:
    await due_now(limited, db, clock, {BIZ_TYPE: 5 * SMALL})
    clock.advance(1_000)
    retried: set[UUID] = set()
    for _ in range(3):
        retried |= set(await work_off(db, new_center, 6, "retry"))
    # All are due again, and those in line are pulled forward to take their room.
    await limited.fill.tick()
    clock.advance(3_500)
    await limited.serve()
    ids = await lanes.ids()
    assert len(ids) == SMALL
    assert len(retried & set(ids)) == 2
    await audits_hold()


async def test_a_heir_goes_on_with_the_line_where_it_ends(
    limited: Hands,
    new_hands: NewHands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    await due_now(limited, db, clock, {BIZ_TYPE: 2 * SMALL})
    last_ms = (await sessions.value(DUES))[-1]
    await limited.leader.resign()
    heir = new_hands()
    await heir.lead()
    await heir.clock.measure()
    await heir.limits.refresh()
    await due_now(heir, db, clock, {BIZ_TYPE: 2 * SMALL})
    assert (await sessions.value(DUES))[2 * SMALL - SMALL * 9 // 10] > last_ms
    await audits_hold()


async def test_a_limit_that_is_lifted_lets_the_whole_line_come(
    limited: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    made = await due_now(limited, db, clock, {BIZ_TYPE: 3 * SMALL})
    await limited.fill.tick()
    assert await sessions.value(IN_LINE) > 0
    await configure(limited, db)
    await limited.fill.tick()
    clock.advance(1_000)
    await limited.serve()
    assert set(await lanes.ids()) == {task.task_id for task in made[BIZ_TYPE]}
    assert await sessions.value(IN_LINE) == 0
    await audits_hold()


async def test_near_tasks_do_not_overtake_a_line_and_are_left_to_their_nets(
    limited: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    new_center: NewCenter,
    redis_client: Redis,
) -> None:
    broker = new_center()
    broker.window_of = lambda _: SMALL
    assert await broker.publish_direct(refs_of(SMALL + 7)) == 7
    await redis_client.delete(lanes.key())
    await due_now(limited, db, clock, {BIZ_TYPE: 3 * SMALL})
    await redis_client.delete(lanes.key())
    await limited.fill.tick()
    assert await broker.publish_direct(refs_of(3) + refs_of(3, "calm")) == 3
    assert await lanes.ids() == []
    assert len(await lanes.ids("calm")) == 3


async def test_a_task_that_is_moved_away_meanwhile_is_not_hidden_by_a_place_in_line(
    limited: Hands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
) -> None:
    """It gets no row for the place that it has left: such a row would keep the sweep off it."""
    now_ms = clock.freeze()
    await limited.serve()
    tasks = [task_at(now_ms + 2_500) for _ in range(SMALL)]
    await submit(db, 0, tasks)
    clock.advance(2_000)
    with limited.db.gate("overflow") as gate:
        serving = asyncio.create_task(limited.serve())
        await gate.arrived()
        # What a reschedule to a time not closed yet leaves of it.
        mover = await sessions.open()
        await mover.execute(
            "UPDATE timer_task SET slot = (start_time / 1000 + 60) % 10000000,"
            " start_time = start_time + 60000"
        )
    await serving
    assert await sessions.value("SELECT count(*) FROM timer_requeue") == 0


async def test_the_sweep_counts_nothing_of_a_lane_in_which_references_wait_for_long(
    limited: Hands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    audits_hold: AuditsHold,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """18 references at ten a minute wait for 108 s, and the visibility time is 60."""
    counted: list[tuple[str, int]] = []
    monkeypatch.setattr(metrics, "swept", lambda reason, tasks: counted.append((reason, tasks)))
    await limited.sweep.tick()
    await due_now(limited, db, clock, {BIZ_TYPE: 3 * SMALL, "lost": 2})
    await limited.fill.tick()
    assert await limited.sweep.sweep_to(limited.due.current_ms) == 2
    assert counted == [("undelivered", 2)]
    rows = "SELECT count(*), min(due_at) FROM timer_requeue WHERE reason = 'published'"
    count, first_ms = await sessions.row(rows)
    assert (count, first_ms) == (18, clock.now_ms() + 2 * 18 * 6_000)
    await audits_hold()


async def test_a_crash_between_the_pages_of_a_full_lane_loses_nobody(
    limited: Hands,
    new_hands: NewHands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    audits_hold: AuditsHold,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The heir reads the range again, and those that stand in line already keep one row each."""
    monkeypatch.setattr(due, "PAGES_AT_ONCE", 1)
    now_ms = clock.freeze()
    await limited.serve()
    tasks = [task_at(now_ms + 2_500) for _ in range(2 * store_due.PAGE_ROWS)]
    for first in range(0, len(tasks), 1_000):
        await submit(db, 0, tasks[first : first + 1_000])
    clock.advance(2_000)
    await limited.serve()
    await audits_hold()
    assert 0 < await sessions.value(IN_LINE) < store_due.PAGE_ROWS
    await limited.leader.resign()
    heir = new_hands()
    await heir.lead()
    await heir.serve()
    while heir.due.current_ms < now_ms + 3_000:
        await heir.due.read_on()
        await audits_hold()
    covered: Sequence[int] = await sessions.row(
        "SELECT count(*), count(DISTINCT task_id) FROM timer_requeue"
    )
    assert covered[0] == covered[1] >= len(tasks) - window.WINDOW_UNMEASURED
    await audits_hold()
