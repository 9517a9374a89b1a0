"""Moments at the edges: laps, the ring's end, the pointer's own, the past, after downtime."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_delivery import Delivery
from tests.fix_endpoint import Endpoint
from tests.fix_hands import LOOKAHEAD_MS, Hands, NewHands, task_at
from tests.fix_lanes import Lanes
from tests.fix_sessions import Sessions
from wheel_timer import clock as clock_module
from wheel_timer import database as database_module
from wheel_timer.database import Database, Rows
from wheel_timer.monotonic import monotonic_s
from wheel_timer.store.submit import submit
from wheel_timer.wheel import LAP_S, slot_of

LAP_MS: Final = LAP_S * 1000
# 2027-01-15T08:00:00Z: slot 0, after slot 9,999,999.
RING_END_MS: Final = 1_800_000_000_000
DAY_MS: Final = 86_400_000


async def stand_at(sessions: Sessions, clock: DatabaseClock, now_ms: int) -> None:
    """It is now_ms, it stays so, and the hands have come as far as this."""
    clock.freeze(now_ms)
    session = await sessions.open()
    await session.execute(
        'UPDATE timer_pointer SET "current_time" = %s, sweep_time = %s', [now_ms] * 2
    )
    await session.execute("SELECT setval('timer_closed_to_0', %s)", [now_ms])


async def test_of_one_slot_only_the_lap_that_is_due_is_published(
    hands: Hands, db: Database, clock: DatabaseClock, lanes: Lanes, audits_hold: AuditsHold
) -> None:
    now_ms = clock.freeze()
    laps = [task_at(now_ms + 5_000 + lap * LAP_MS) for lap in (0, 1, 2, 30)]
    assert len({slot_of(task.start_time_ms) for task in laps}) == 1
    await submit(db, 0, laps)
    clock.advance(10_000)
    await hands.serve()
    assert await lanes.ids() == [laps[0].task_id]
    clock.advance(LAP_MS)
    await hands.serve()
    assert await lanes.ids() == [task.task_id for task in laps[:2]]
    await audits_hold()


async def test_the_hands_go_over_the_rings_end(
    new_hands: NewHands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    lanes: Lanes,
    audits_hold: AuditsHold,
) -> None:
    await stand_at(sessions, clock, RING_END_MS - 4_000)
    hands = new_hands()
    await hands.lead()
    await hands.serve()
    tasks = [task_at(RING_END_MS + ms) for ms in (-1_001, -1_000, -1, 0, 1, 999, 1_000, 1_001)]
    assert {slot_of(task.start_time_ms) for task in tasks} == {9_999_998, 9_999_999, 0, 1}
    far = [task_at(RING_END_MS + ms + LAP_MS) for ms in (-1, 0)]
    await submit(db, 0, [*tasks, *far])
    for tick in range(24):
        clock.advance(250)
        await hands.tick()
        if tick % 4 == 3:
            await audits_hold()
    assert await lanes.ids() == [task.task_id for task in tasks]
    # So does the sweep, older lap first; what nobody called is found, on both sides.
    await lanes.lose()
    assert await hands.sweep.sweep_to(hands.due.current_ms) == len(tasks)
    await audits_hold()
    clock.advance(1_000)
    await hands.serve()
    assert set(await lanes.ids()) == {task.task_id for task in tasks}
    await audits_hold()


async def test_a_catch_up_over_the_rings_end_publishes_the_older_lap_first(
    new_hands: NewHands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    lanes: Lanes,
    audits_hold: AuditsHold,
) -> None:
    await stand_at(sessions, clock, RING_END_MS - 2 * DAY_MS)
    tasks = [task_at(RING_END_MS + hours * 3_600_000) for hours in (-30, -1, 0, 1, 30)]
    await submit(db, 0, tasks)
    clock.freeze(RING_END_MS + 2 * DAY_MS)
    hands = new_hands()
    await hands.lead()
    await hands.serve()
    assert await lanes.ids() == [task.task_id for task in tasks]
    await audits_hold()


async def test_ten_years_ahead_is_stored_and_called_then(
    hands: Hands, db: Database, clock: DatabaseClock, lanes: Lanes, audits_hold: AuditsHold
) -> None:
    now_ms = clock.freeze()
    task = task_at(now_ms + 3_652 * DAY_MS)
    assert (await submit(db, 0, [task]))[0].near is False
    clock.advance(5_000)
    await hands.serve()
    assert await lanes.ids() == []
    clock.freeze(task.start_time_ms - LOOKAHEAD_MS)
    await hands.serve()
    assert await lanes.ids() == [task.task_id]
    await audits_hold()


@pytest.mark.parametrize("beyond_ms", [-1_000, -1, 0, 1])
async def test_around_the_pointer_nothing_is_skipped(
    beyond_ms: int,
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    audits_hold: AuditsHold,
) -> None:
    """Exactly at closed_to, a millisecond behind it, a millisecond ahead of it."""
    clock.freeze()
    await hands.serve()
    task = task_at(hands.due.current_ms + beyond_ms)
    assert (await submit(db, 0, [task]))[0].near
    await audits_hold()
    for _ in range(5):
        clock.advance(1_000)
        await hands.serve()
        await audits_hold()
    assert task.task_id in await lanes.ids()


async def test_submits_in_a_loop_against_the_moving_pointer_all_come_once(
    delivery: Delivery, hands: Hands, endpoint: Endpoint, audits_hold: AuditsHold
) -> None:
    """At the pointer, a millisecond to either side, now, and in the past, while it moves."""
    ids = []
    for n in range(60):
        around_ms = hands.due.current_ms + (n % 3 - 1)
        past_ms = int(delivery.clock.now_ms()) - n * DAY_MS // 10
        ids += await delivery.submit([task_at(around_ms), task_at(past_ms)])
        await hands.serve()
    assert set(await delivery.settled(ids)) == {"finished"}
    assert Counter(call.task_id for call in endpoint.received) == {str(one): 1 for one in ids}
    await audits_hold()


async def knowing(new_hands: NewHands) -> Hands:
    """A daemon that has asked for the time often enough for one answer to have come quickly."""
    hands = new_hands()
    for _ in range(5):
        await hands.clock.measure()
    return hands


@pytest.mark.parametrize("wrong_s", [-3_600.0, 0.3, 3_600.0])
async def test_the_clock_of_a_daemons_machine_moves_no_moment(
    wrong_s: float,
    new_hands: NewHands,
    db: Database,
    sessions: Sessions,
    lanes: Lanes,
    clock: DatabaseClock,
    monkeypatch: pytest.MonkeyPatch,
    audits_hold: AuditsHold,
) -> None:
    """300 ms fast, an hour fast, an hour slow: the database has the one clock."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + wrong_s)
    hands = await knowing(new_hands)
    if wrong_s < -60:
        # At start there is nothing to compare a database with that is an hour ahead of us but our
        # own clock: nothing is closed or called until somebody has looked. Once it is known, the
        # machine's clock decides nothing.
        assert not hands.clock.is_known()
        monkeypatch.undo()
        hands = await knowing(new_hands)
        monkeypatch.setattr(time, "time", lambda: real() + wrong_s)
    assert hands.clock.is_known()
    assert abs(hands.clock.now_ms() - clock.now_ms()) < 50
    await hands.lead()
    await hands.serve()
    closed_ms = await sessions.value("SELECT wheel_closed_to_v1(CAST(0 AS smallint))")
    assert abs(closed_ms - LOOKAHEAD_MS - clock.now_ms()) < 500
    soon, later = task_at(closed_ms + 700), task_at(closed_ms + 60_000)
    await submit(db, 0, [soon, later])
    await sessions.until("SELECT wheel_now_ms() > %s", soon.start_time_ms - LOOKAHEAD_MS)
    await hands.serve()
    assert await lanes.ids() == [soon.task_id]
    await audits_hold()


async def test_a_database_clock_that_jumps_an_hour_ahead_closes_nothing_until_it_is_back(
    hands: Hands,
    db: Database,
    sessions: Sessions,
    lanes: Lanes,
    clock: DatabaseClock,
    monkeypatch: pytest.MonkeyPatch,
    audits_hold: AuditsHold,
) -> None:
    """Seen from here, which is all the same, our own steady clock falls an hour behind."""
    await hands.serve()
    await submit(db, 0, [task_at(clock.now_ms() + 1_600)])
    closed_ms = hands.due.current_ms
    real_s = monotonic_s
    for module in (clock_module, database_module):
        monkeypatch.setattr(module, "monotonic_s", lambda: real_s() - 3_600)
    for _ in range(3):
        tick = await hands.tick()
        assert tick.work == 0
    assert await sessions.value("SELECT wheel_closed_to_v1(CAST(0 AS smallint))") == closed_ms
    assert await lanes.ids() == []
    monkeypatch.undo()
    await sessions.until("SELECT wheel_now_ms() > %s", closed_ms)
    await hands.tick()
    assert hands.due.current_ms > closed_ms
    await audits_hold()


class Counted(Hands):
    """Counts the statements that its hands send."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.statements: Counter[str] = Counter()
        fetch = self.db.fetch

        async def counted(
            name: str, params: Mapping[str, Any] | None = None, *, timeout_s: float = 10.0
        ) -> Rows:
            self.statements[name] += 1
            return await fetch(name, params, timeout_s=timeout_s)

        self.db.fetch = counted  # type: ignore[method-assign]


@pytest.fixture
async def counted(database_url: str, redis_url: str, redis_prefix: str) -> Any:
    made = Counted(database_url, redis_url, redis_prefix, visibility_s=60.0)
    yield made
    await made.close()


async def test_an_hour_of_downtime_is_caught_up_in_order(
    counted: Counted,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    lanes: Lanes,
    audits_hold: AuditsHold,
) -> None:
    now_ms = clock.now_ms()
    await stand_at(sessions, clock, now_ms)
    tasks = [task_at(now_ms + 10_000 + n * 7_000) for n in range(500)]
    await submit(db, 0, tasks)
    await submit(db, 0, [task_at(now_ms + 2 * 3_600_000)])
    clock.advance(3_600_000)
    await counted.lead()
    await counted.serve()
    assert await lanes.ids() == [task.task_id for task in tasks]
    assert counted.due.current_ms == now_ms + 3_600_000 + LOOKAHEAD_MS
    # A look, a page, its requeue rows, an advance for each stride; no slot by itself. Strides of a
    # minute grow to five where little is due.
    assert 12 <= counted.statements["advance"] <= 16
    assert counted.statements.total() < 16 * 6
    await audits_hold()


async def test_where_much_is_due_the_pointer_moves_each_minute(
    counted: Counted, db: Database, clock: DatabaseClock, sessions: Sessions, lanes: Lanes
) -> None:
    now_ms = clock.now_ms()
    await stand_at(sessions, clock, now_ms)
    tasks = [task_at(now_ms + 30_000 + n * 50) for n in range(6_000)]
    for first in range(0, len(tasks), 1_000):
        await submit(db, 0, tasks[first : first + 1_000])
    clock.advance(400_000)
    await counted.lead()
    await counted.serve()
    assert await lanes.ids() == [task.task_id for task in tasks]
    assert counted.statements["advance"] >= 5


@pytest.mark.parametrize("days", [1, 300])
async def test_empty_days_are_passed_in_a_few_statements(
    days: int,
    counted: Counted,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    lanes: Lanes,
    audits_hold: AuditsHold,
) -> None:
    now_ms = clock.now_ms()
    await stand_at(sessions, clock, now_ms)
    last = task_at(now_ms + days * DAY_MS - 5_000)
    await submit(db, 0, [last])
    clock.advance(days * DAY_MS)
    await counted.lead()
    await counted.serve()
    assert await lanes.ids() == [last.task_id]
    assert counted.due.current_ms == now_ms + days * DAY_MS + LOOKAHEAD_MS
    assert counted.statements.total() <= 30
    # The sweep passes them as quickly, and finds what lay at their end.
    counted.statements.clear()
    assert await counted.sweep.sweep_to(counted.due.current_ms) == 1
    assert counted.statements.total() <= 30
    await audits_hold()
