"""Two closers, and the order of the hands: closed_to never goes back, a zombie closes nothing."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import LOOKAHEAD_MS, Hands, NewHands, task_at
from tests.fix_lanes import Lanes
from tests.fix_sessions import Sessions
from wheel_timer.database import Database
from wheel_timer.errors import LeadershipLost
from wheel_timer.store import due as store
from wheel_timer.store.requeue import Again, rearm, rescue
from wheel_timer.store.submit import submit
from wheel_timer.store.sweep import sweep

CLOSED: Final = "SELECT wheel_closed_to_v1(CAST(0 AS smallint))"
HANDS: Final = 'SELECT sweep_time, "current_time", wheel_closed_to_v1(shard) FROM timer_pointer'


async def test_a_zombie_writes_nothing_anywhere(
    new_hands: NewHands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    lanes: Lanes,
    audits_hold: AuditsHold,
) -> None:
    """Every write of a hand carries its epoch; under an older one it is refused, with no trace."""
    now_ms = clock.freeze()
    zombie = new_hands()
    await zombie.lead()
    await zombie.serve()
    task = task_at(now_ms)
    await submit(db, 0, [task])
    old = zombie.leader.epoch
    clock.advance(20_000)
    heir = new_hands()
    await heir.lead()
    assert heir.leader.epoch == old + 1

    before = await sessions.row(HANDS)
    rows = await sessions.row("SELECT due_at, reason FROM timer_requeue")
    writes = {
        "close": store.close(db, 0, old, now_ms + 90_000, LOOKAHEAD_MS),
        "advance": store.advance(db, 0, old, now_ms + 90_000),
        "rearm": rearm(db, 0, old, now_ms + 90_000, [Again(task.task_id, None)]),
        "rescue": rescue(db, 0, old),
        "sweep": sweep(db, 0, old, now_ms - 9_000, now_ms, now_ms - 9_000, store.NIL, {}),
    }
    for write in writes.values():
        with pytest.raises(LeadershipLost):
            await write
    assert await sessions.row(HANDS) == before
    assert await sessions.row("SELECT due_at, reason FROM timer_requeue") == rows
    with pytest.raises(LeadershipLost):
        await zombie.serve()
    assert await lanes.ids() == []
    await audits_hold()


async def test_a_zombies_close_that_waits_for_its_heir_is_refused_once_the_heir_has_closed(
    new_hands: NewHands, db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    """setval alone is not monotone: the row lock and the epoch order two closers."""
    now_ms = clock.freeze()
    zombie = new_hands()
    await zombie.lead()
    clock.advance(20_000)
    heir = await sessions.open()
    async with heir.transaction():
        await heir.execute("UPDATE timer_pointer SET epoch = epoch + 1")
        late = asyncio.create_task(
            store.close(db, 0, zombie.leader.epoch, now_ms + 1_000, LOOKAHEAD_MS)
        )
        await sessions.until_waiting("wheel_close")
        await heir.execute("SELECT setval('timer_closed_to_0', %s)", [now_ms + 20_500])
    with pytest.raises(LeadershipLost):
        await late
    assert await sessions.value(CLOSED) == now_ms + 20_500


async def test_two_closers_of_one_epoch_never_take_closed_to_back(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    now_ms = clock.freeze()
    wanted = [now_ms + ahead_ms for ahead_ms in (1_000, 200, 900, 100, 500)] * 4
    epoch = hands.leader.epoch
    answers = await asyncio.gather(
        *(store.close(db, 0, epoch, to_ms, LOOKAHEAD_MS) for to_ms in wanted)
    )
    assert await sessions.value(CLOSED) == now_ms + 1_000
    # Each was told of no less than it asked for, and took nothing back.
    for told, asked_ms in zip(answers, wanted, strict=True):
        assert told.closed_to_ms >= max(asked_ms, told.closed_before_ms)


async def test_nothing_is_closed_beyond_the_clock_and_one_look_ahead(
    hands: Hands, db: Database, clock: DatabaseClock
) -> None:
    now_ms = clock.freeze()
    closed = await store.close(db, 0, hands.leader.epoch, now_ms + 999_999, LOOKAHEAD_MS)
    assert closed.closed_to_ms == now_ms + LOOKAHEAD_MS


async def test_a_clock_that_is_set_back_moves_no_hand_and_new_tasks_go_the_direct_way(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    lanes: Lanes,
    audits_hold: AuditsHold,
) -> None:
    now_ms = clock.freeze()
    await hands.serve()
    before = await sessions.row(HANDS)
    clock.advance(-600_000)
    await hands.serve()
    assert await sessions.row(HANDS) == before
    # Due in ten seconds by the new clock, far behind what is closed.
    task = task_at(now_ms - 590_000)
    assert (await submit(db, 0, [task]))[0].near
    assert await sessions.value("SELECT due_at FROM timer_requeue") == now_ms + 3_000
    await audits_hold()
    clock.freeze(now_ms + 2_500)
    await hands.serve()
    assert await lanes.ids() == [task.task_id]
    await audits_hold()


async def test_a_close_that_a_crash_of_postgres_forgets_only_repeats_a_range(
    hands: Hands, new_hands: NewHands, db: Database, clock: DatabaseClock, lanes: Lanes,
    sessions: Sessions, audits_hold: AuditsHold,
) -> None:  # fmt: skip
    """Close and advance do not wait for the disk: after a crash the hands stand earlier."""
    now_ms = clock.freeze()
    await hands.serve()
    before = await sessions.row(HANDS)
    task = task_at(now_ms + 1_600)
    await submit(db, 0, [task])
    clock.advance(1_000)
    await hands.serve()
    session = await sessions.open()
    await session.execute('UPDATE timer_pointer SET "current_time" = %s', [before[1]])
    await session.execute("SELECT setval('timer_closed_to_0', %s)", [before[2]])
    await audits_hold()
    # Meanwhile a writer may have come in behind what this hand has in mind: it must begin anew.
    with pytest.raises(LeadershipLost):
        await hands.serve()
    await hands.leader.resign()
    heir = new_hands()
    await heir.lead()
    await heir.serve()
    assert await lanes.ids() == [task.task_id] * 2
    await audits_hold()


@pytest.mark.parametrize("step", ["close", "barrier", "due", "requeue_due", "rearm", "advance"])
async def test_a_leader_replaced_between_two_steps_of_its_tick_harms_nothing(
    step: str,
    new_hands: NewHands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    audits_hold: AuditsHold,
) -> None:
    now_ms = clock.freeze()
    old = new_hands()
    await old.lead()
    await old.serve()
    plain, near = task_at(now_ms + 1_600), task_at(now_ms)
    await submit(db, 0, [plain, near])
    clock.advance(2_000)
    await old.clock.measure()
    with old.db.gate(step) as gate:
        ticking = asyncio.create_task(old.due.serve())
        await gate.arrived()
        clock.advance(20_000)
        heir = new_hands()
        await heir.lead()
        await heir.serve()
        await audits_hold()
        published = await lanes.ids()
    with pytest.raises(LeadershipLost):
        await ticking
    await audits_hold()
    assert {plain.task_id, near.task_id} == set(published)
    # What was read before the step is published once more at most, by the heir; the zombie adds
    # nothing after it.
    assert await lanes.ids() == published
