"""The fold of the ledger: nothing left behind, nothing twice, and no cost for what lies behind."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import pytest
from psycopg import AsyncConnection

from daemon.ledger import PAGE_DELTAS, LedgerHand
from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands, NewHands, task_at
from tests.fix_sessions import Sessions
from tests.fix_tasks import submit_all
from wheel_timer import metrics
from wheel_timer.database import Database
from wheel_timer.errors import LeadershipLost
from wheel_timer.store.change import Change, change
from wheel_timer.store.ledger import Total, fold, totals
from wheel_timer.store.submit import submit

APPEND: Final = (
    b"SELECT wheel_ledger_v1(ARRAY[1], ARRAY['late'], ARRAY[0]::bigint[], ARRAY[0::bigint])"
)
SUBMITTED: Final = "SELECT coalesce(sum(submitted), 0) FROM timer_ledger_view"
FOLDED: Final = "SELECT coalesce(sum(submitted), 0) FROM timer_ledger"
MARK: Final = "SELECT folded_to FROM timer_ledger_mark"
LAST: Final = "SELECT pg_sequence_last_value('timer_ledger_delta_delta_id_seq')"


async def append(session: AsyncConnection[Any], times: int = 1) -> None:
    """What a writer does."""
    for _ in range(times):
        await session.execute(APPEND)


async def test_a_delta_that_is_committed_late_is_not_left_behind(
    hands: Hands, db: Database, sessions: Sessions
) -> None:
    """Its id was drawn before those that were folded meanwhile, more than once."""
    late, session = await sessions.open(), await sessions.open()
    await append(session, 3)
    async with late.transaction():
        await append(late)
        for total in (6, 9, 12):
            await append(session, 3)
            await fold(db, hands.leader.epoch, PAGE_DELTAS)
            assert await sessions.value(FOLDED) == total
            assert await sessions.value(SUBMITTED) == total
            assert await sessions.value(MARK) == 0
    assert await sessions.value(SUBMITTED) == 13
    assert await fold(db, hands.leader.epoch, PAGE_DELTAS) == 1
    assert [await sessions.value(q) for q in (FOLDED, SUBMITTED, MARK)] == [13, 13, 13]


async def test_a_delta_whose_writer_gave_up_holds_up_nothing(
    hands: Hands, db: Database, sessions: Sessions
) -> None:
    late, session = await sessions.open(), await sessions.open()
    async with late.transaction(force_rollback=True):
        await append(late)
        await append(session)
        assert await fold(db, hands.leader.epoch, PAGE_DELTAS) == 1
    assert await fold(db, hands.leader.epoch, PAGE_DELTAS) == 0
    assert await sessions.value(MARK) == await sessions.value(LAST) == 2
    assert await sessions.value(SUBMITTED) == 1


async def test_a_long_transaction_that_has_nothing_to_do_with_it_holds_up_nothing(
    hands: Hands, db: Database, sessions: Sessions
) -> None:
    """Neither a snapshot nor a writer of something else: only who may have drawn an id counts."""
    other, session = await sessions.open(), await sessions.open()
    await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await other.execute("UPDATE timer_meta SET shards = shards")
    await append(session)
    await fold(db, hands.leader.epoch, PAGE_DELTAS)
    assert await sessions.value(MARK) == 1


async def test_under_load_the_mark_follows(hands: Hands, db: Database, sessions: Sessions) -> None:
    """Somebody is always in the middle of a transaction, but never the same one for long."""
    first, second = await sessions.open(), await sessions.open()
    await first.execute("BEGIN")
    await append(first)
    marks = []
    for _ in range(4):
        await fold(db, hands.leader.epoch, PAGE_DELTAS)
        marks.append(await sessions.value(MARK))
        await second.execute("BEGIN")
        await append(second)
        await first.execute("COMMIT")
        first, second = second, first
    assert marks == [0, 1, 2, 3]
    await first.execute("COMMIT")
    assert await sessions.value(SUBMITTED) == 5


async def test_a_fold_goes_page_by_page_in_order(
    hands: Hands, db: Database, sessions: Sessions
) -> None:
    await append(await sessions.open(), 25)
    epoch = hands.leader.epoch
    found = []
    for _ in range(4):
        folded = await fold(db, epoch, 10)
        found.append((folded, await sessions.value(MARK), await sessions.value(SUBMITTED)))
    assert found == [(10, 10, 25), (10, 20, 25), (5, 25, 25), (0, 25, 25)]


async def test_two_folds_at_once_count_nothing_twice(
    hands: Hands, db: Database, sessions: Sessions
) -> None:
    session = await sessions.open()
    folds: list[asyncio.Task[int]] = []
    for _ in range(20):
        await append(session, 5)
        folds += [asyncio.create_task(fold(db, hands.leader.epoch, 7)) for _ in range(4)]
    while await fold(db, hands.leader.epoch, 7):
        pass
    await asyncio.gather(*folds)
    assert await sessions.value(FOLDED) == await sessions.value(SUBMITTED) == 100


async def test_a_leader_that_was_replaced_folds_nothing(
    hands: Hands, db: Database, new_hands: NewHands, sessions: Sessions
) -> None:
    await append(await sessions.open())
    with pytest.raises(LeadershipLost):
        await fold(db, hands.leader.epoch - 1, PAGE_DELTAS)
    assert [await sessions.value(query) for query in (FOLDED, SUBMITTED)] == [0, 1]


async def test_what_was_folded_costs_nothing_any_more_under_an_old_snapshot(
    hands: Hands, db: Database, sessions: Sessions
) -> None:
    """Its dead rows cannot be cleared away; a fold, and who reads the rest, must not see them."""
    old, session = await sessions.open(), await sessions.open()
    await old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await old.execute("SELECT 1")
    await session.execute(
        b"SELECT wheel_ledger_v1(array_agg(1), array_agg('b'::text), array_agg(n * 900000),"
        b" array_agg(0::bigint)) FROM generate_series(1, 20000::bigint) AS s(n)"
    )
    while await fold(db, hands.leader.epoch, PAGE_DELTAS):
        pass
    assert await sessions.value(MARK) == 20_000
    await append(session)
    found = await session.execute(
        b"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM timer_ledger_unfolded"
    )
    row = await found.fetchone()
    assert row is not None
    plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
    assert plan[0]["Plan"]["Actual Rows"] == 1
    assert plan[0]["Plan"]["Shared Hit Blocks"] + plan[0]["Plan"]["Shared Read Blocks"] < 20


async def test_the_hand_folds_what_a_look_has_found_and_shows_the_totals(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    audits_hold: AuditsHold,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An idle hand asks the database for nothing."""
    shown: list[dict[str, tuple[int, int]]] = []
    monkeypatch.setattr(metrics, "tasks_standing", shown.append)
    # The pointer is as old as the template that the database was made of: caught up with first.
    await hands.tick()
    ledger = LedgerHand(db=hands.db, leader=hands.leader)
    assert (await ledger.tick()).work == 0
    tasks = await submit_all(db, [task_at(clock.now_ms() + n * 60_000) for n in range(30)])
    with hands.db.gate("ledger_fold"):
        assert (await ledger.tick()).work == 0
    await change(db, [Change(task.task_id, "cancel") for task in tasks[:10]])
    woken: list[bool] = []
    hands.due._found_deltas = lambda: woken.append(True)
    await hands.tick()
    assert woken == [True]
    ledger.wake()
    ledger._shown_s = 0.0
    assert (await ledger.tick()).work > 0
    assert await totals(db) == [Total("orders", 20, 0)]
    assert shown[-1] == {"orders": (20, 0)}
    ledger.end()
    assert shown[-1] == {}
    woken.clear()
    await hands.tick()
    assert woken == []
    await audits_hold()


async def test_a_submit_that_is_undone_is_not_counted(
    db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    """The delta and the task are one transaction."""
    session = await sessions.open()
    await submit(db, 0, [task_at(clock.now_ms())])
    async with session.transaction(force_rollback=True):
        await append(session)
    assert await sessions.value(SUBMITTED) == 1
