"""The reap hand against everybody else: whoever comes in between loses nothing by it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
from psycopg import AsyncConnection

from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands, NewHands, ref_to, task_at
from tests.fix_lanes import Lanes
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
from wheel_timer import signal
from wheel_timer.database import Database
from wheel_timer.errors import LeadershipLost
from wheel_timer.store import reap as store
from wheel_timer.store.change import Change, change
from wheel_timer.store.claim import claim
from wheel_timer.store.settle import settle_again
from wheel_timer.store.submit import submit
from wheel_timer.store.task import lookup
from wheel_timer.task import NewTask, Result, Status

TRUNCATE: Final = "SELECT verdict FROM wheel_reap_truncate_v1(%s, %s, 1000, 1000000, 1000)"
REAP: Final = "SELECT FROM wheel_reap_v1(%s, 0::smallint, %s, 0, 1000, true, 1000)"


def first_slot(task: NewTask) -> int:
    return slot_of(task) // 100_000 * 100_000


async def expired(hands: Hands, clock: DatabaseClock) -> None:
    """Retentions of a day are over, and the hands are partitions away."""
    await move_on(hands, clock, clock.now_ms() + 3 * PARTITION_MS)


@asynccontextmanager
async def in_the_middle_of(
    sessions: Sessions, query: str, *params: object
) -> AsyncIterator[AsyncConnection[Any]]:
    """What the reap hand does, done and not committed before the block is left."""
    session = await sessions.open()
    async with session.transaction():
        await session.execute(query.encode(), params)
        yield session


async def test_a_get_that_waits_for_a_truncate_finds_what_was_carried_over(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    gone, task = await due_now(hands, db, clock, 2)
    await settle(db, [gone])
    await settle(db, [task], "failed", retention_ms=90 * DAY_MS)
    await expired(hands, clock)
    async with in_the_middle_of(sessions, TRUNCATE, hands.leader.epoch, first_slot(task)):
        asking = asyncio.create_task(lookup(db, [gone.task_id, task.task_id]))
        await sessions.until_waiting("wheel_find_v1")
    found = await asking
    assert list(found) == [task.task_id]
    assert found[task.task_id].status is Status.FAILED


async def test_the_due_hand_that_waits_for_a_truncate_keeps_the_requeue_row(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    """The task waits for its retry; were it taken for gone, its row would be dropped: lost."""
    gone, task = await due_now(hands, db, clock, 2)
    await settle(db, [gone])
    (mine,) = (await claim(db, [ref_to(task)], [1000])).claims
    retry = Result(
        mine.task_id, mine.start_time_ms, "orders", mine.attempt, mine.revision, "retry",
        delay_ms=3 * PARTITION_MS + 1_500,
    )  # fmt: skip
    await settle_again(db, 0, [retry])
    await lanes.lose()
    await expired(hands, clock)
    clock.advance(1_500)
    async with in_the_middle_of(sessions, TRUNCATE, hands.leader.epoch, first_slot(task)):
        serving = asyncio.create_task(hands.serve())
        await sessions.until_waiting("wheel_requeue_due_v1")
    await serving
    assert await lanes.ids() == [task.task_id]
    assert (await left(sessions))[-1] == 1
    await audits_hold()


async def test_a_submit_for_the_partition_that_is_emptied_waits_and_is_there(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    (gone,) = await due_now(hands, db, clock, 1)
    await settle(db, [gone])
    await expired(hands, clock)
    far = task_at(gone.start_time_ms + LAP_MS)
    async with in_the_middle_of(sessions, TRUNCATE, hands.leader.epoch, first_slot(gone)):
        submitting = asyncio.create_task(submit(db, 0, [far]))
        await sessions.until_waiting("wheel_submit")
    await submitting
    assert list(await lookup(db, [gone.task_id, far.task_id])) == [far.task_id]
    await audits_hold()


async def test_a_writer_inside_the_partition_keeps_it_from_being_emptied(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    """A far task, written and not committed: the truncate does not wait for it, nor misses it."""
    gone, *_ = await due_now(hands, db, clock, 3)
    await settle(db, [gone])
    await expired(hands, clock)
    far = task_at(gone.start_time_ms + LAP_MS)
    slot_lo = first_slot(gone)
    writer = await sessions.open()
    async with writer.transaction():
        await writer.execute(
            "INSERT INTO timer_task (slot, shard, start_time, task_id, create_time, biz_type)"
            " VALUES (%s, 0, %s, %s, %s, 'orders')",
            [slot_of(far), far.start_time_ms, far.task_id, clock.now_ms()],
        )
        await writer.execute(
            "SELECT wheel_ledger_v1(ARRAY[1], ARRAY['orders'], ARRAY[%s], ARRAY[%s])",
            [far.start_time_ms, clock.now_ms()],
        )
        assert (await store.truncate(hands.db, hands.leader.epoch, slot_lo)).verdict == "busy"
    truncated = await store.truncate(hands.db, hands.leader.epoch, slot_lo)
    assert (truncated.verdict, truncated.carried, truncated.reaped.tasks) == ("done", 3, 1)
    await audits_hold()


@pytest.mark.parametrize("query", ["reap", "reap_truncate"])
async def test_a_task_revived_after_the_look_stays(
    query: str,
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    """Replayed when it had been seen expired, before its row is locked."""
    fields = {"biz_id": "order"} if query == "reap" else {}
    gone, task, *_ = await due_now(hands, db, clock, 3, **fields)
    await settle(db, [gone, task])
    await expired(hands, clock)
    with hands.db.gate(query) as gate:
        reaping = asyncio.create_task(hands.reap_all())
        await gate.arrived()
        (replayed,) = await change(db, [Change(task.task_id, "replay")])
        assert replayed.verdict == "done"
    assert await reaping == 1
    found = await lookup(db, [gone.task_id, task.task_id])
    assert [row.status for row in found.values()] == [Status.PENDING]
    await audits_hold()


async def test_a_task_revived_while_the_reaper_waits_for_its_lock_stays(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    gone, task = await due_now(hands, db, clock, 2, biz_id="order")
    await settle(db, [gone, task])
    await expired(hands, clock)
    holder = await sessions.open()
    async with holder.transaction():
        # The reaper has picked both by now, and comes for their rows after their keys.
        await holder.execute("SELECT FROM timer_key FOR UPDATE")
        reaping = asyncio.create_task(hands.reap_all())
        await sessions.until_waiting("wheel_reap_v1")
        await change(db, [Change(task.task_id, "replay")])
    assert await reaping == 1
    assert (await left(sessions))[:2] == (1, 1)
    assert await sessions.value("SELECT task_id FROM timer_key") == task.task_id
    await audits_hold()


@pytest.mark.parametrize("is_reaped", [True, False])
async def test_a_submit_of_a_biz_id_that_is_being_reaped_waits_for_what_comes_of_it(
    is_reaped: bool,
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    (task,) = await due_now(hands, db, clock, 1, biz_id="order")
    await settle(db, [task])
    await expired(hands, clock)
    again = task_at(clock.now_ms() + DAY_MS, biz_id="order-0")
    session = await sessions.open()
    async with session.transaction(force_rollback=not is_reaped):
        await session.execute(REAP, [hands.leader.epoch, first_slot(task)])
        submitting = asyncio.create_task(submit(db, 0, [again]))
        await sessions.until_waiting("wheel_submit")
    (submitted,) = await submitting
    kept = again if is_reaped else task
    assert submitted.existing == (None if is_reaped else task.task_id)
    assert await sessions.value("SELECT task_id FROM timer_key") == kept.task_id
    assert list(await lookup(db, [task.task_id, again.task_id])) == [kept.task_id]
    await audits_hold()


LOCKS_WAITED_FOR = """
SELECT count(*) FROM pg_locks JOIN pg_database AS d ON d.oid = database
WHERE NOT granted AND d.datname = current_database()
"""


async def test_a_partition_that_somebody_reads_for_hours_is_reaped_by_rows(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dump holds a share lock on everything; the hand asks, gives up, and deletes. A lock that it
    went on waiting for would make every writer of the partition wait behind it."""
    monkeypatch.setattr("daemon.reap.BUSY_MAX", 2)
    tasks = await due_now(hands, db, clock, 5)
    await settle(db, tasks)
    await expired(hands, clock)
    dump = await sessions.open()
    async with dump.transaction():
        await dump.execute("LOCK TABLE timer_task IN ACCESS SHARE MODE")
        assert await hands.reap_all() == 0
        assert await sessions.value(LOCKS_WAITED_FOR) == 0
        await submit(db, 0, [task_at(tasks[0].start_time_ms + LAP_MS)])
        clock.advance(HOUR_MS)
        assert await hands.reap_all() == 5
    assert (await left(sessions))[0] == 1


async def test_what_is_too_large_to_be_looked_through_under_the_lock_goes_by_rows(
    hands: Hands, db: Database, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "HOLD_MS", -1)
    tasks = await due_now(hands, db, clock, 5)
    await settle(db, tasks)
    await expired(hands, clock)
    truncated = await store.truncate(hands.db, hands.leader.epoch, first_slot(tasks[0]))
    assert truncated.verdict == "slow"
    assert await hands.reap_all() == 5


async def test_payloads_too_large_to_be_carried_over_stay_where_they_are(
    hands: Hands, db: Database, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "CARRY_BYTES_MAX", 10)
    tasks = await due_now(hands, db, clock, 5, biz_data="x" * 20)
    await settle(db, tasks[:4])
    await expired(hands, clock)
    truncated = await store.truncate(hands.db, hands.leader.epoch, first_slot(tasks[0]))
    assert truncated.verdict == "alive"
    assert await hands.reap_all() == 4
    assert len(await lookup(db, [task.task_id for task in tasks])) == 1


async def test_the_partition_of_the_hands_is_not_emptied(
    hands: Hands, db: Database, clock: DatabaseClock
) -> None:
    """Nor one that the sweep has still to pass, however far the due hand is ahead."""
    (task,) = await due_now(hands, db, clock, 1)
    await settle(db, [task], retention_ms=0)
    clock.advance(PARTITION_MS * 2)
    await hands.serve()
    slot_lo = first_slot(task)
    epoch = hands.leader.epoch
    assert (await store.truncate(hands.db, epoch, slot_lo)).verdict == "hands"
    await hands.sweep.sweep_to(hands.due.current_ms)
    assert (await store.truncate(hands.db, epoch, slot_lo)).verdict == "done"


async def test_the_hands_partitions_are_all_between_the_sweep_and_the_clock(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    """Over the ring's end, too."""
    lap_ms = (clock.now_ms() // LAP_MS + 1) * LAP_MS
    await move_on(hands, clock, lap_ms - PARTITION_MS - HOUR_MS)
    clock.freeze(lap_ms + HOUR_MS)
    await hands.serve()
    under = [one.slot_lo for one in await store.partitions(db) if one.is_under_hands]
    assert under == [0, 9_800_000, 9_900_000]
    await move_on(hands, clock, lap_ms + PARTITION_MS - 60_000)
    under = [one.slot_lo for one in await store.partitions(db) if one.is_under_hands]
    assert under == [0, 100_000]


async def test_an_old_leader_empties_nothing(
    new_hands: NewHands, db: Database, clock: DatabaseClock
) -> None:
    old, new = new_hands(), new_hands()
    await old.lead()
    (task,) = await due_now(old, db, clock, 1)
    await settle(db, [task])
    await expired(old, clock)
    await new.lead()
    with pytest.raises(LeadershipLost):
        await store.truncate(db, old.leader.epoch, first_slot(task))
    with pytest.raises(LeadershipLost):
        await store.advance(db, old.leader.epoch, clock.now_ms())
    assert await lookup(db, [task.task_id])


@pytest.mark.parametrize("point", ["reap.looked", "reap.deleted", "reap.truncated", "reap.records"])
async def test_a_leader_that_dies_between_two_steps_leaves_whole_tasks_to_its_heir(
    point: str,
    new_hands: NewHands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    class Died(Exception):
        pass

    def die() -> None:
        raise Died

    hands = new_hands()
    await hands.lead()
    now_ms = await begin(hands, clock)
    with_keys = [task_at(now_ms + 2_000, biz_id=f"order-{n}") for n in range(20)]
    alone = [task_at(now_ms + 2_000) for _ in range(20)]
    living = task_at(now_ms + 2_000, biz_id="living")
    await submit_all(db, [*with_keys, *alone, living])
    await move_on(hands, clock, now_ms + 2_000)
    await settle(db, with_keys, "failed")
    await settle(db, alone)
    await expired(hands, clock)
    signal.on(point, die)
    with pytest.raises(Died):
        await hands.reap_all()
    signal.clear()
    await audits_hold()
    heir = new_hands()
    await heir.lead()
    await heir.reap_all()
    assert await left(sessions) == (1, 1, 0, 0, 1)
    await audits_hold()
