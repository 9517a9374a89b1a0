"""Operations: each task once, whatever dies in between; stopped at once; nobody else's touched."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final
from uuid import uuid4

import pytest

from daemon import operations as module
from daemon.operations import Operator
from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands, NewHands, task_at
from tests.fix_sessions import Sessions
from tests.fix_tasks import settle_as, submit_all
from wheel_timer import signal
from wheel_timer.database import Database
from wheel_timer.store import operation as store
from wheel_timer.store.filter import Filter
from wheel_timer.store.operation import Action, OperationRow
from wheel_timer.store.task import lookup
from wheel_timer.task import NewTask, Status

DAY_MS: Final = 86_400_000


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_ROWS", 10)


def operator_of(hands: Hands) -> Operator:
    return Operator(
        db=hands.db, clock=hands.clock, leader=hands.leader, shards=1, lookahead_ms=1000
    )


async def begin(
    db: Database, action: Action, filter_: Filter | None = None, **how: Any
) -> OperationRow:
    return await store.create(
        db, uuid4(), action, filter_ or Filter(), actor="tester", recorded=b"{}", **how
    )


async def now_of(db: Database, operation: OperationRow) -> OperationRow:
    row = await store.get(db, operation.operation_id)
    assert row is not None
    return row


async def run_out(hands: Hands, operation: OperationRow) -> OperationRow:
    """Tick until it has ended."""
    await hands.clock.measure()
    operator = operator_of(hands)
    for _ in range(500):
        operator.wake()
        await operator.tick()
        operator._turns.clear()
        row = await now_of(hands.db, operation)
        if row.state != "running":
            return row
    raise AssertionError("the operation does not end")


def counts(row: OperationRow) -> tuple[int, ...]:
    return (row.matched, row.done, row.skipped, row.errors)


async def statuses(db: Database, tasks: Sequence[NewTask]) -> list[Status | None]:
    found = await lookup(db, [task.task_id for task in tasks])
    return [found[t.task_id].status if t.task_id in found else None for t in tasks]


async def test_cancel_takes_what_is_pending_and_fits(
    hands: Hands, db: Database, clock: DatabaseClock, small_chunks: None, audits_hold: AuditsHold
) -> None:
    now_ms = clock.now_ms()
    ours = await submit_all(db, [task_at(now_ms + n * DAY_MS, "mine") for n in range(35)])
    others = await submit_all(db, [task_at(now_ms + n * DAY_MS, "theirs") for n in range(35)])
    row = await run_out(hands, await begin(db, "cancel", Filter(biz_type="mine", status="pending")))
    assert (row.state, counts(row)) == ("done", (35, 35, 0, 0))
    assert row.finish_time is not None
    assert set(await statuses(db, ours)) == {Status.CANCELLED}
    assert set(await statuses(db, others)) == {Status.PENDING}
    await audits_hold()


@pytest.mark.parametrize("by_ms", [1, 5_000, 3 * DAY_MS, 120 * DAY_MS, -5_000])
async def test_shift_moves_each_task_once_however_far(
    by_ms: int,
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    small_chunks: None,
    audits_hold: AuditsHold,
) -> None:
    """It puts tasks ahead of itself, where it comes by later: it must not take them for others."""
    now_ms = clock.freeze()
    tasks = await submit_all(db, [task_at(now_ms + DAY_MS + n * 1_700) for n in range(60)])
    row = await run_out(hands, await begin(db, "shift", Filter(status="pending"), shift_ms=by_ms))
    assert (row.state, counts(row)) == ("done", (60, 60, 0, 0))
    found = await lookup(db, [task.task_id for task in tasks])
    assert [found[t.task_id].start_time - t.start_time_ms for t in tasks] == [by_ms] * 60
    await audits_hold()


async def test_run_and_replay_queue_behind_first_attempts(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    small_chunks: None,
    audits_hold: AuditsHold,
) -> None:
    now_ms = clock.freeze()
    session = await sessions.open()
    far = await submit_all(db, [task_at(now_ms + DAY_MS + n) for n in range(15)])
    dead = await submit_all(db, [task_at(now_ms - DAY_MS + n, "dead") for n in range(15)])
    await settle_as(session, dead, Status.FAILED, now_ms)
    clock.advance(1)
    ran = await run_out(hands, await begin(db, "run", Filter(biz_type="orders", status="pending")))
    replayed = await run_out(hands, await begin(db, "replay", Filter(status="failed")))
    assert [counts(ran), counts(replayed)] == [(15, 15, 0, 0)] * 2
    assert set(await statuses(db, [*far, *dead])) == {Status.PENDING}
    reasons = await sessions.value(
        "SELECT array_agg(DISTINCT reason ORDER BY reason) FROM timer_requeue"
    )
    assert reasons == ["replay", "run"]
    assert await sessions.value("SELECT count(*) FROM timer_dead") == 0
    await audits_hold()


async def test_a_replay_does_not_take_what_failed_again_meanwhile(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions, small_chunks: None
) -> None:
    """An endpoint that is still broken fails them as fast as they are replayed."""
    now_ms = clock.now_ms()
    session = await sessions.open()
    dead = await submit_all(db, [task_at(now_ms - DAY_MS + n) for n in range(25)])
    await settle_as(session, dead, Status.FAILED, now_ms)
    operation = await begin(db, "replay", Filter(status="failed"))
    await hands.clock.measure()
    operator = operator_of(hands)
    for _ in range(10):
        operator.wake()
        await operator.tick()
        operator._turns.clear()
        later_ms = clock.now_ms()
        await session.execute(
            "WITH again AS (UPDATE timer_task SET status = 2, finish_time = %s, expire_at = %s"
            " WHERE status = 0 RETURNING task_id, biz_type)"
            " INSERT INTO timer_dead (task_id, biz_type, finish_time)"
            " SELECT task_id, biz_type, %s FROM again",
            [later_ms, later_ms, later_ms],
        )
    row = await now_of(db, operation)
    assert (row.state, counts(row)) == ("done", (25, 25, 0, 0))


async def test_purge_leaves_nothing_of_a_task(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    small_chunks: None,
    audits_hold: AuditsHold,
) -> None:
    """Keys, requeue and dead rows, attempts, the forwarding row at home: all of them, or none."""
    now_ms = clock.now_ms()
    session = await sessions.open()
    near = await submit_all(db, [task_at(now_ms, "gone", biz_id=f"n{n}") for n in range(8)])
    dead = await submit_all(db, [task_at(now_ms + n, "gone", biz_id=f"d{n}") for n in range(8)])
    await settle_as(session, dead, Status.FAILED, now_ms)
    await session.execute(
        "INSERT INTO timer_attempt (task_id, attempt, life, outcome)"
        " SELECT task_id, 1, 1, 'failed' FROM timer_dead"
    )
    moved = await submit_all(
        db, [task_at(now_ms + DAY_MS + n, "gone", biz_id=f"m{n}") for n in range(8)]
    )
    await run_out(
        hands,
        await begin(
            db, "shift", Filter(start_from=now_ms + DAY_MS, status="pending"), shift_ms=DAY_MS
        ),
    )
    called = await submit_all(db, [task_at(now_ms + 5, "gone", biz_id="called")])
    kept = await submit_all(db, [task_at(now_ms, "kept", biz_id="n0")])
    await session.execute(
        "UPDATE timer_task SET lease_until = %s, attempts = 1 WHERE task_id = %s",
        [now_ms + DAY_MS, called[0].task_id],
    )
    await session.execute("INSERT INTO timer_biz VALUES ('gone', 1, '{}', '[]', 0, 0)")
    row = await run_out(hands, await begin(db, "purge", Filter(biz_type="gone")))
    assert (row.state, counts(row)) == ("done", (25, 24, 1, 0))
    gone = [*near, *dead, *moved]
    assert await statuses(db, gone) == [None] * 24
    left = await sessions.row(
        "SELECT (SELECT count(*) FROM timer_task), (SELECT count(*) FROM timer_key),"
        " (SELECT count(*) FROM timer_dead), (SELECT count(*) FROM timer_attempt),"
        " (SELECT array_agg(task_id) <@ %s FROM timer_requeue)",
        [kept[0].task_id, called[0].task_id],
    )
    assert left == (2, 2, 0, 0, True)
    await audits_hold()


@pytest.mark.parametrize("place", ["operation.selected", "operation.chunk"])
async def test_a_daemon_that_dies_in_the_middle_leaves_no_task_out_and_counts_none_twice(
    place: str,
    new_hands: NewHands,
    db: Database,
    clock: DatabaseClock,
    small_chunks: None,
    audits_hold: AuditsHold,
) -> None:
    now_ms = clock.now_ms()
    tasks = await submit_all(db, [task_at(now_ms + DAY_MS + n * 900) for n in range(45)])
    operation = await begin(db, "shift", Filter(status="pending"), shift_ms=60_000)
    hands = new_hands()
    await hands.lead()
    await hands.clock.measure()

    def die() -> None:
        raise KeyboardInterrupt

    for _ in range(3):
        operator = operator_of(hands)
        signal.on(place, die)
        with pytest.raises(KeyboardInterrupt):
            await operator.tick()
        signal.clear()
    row = await run_out(hands, operation)
    assert (row.state, counts(row)) == ("done", (45, 45, 0, 0))
    found = await lookup(db, [task.task_id for task in tasks])
    assert {found[t.task_id].start_time - t.start_time_ms for t in tasks} == {60_000}
    await audits_hold()


async def test_two_leaders_at_once_do_each_chunk_once(
    new_hands: NewHands, db: Database, clock: DatabaseClock, small_chunks: None
) -> None:
    """One was frozen before its chunk; the other has done it, and more."""
    now_ms = clock.now_ms()
    tasks = await submit_all(db, [task_at(now_ms + DAY_MS + n * 900) for n in range(30)])
    operation = await begin(db, "shift", Filter(status="pending"), shift_ms=60_000)
    frozen, heir = new_hands(), new_hands()
    await frozen.lead()
    await frozen.clock.measure()
    with frozen.db.gate("operate") as gate:
        late = asyncio.create_task(operator_of(frozen).tick())
        await gate.arrived()
        row = await run_out(heir, operation)
    await late
    assert (row.state, counts(row)) == ("done", (30, 30, 0, 0))
    assert counts(await now_of(db, operation)) == (30, 30, 0, 0)
    found = await lookup(db, [task.task_id for task in tasks])
    assert {found[t.task_id].start_time - t.start_time_ms for t in tasks} == {60_000}


async def test_a_stop_holds_for_the_chunk_that_has_begun(
    hands: Hands, db: Database, clock: DatabaseClock, small_chunks: None
) -> None:
    now_ms = clock.now_ms()
    tasks = await submit_all(db, [task_at(now_ms + DAY_MS + n) for n in range(30)])
    operation = await begin(db, "cancel", Filter(status="pending"))
    await hands.clock.measure()
    operator = operator_of(hands)
    await operator.tick()
    operator._turns.clear()
    with hands.db.gate("operate") as gate:
        second = asyncio.create_task(operator.tick())
        await gate.arrived()
        await store.stop(db, operation.operation_id, "tester")
    await second
    row = await now_of(db, operation)
    assert (row.state, counts(row)) == ("stopped", (10, 10, 0, 0))
    assert sorted(filter(None, await statuses(db, tasks))) == [Status.CANCELLED] * 10
    assert await store.running(db) == []


async def test_a_rate_bounds_what_is_done_and_spreads_what_becomes_due(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PACE_S", 10)
    now_ms = clock.freeze()
    await submit_all(db, [task_at(now_ms + DAY_MS + n) for n in range(40)])
    await begin(db, "run", Filter(status="pending"), rate=1.0)
    await hands.clock.measure()
    operator = operator_of(hands)
    works = [(await operator.tick()).work for _ in range(3)]
    assert works == [10, 0, 0]
    low_ms, high_ms, count = await sessions.row(
        "SELECT min(due_at), max(due_at), count(DISTINCT due_at) FROM timer_requeue"
    )
    assert count == 10
    assert 8_000 <= high_ms - low_ms <= 9_000


async def test_a_row_that_postgres_refuses_is_counted_and_the_others_are_changed(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions, small_chunks: None
) -> None:
    now_ms = clock.now_ms()
    tasks = await submit_all(db, [task_at(now_ms + DAY_MS + n * 1000) for n in range(20)])
    session = await sessions.open()
    refused_ms = tasks[3].start_time_ms + 60_000
    await session.execute(
        f"ALTER TABLE timer_task ADD CONSTRAINT refused CHECK (start_time <> {refused_ms})".encode()
    )
    row = await run_out(hands, await begin(db, "shift", Filter(status="pending"), shift_ms=60_000))
    assert (row.state, counts(row)) == ("done", (20, 19, 0, 1))


async def test_what_changes_between_the_look_and_the_chunk_is_skipped(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions, small_chunks: None
) -> None:
    now_ms = clock.now_ms()
    tasks = await submit_all(db, [task_at(now_ms + DAY_MS + n) for n in range(10)])
    operation = await begin(db, "shift", Filter(status="pending"), shift_ms=60_000)
    await hands.clock.measure()
    session = await sessions.open()
    with hands.db.gate("operate") as gate:
        ticking = asyncio.create_task(operator_of(hands).tick())
        await gate.arrived()
        await session.execute(
            "UPDATE timer_task SET revision = revision + 1 WHERE task_id = ANY (%s)",
            [[task.task_id for task in tasks[:4]]],
        )
    await ticking
    row = await run_out(hands, operation)
    assert counts(row)[:3] == (10, 6, 4)


async def test_an_operation_that_cannot_go_on_ends_and_others_go_on(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    """A filter that a newer release wrote: its leader is this one all the same."""
    now_ms = clock.now_ms()
    await submit_all(db, [task_at(now_ms + DAY_MS)])
    broken = await begin(db, "cancel", Filter(biz_type="orders", status="pending"))
    session = await sessions.open()
    await session.execute(
        "UPDATE timer_operation SET shift_ms = NULL, action = 'shift' WHERE operation_id = %s",
        [broken.operation_id],
    )
    sound = await begin(db, "cancel", Filter(status="pending"))
    row = await run_out(hands, sound)
    assert (row.state, row.done) == ("done", 1)
    ended = await now_of(db, broken)
    assert (ended.state, ended.error) == ("failed", "error in the daemon: AssertionError")
    assert hands.leader.is_leader
