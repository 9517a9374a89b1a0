"""The reap hand: what has expired goes whole, with all that belongs to it; nothing else does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest

from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands, NewHands, task_at
from tests.fix_reaping import (
    DAY_MS,
    HOUR_MS,
    LAP_MS,
    PARTITION_MS,
    begin,
    due_now,
    left,
    move_on,
    settle,
    slot_of,
)
from tests.fix_sessions import Sessions
from tests.fix_tasks import submit_all
from wheel_timer.database import Database
from wheel_timer.errors import LeadershipLost
from wheel_timer.store.change import Change, change
from wheel_timer.store.task import lookup
from wheel_timer.task import NewTask

SIZE: Final = "SELECT pg_relation_size(wheel_partition_v1(%s))"
REAPED: Final = """
SELECT coalesce(sum(reaped_finished), 0), coalesce(sum(reaped_failed), 0),
    coalesce(sum(reaped_cancelled), 0)
FROM timer_ledger_view
"""


async def ids_left(db: Database, tasks: Sequence[NewTask]) -> set[int]:
    """The positions of those that are still there."""
    found = await lookup(db, [task.task_id for task in tasks])
    return {n for n, task in enumerate(tasks) if task.task_id in found}


@pytest.mark.parametrize("outcome", ["finished", "failed", "cancelled"])
async def test_an_expired_task_goes_with_all_that_belongs_to_it(
    outcome: str,
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    tasks = await due_now(hands, db, clock, 3, biz_id="order")
    await settle(db, tasks, outcome)
    has_attempts = 0 if outcome == "finished" else 3
    dead = 3 if outcome == "failed" else 0
    assert await left(sessions) == (3, 3, has_attempts, dead, 0)
    await move_on(hands, clock, clock.now_ms() + DAY_MS - 1)
    assert await hands.reap_all() == 0
    assert (await left(sessions))[0] == 3
    await move_on(hands, clock, clock.now_ms() + 2 * PARTITION_MS)
    assert await hands.reap_all() == 3
    assert await left(sessions) == (0, 0, 0, 0, 0)
    assert sum(await sessions.row(REAPED)) == 3
    assert await sessions.value(SIZE, slot_of(tasks[0])) == 0
    await audits_hold()


async def test_where_the_hands_stand_what_is_overdue_is_deleted_by_rows(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    """A retention of an hour: the partition is still under the hands when it is over."""
    tasks = await due_now(hands, db, clock, 2, biz_id="order")
    await settle(db, tasks[:1], retention_ms=HOUR_MS)
    clock.advance(HOUR_MS + 1)
    assert await hands.reap_all() == 0  # it may wait for a tenth of its retention more
    clock.advance(HOUR_MS // 10)
    assert await hands.reap_all() == 1
    assert await ids_left(db, tasks) == {1}
    assert (await left(sessions))[:2] == (1, 1)
    assert await sessions.value(SIZE, slot_of(tasks[0])) > 0
    await audits_hold()


async def test_what_lives_is_carried_over_a_truncate(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    """A dead letter, a task that waits for its retry and one of the next lap are in the way."""
    tasks = await due_now(hands, db, clock, 12, biz_id="order", biz_data="data")
    await settle(db, tasks[:8])
    await settle(db, tasks[8:9], "failed", retention_ms=90 * DAY_MS)
    now_ms = clock.now_ms()
    next_lap = task_at(now_ms + LAP_MS, biz_id="next", biz_data=b"x")
    await submit_all(db, [next_lap])
    await move_on(hands, clock, now_ms + 3 * PARTITION_MS)
    assert await hands.reap_all() == 8
    kept = [*tasks, next_lap]
    assert await ids_left(db, kept) == {8, 9, 10, 11, 12}
    assert await left(sessions) == (5, 5, 1, 1, 3)
    found = await lookup(db, [next_lap.task_id])
    assert found[next_lap.task_id].biz_data == b"x"
    await audits_hold()
    # Once the last of them has expired, too, nothing is left.
    await settle(db, tasks[9:])
    await change(db, [Change(next_lap.task_id, "cancel")])
    await move_on(hands, clock, now_ms + 100 * DAY_MS)
    assert await hands.reap_all() == 5
    assert await left(sessions) == (0, 0, 0, 0, 0)
    assert await sessions.row(REAPED) == (11, 1, 1)
    await audits_hold()


async def test_more_than_may_be_carried_stays_and_the_rest_goes_by_rows(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    tasks = await due_now(hands, db, clock, 3_000)
    await settle(db, tasks[:1_500])
    await settle(db, tasks[1_500:2_800], retention_ms=30 * DAY_MS)
    await move_on(hands, clock, clock.now_ms() + 3 * DAY_MS)
    assert await hands.reap_all() == 1_500
    assert await ids_left(db, tasks) == set(range(1_500, 3_000))
    await audits_hold()


async def test_a_moved_task_goes_with_the_row_at_its_home(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    """The home lies in another partition, ahead of the hands."""
    now_ms = await begin(hands, clock)
    away, other = [task_at(now_ms + 5 * DAY_MS, biz_id=f"order-{n}") for n in range(2)]
    await submit_all(db, [away, other])
    to_ms = now_ms + 2_000
    await change(db, [Change(away.task_id, "patch", to_time_ms=to_ms)])
    await move_on(hands, clock, to_ms)
    moved = NewTask(away.task_id, to_ms, away.biz_type)
    await settle(db, [moved])
    await move_on(hands, clock, now_ms + 6 * DAY_MS)
    await settle(db, [other], retention_ms=HOUR_MS)
    await move_on(hands, clock, now_ms + 6 * DAY_MS + 2 * HOUR_MS)
    assert await left(sessions) == (3, 2, 0, 0, 0)
    assert await hands.reap_all() == 2
    assert await left(sessions) == (0, 0, 0, 0, 0)
    await audits_hold()


async def test_a_home_forwards_until_its_task_has_expired(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    (task, done) = await due_now(hands, db, clock, 2, biz_id="order")
    later_ms = clock.now_ms() + 40 * DAY_MS
    await change(db, [Change(task.task_id, "patch", to_time_ms=later_ms)])
    await settle(db, [done])
    await move_on(hands, clock, clock.now_ms() + 3 * DAY_MS)
    assert await hands.reap_all() == 1
    found = await lookup(db, [task.task_id])
    assert found[task.task_id].start_time == later_ms
    await audits_hold()


async def test_a_key_that_leads_to_another_task_stays(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    (task,) = await due_now(hands, db, clock, 1, biz_id="order")
    await settle(db, [task])
    heir = task_at(clock.now_ms() + 60 * DAY_MS)
    await submit_all(db, [heir])
    session = await sessions.open()
    await session.execute("UPDATE timer_key SET task_id = %s", [heir.task_id])
    await move_on(hands, clock, clock.now_ms() + 3 * DAY_MS)
    assert await hands.reap_all() == 1
    assert await sessions.value("SELECT task_id FROM timer_key") == heir.task_id


async def test_an_old_leader_reaps_nothing(
    new_hands: NewHands, db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    old, new = new_hands(), new_hands()
    await old.lead()
    tasks = await due_now(old, db, clock, 1)
    await settle(db, tasks)
    await move_on(old, clock, clock.now_ms() + 3 * DAY_MS)
    await new.lead()
    with pytest.raises(LeadershipLost):
        await old.reap_all()
    assert (await left(sessions))[0] == 1
    assert await new.reap_all() == 1


async def test_reap_time_says_up_to_when_everything_is_gone(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    (task, last) = await due_now(hands, db, clock, 2)
    await settle(db, [task], retention_ms=HOUR_MS)
    await settle(db, [last], retention_ms=10 * DAY_MS)
    expire_ms = clock.now_ms() + HOUR_MS
    await move_on(hands, clock, expire_ms + 1_000)
    assert await hands.reap_all() == 0
    assert await sessions.value("SELECT reap_time FROM timer_pointer") == expire_ms - 1
    await move_on(hands, clock, expire_ms + 12 * DAY_MS)
    await hands.reap_all()
    assert await sessions.value("SELECT reap_time FROM timer_pointer") == expire_ms + 12 * DAY_MS


async def test_a_partition_nobody_writes_to_is_not_read_again(
    hands: Hands, db: Database, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    (task,) = await due_now(hands, db, clock, 1)
    await submit_all(db, [task_at(clock.now_ms() + 50 * DAY_MS)])
    await settle(db, [task], retention_ms=20 * DAY_MS)
    # The statistics of updates may come late, and bring one look more.
    for _ in range(2):
        clock.advance(HOUR_MS)
        await hands.reap_all()
    with monkeypatch.context() as patch:
        patch.setattr("daemon.reap.store.look", None)
        for _ in range(3):
            clock.advance(HOUR_MS)
            await hands.reap_all()
    await move_on(hands, clock, clock.now_ms() + 21 * DAY_MS)
    assert await hands.reap_all() == 1
