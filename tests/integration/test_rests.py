"""A second with more tasks for a full lane than some pages hold: nobody else waits for them."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import pytest

from daemon import due, rests
from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands, task_at
from tests.fix_lanes import Lanes
from tests.fix_sessions import Sessions
from wheel_timer import window
from wheel_timer.database import Database
from wheel_timer.store import due as store_due
from wheel_timer.store.submit import submit
from wheel_timer.task import NewTask

# On a busy machine a tick leaves no time to read on.
TICKS_MAX: Final = 30
IN_LINE: Final = "SELECT count(*) FROM timer_requeue WHERE reason = 'overflow'"


@pytest.fixture(autouse=True)
def one_page_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second of more than a page is a long one."""
    monkeypatch.setattr(due, "PAGES_AT_ONCE", 1)


async def put_on_the_wheel(hands: Hands, db: Database, tasks: list[NewTask]) -> None:
    """By a hand that has not closed their moments yet."""
    await hands.serve()
    for first in range(0, len(tasks), 1_000):
        await submit(db, 0, tasks[first : first + 1_000])


async def test_others_of_the_same_second_do_not_wait_behind_a_full_lane(
    limited: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    """Three pages of one lane at one millisecond, and others at the same and the next one: for
    those of the next one nobody has to look through the three pages."""
    now_ms = clock.freeze()
    hot = [task_at(now_ms + 2_500) for _ in range(3 * store_due.PAGE_ROWS)]
    calm = [task_at(now_ms + 2_500 + n % 2, "calm") for n in range(50)]
    await put_on_the_wheel(limited, db, hot + calm)
    clock.advance(2_000)
    await limited.serve()
    await limited.due.read_on()
    found = set(await lanes.ids("calm"))
    assert {task.task_id for task in calm[1::2]} <= found < {task.task_id for task in calm}
    await limited.due.read_on()
    assert set(await lanes.ids("calm")) == {task.task_id for task in calm}
    assert await sessions.value(IN_LINE) <= store_due.PAGE_ROWS
    assert limited.due.current_ms < now_ms + 2_500
    await audits_hold()
    while limited.due.current_ms < now_ms + 3_000:
        await limited.due.read_on()
    assert await sessions.value(IN_LINE) + len(await lanes.ids()) == len(hot)
    await audits_hold()


async def test_others_of_the_same_instant_do_not_wait_behind_a_lane_that_has_room(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    audits_hold: AuditsHold,
) -> None:
    """Four pages of a lane without a limit; others at that millisecond, and within the tick: one
    page, and they are published, before the second page of it is."""
    now_ms = clock.freeze()
    hot = [task_at(now_ms + 2_500) for _ in range(4 * store_due.PAGE_ROWS)]
    calm = [task_at(now_ms + 2_500 + 5 * n, "calm") for n in range(40)]
    calm += [task_at(now_ms + 2_500, "calm") for n in range(10)]
    await put_on_the_wheel(hands, db, hot + calm)
    clock.advance(2_000)
    await hands.serve()
    for _ in range(2):
        await hands.due.read_on()
    assert set(await lanes.ids("calm")) == {task.task_id for task in calm}
    assert len(await lanes.ids()) <= store_due.PAGE_ROWS
    assert hands.due.current_ms < now_ms + 2_500
    await audits_hold()
    while hands.due.current_ms < now_ms + 3_000:
        await hands.due.read_on()
    assert set(await lanes.ids()) == {task.task_id for task in hot}
    assert len(await lanes.ids("calm")) == len(calm)
    await audits_hold()


async def test_a_daemon_that_catches_up_does_not_stop_at_a_full_lane(
    limited: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    audits_hold: AuditsHold,
) -> None:
    """Down for minutes in which three pages of one lane were due: the others first, in order."""
    now_ms = clock.freeze()
    hot = [task_at(now_ms + 2_500) for _ in range(3 * store_due.PAGE_ROWS)]
    calm = [task_at(now_ms + 2_500 + 100 * n, "calm") for n in range(50)]
    await put_on_the_wheel(limited, db, hot + calm)
    clock.advance(200_000)
    await limited.serve()
    assert await lanes.ids("calm") == [task.task_id for task in calm]
    assert limited.due.current_ms < now_ms + 2_500
    while limited.due.current_ms < clock.now_ms():
        await limited.due.read_on()
    await audits_hold()


async def test_a_full_lane_is_left_alone_between_its_pages_and_others_go_on(
    limited: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    sessions: Sessions,
    audits_hold: AuditsHold,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A page takes a millisecond at least, so its pause is longer than this test."""
    monkeypatch.setattr(rests, "PAUSES", 1e6)
    now_ms = clock.freeze()
    hot = [task_at(now_ms + 2_500) for _ in range(3 * store_due.PAGE_ROWS)]
    calm = [task_at(now_ms + 2_500, "calm")]
    calm += [task_at(now_ms + 3_000 + 500 * n, "calm") for n in range(3)]
    await put_on_the_wheel(limited, db, hot + calm)
    clock.advance(2_000)
    room = window.WINDOW_MIN * 9 // 10
    lengths: list[int] = []
    for _ in range(TICKS_MAX):
        await limited.tick()
        lengths.append(await sessions.value(IN_LINE))
        clock.advance(300)
        if len(lengths) >= 6 and store_due.PAGE_ROWS - room < lengths[-3] == lengths[-1]:
            break
    # One page of it, and part of a second one.
    assert (
        store_due.PAGE_ROWS - room < lengths[-1] <= store_due.PAGE_ROWS - room + store_due.FULL_ROWS
    )
    assert lengths[-1] == lengths[-3]
    assert len(await lanes.ids("calm")) == len(calm)
    assert limited.due.current_ms < now_ms + 2_500
    await audits_hold()


async def test_a_lane_that_has_room_again_is_not_kept_waiting(
    limited: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    sessions: Sessions,
    audits_hold: AuditsHold,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only after a page that was put in line there is a pause."""
    monkeypatch.setattr(rests, "PAUSES", 1e6)
    now_ms = clock.freeze()
    hot = [task_at(now_ms + 2_500) for _ in range(2 * store_due.PAGE_ROWS)]
    await put_on_the_wheel(limited, db, hot)
    clock.advance(2_000)
    await limited.serve()
    in_line = await sessions.value(IN_LINE)
    await lanes.lose()
    for _ in range(TICKS_MAX):
        await limited.tick()
        if await sessions.value(IN_LINE) > in_line:
            break
    # It was read on page by page until the first one that did not fit.
    assert window.WINDOW_MIN * 9 // 10 <= len(await lanes.ids()) <= window.WINDOW_MIN
    assert 0 < await sessions.value(IN_LINE) - in_line <= store_due.FULL_ROWS
    await audits_hold()


async def test_a_lane_that_fills_up_in_the_middle_is_left_for_last_from_then_on(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    sessions: Sessions,
    audits_hold: AuditsHold,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two lanes of a second, the second one full when the first one's room was long gone."""
    monkeypatch.setattr(window, "WINDOW_UNMEASURED", 1_200)
    monkeypatch.setattr(store_due, "PART_ROWS", store_due.PAGE_ROWS)
    now_ms = clock.freeze()
    pages = 3 * store_due.PAGE_ROWS
    hot = [task_at(now_ms + 2_500, "hot") for _ in range(pages)]
    hotter = [task_at(now_ms + 2_501, "hotter") for _ in range(pages)]
    calm = [task_at(now_ms + 2_500 + n % 3, "calm") for n in range(30)]
    await put_on_the_wheel(hands, db, hot + hotter + calm)
    clock.advance(2_000)
    await hands.serve()
    steps: list[tuple[bool, int]] = []
    while hands.due.current_ms < now_ms + 3_000:
        await hands.due.read_on()
        is_calm_done = len(await lanes.ids("calm")) == len(calm)
        steps.append((is_calm_done, await sessions.value(IN_LINE)))
        await audits_hold()
    # The calm one was through before any more than two pages were put in line.
    assert next(length for is_done, length in steps if is_done) <= 2 * store_due.PAGE_ROWS
    assert all(later - now <= store_due.PAGE_ROWS for (_, now), (_, later) in pairwise(steps))
    for name, tasks in {"hot": hot, "hotter": hotter}.items():
        ids = set(await lanes.ids(name))
        assert 0 < len(ids) <= 1_200
        assert ids < {task.task_id for task in tasks}
    held = len(await lanes.ids("hot")) + len(await lanes.ids("hotter"))
    assert await sessions.value(IN_LINE) + held == 2 * pages
