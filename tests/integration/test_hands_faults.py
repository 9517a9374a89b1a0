"""A tick that breaks off anywhere is done again; a long second is read beside the next ticks."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, Final

import pytest
from redis.asyncio import Redis

from daemon import due as module
from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands, NewHands, task_at
from tests.fix_lanes import Lanes
from tests.fix_sessions import Sessions
from wheel_timer import signal
from wheel_timer.database import Database
from wheel_timer.embedded import EmbeddedRedis
from wheel_timer.errors import DatabaseUnavailable, WheelTimerError
from wheel_timer.store.due import PAGE_ROWS
from wheel_timer.store.submit import submit
from wheel_timer.streams import unpack
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


async def until_back(hands: Hands) -> None:
    """Return when the event center is there again."""
    back = asyncio.Event()
    hands.reach.on_change(lambda is_away: None if is_away else back.set())
    if hands.reach.is_away:
        async with asyncio.timeout(10):
            await back.wait()


async def test_what_redis_refuses_stands_in_line_until_it_takes_it(
    own_redis: EmbeddedRedis,
    database_url: str,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    """Out of memory: it answers, and takes nothing. The hand goes on all the same."""
    hands = Hands(database_url, own_redis.url, "wt", visibility_s=60)
    client = Redis.from_url(own_redis.url)
    try:
        await hands.lead()
        now_ms = clock.freeze()
        await hands.serve()
        fresh, near = task_at(now_ms + 1_600), task_at(now_ms)
        await submit(db, 0, [fresh, near])
        await client.config_set("maxmemory", "1")
        clock.advance(2_500)
        await hands.serve()
        assert hands.reach.is_away
        assert hands.due.current_ms == clock.now_ms() + 1_000
        # In the order of their moments, counted from now where they have passed.
        rows = "SELECT array_agg(due_at), min(reason), max(reason) FROM timer_requeue"
        assert await sessions.row(rows) == ([now_ms + 62_500] * 2, "overflow", "overflow")
        await audits_hold()
        await client.config_set("maxmemory", "0")
        await until_back(hands)
        await hands.fill.tick()
        clock.advance(1_000)
        await hands.serve()
        lane: Any = await client.xrange(hands.event_center.lane_key("orders"))
        found = {unpack(fields[b"r"], "orders", at).task_id for at, fields in lane}
        assert found == {fresh.task_id, near.task_id}
        await audits_hold()
    finally:
        await client.aclose()
        await hands.close()


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
