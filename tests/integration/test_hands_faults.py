"""A tick that breaks off anywhere is done again; a long second is read beside the next ticks."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final

import pytest

from daemon import due as module
from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands, NewHands, task_at
from tests.fix_lanes import Lanes
from tests.fix_sessions import Sessions
from wheel_timer import signal
from wheel_timer.database import Database
from wheel_timer.errors import DatabaseUnavailable, EventCenterUnavailable, WheelTimerError
from wheel_timer.store.due import PAGE_ROWS
from wheel_timer.store.submit import submit
from wheel_timer.task import NewTask

POINTS: Final = (
    "due.closed",
    "due.fenced",
    "eventcenter.published",
    "due.published",
    "due.rearmed",
    "due.advanced",
    "sweep.page",
    "sweep.done",
)


def fail_nth(point: str, nth: int, error: WheelTimerError) -> Callable[[], bool]:
    """Raise at the nth coming to a point, once; tells whether it has come so far."""
    count = itertools.count(1)
    failed = False

    def handler() -> None:
        nonlocal failed
        if next(count) == nth:
            failed = True
            raise error

    signal.on(point, handler)
    return lambda: failed


@pytest.mark.parametrize("point", POINTS)
async def test_a_tick_that_fails_at_any_point_is_made_good_by_the_next(
    point: str,
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    audits_hold: AuditsHold,
) -> None:
    """The first, second, ... time it comes there, until it comes there no more."""
    clock.freeze()
    await hands.serve()
    expected = set()
    for nth in itertools.count(1):
        now_ms = clock.now_ms()
        # Of two lanes and two pages of the wheel, with nets among them.
        tasks = [task_at(now_ms + 1_600 + n, f"biz{n % 2}") for n in range(PAGE_ROWS // 2)]
        near = [task_at(now_ms + n) for n in range(3)]
        await submit(db, 0, tasks + near)
        expected |= {task.task_id for task in tasks + near}
        has_failed = fail_nth(point, nth, DatabaseUnavailable("of the test's own"))
        for _ in range(4):
            clock.advance(1_000)
            try:
                await hands.serve()
                await hands.sweep.sweep_to(hands.due.current_ms)
            except DatabaseUnavailable:
                await audits_hold()
        signal.clear()
        await audits_hold()
        if not has_failed():
            break
    clock.advance(3_000)
    await hands.serve()
    published = [*await lanes.ids("biz0"), *await lanes.ids("biz1"), *await lanes.ids()]
    assert set(published) == expected
    assert nth > 1
    await audits_hold()


async def test_what_redis_refused_is_published_once_it_takes_it_again(
    hands: Hands, db: Database, clock: DatabaseClock, lanes: Lanes, audits_hold: AuditsHold
) -> None:
    now_ms = clock.freeze()
    await hands.serve()
    before_ms = hands.due.current_ms
    task = task_at(now_ms + 1_600)
    await submit(db, 0, [task])
    clock.advance(1_000)
    publish = hands.event_center.publish

    async def refused(*_: object) -> None:
        raise EventCenterUnavailable("OOM command not allowed when used memory > 'maxmemory'")

    hands.event_center.publish = refused  # type: ignore[assignment,method-assign]
    for _ in range(3):
        with pytest.raises(EventCenterUnavailable):
            await hands.serve()
        # The hand does not pass what is not in its lane.
        assert hands.due.current_ms == before_ms
        await audits_hold()
    hands.event_center.publish = publish  # type: ignore[method-assign]
    await hands.serve()
    assert await lanes.ids() == [task.task_id]
    await audits_hold()


@pytest.fixture
def one_page_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second of more than a page is a long one."""
    monkeypatch.setattr(module, "PAGES_AT_ONCE", 1)


async def hot_second(db: Database, now_ms: int) -> list[NewTask]:
    """More than three pages of one second, on the wheel, and as many nets of another."""
    plain = [task_at(now_ms + 2_500 + n % 400, "hot") for n in range(3 * PAGE_ROWS + 17)]
    near = [task_at(now_ms, "hot") for _ in range(3 * PAGE_ROWS + 17)]
    tasks = plain + near
    for first in range(0, len(tasks), 1_000):
        await submit(db, 0, tasks[first : first + 1_000])
    return tasks


@pytest.mark.usefixtures("one_page_at_once")
async def test_a_long_second_delays_no_other_and_the_hand_stays_before_it(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    now_ms = clock.freeze()
    await hands.serve()
    tasks = await hot_second(db, now_ms)
    later = task_at(now_ms + 3_400, "calm")
    await submit(db, 0, [later])
    clock.advance(2_000)
    await hands.serve()
    # A page of each so far; a tick later it is the others' turn, and still most of it is left.
    assert len(await lanes.ids("hot")) < len(tasks) // 2
    clock.advance(500)
    await hands.serve()
    assert await lanes.ids("calm") == [later.task_id]
    assert len(await lanes.ids("hot")) < len(tasks)
    assert hands.due.current_ms < now_ms + 3_000
    # The sweep has to stay behind it too.
    await hands.sweep.sweep_to(hands.due.current_ms)
    assert await sessions.value("SELECT sweep_time FROM timer_pointer") == hands.due.current_ms
    await audits_hold()
    while hands.due.current_ms < now_ms + 3_500:
        await hands.due.read_on()
    ids = await lanes.ids("hot")
    assert len(ids) == len(tasks)
    assert set(ids) == {task.task_id for task in tasks}
    await audits_hold()


@pytest.mark.usefixtures("one_page_at_once")
@pytest.mark.parametrize("pages_read_on", [0, 1, 4])
async def test_a_leader_that_dies_in_a_long_second_leaves_it_to_its_heir(
    pages_read_on: int,
    hands: Hands,
    new_hands: NewHands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    audits_hold: AuditsHold,
) -> None:
    now_ms = clock.freeze()
    await hands.serve()
    tasks = await hot_second(db, now_ms)
    clock.advance(2_000)
    await hands.serve()
    for _ in range(pages_read_on):
        await hands.due.read_on()
    await audits_hold()
    await hands.leader.resign()
    await lanes.lose()
    heir = new_hands()
    await heir.lead()
    clock.advance(500)
    await heir.serve()
    while heir.due.current_ms < now_ms + 3_500:
        await heir.due.read_on()
        await audits_hold()
    # What the old one had published is lost here; it lies behind the hand, and the sweep finds it.
    await heir.sweep.sweep_to(heir.due.current_ms)
    await audits_hold()
    clock.advance(120_000)
    await heir.serve()
    while heir.due.current_ms < clock.now_ms():
        await heir.due.read_on()
    assert set(await lanes.ids("hot")) == {task.task_id for task in tasks}
    await audits_hold()
