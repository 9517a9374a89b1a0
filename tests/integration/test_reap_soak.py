"""Laps of the wheel with a fast clock: what comes in goes out again, and the disk stays flat."""

from __future__ import annotations

from itertools import pairwise
from typing import Final
from uuid import uuid4

from daemon.reap import ReapHand
from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands, task_at
from tests.fix_reaping import DAY_MS, LAP_MS, begin, left, move_on, settle
from tests.fix_sessions import Sessions
from tests.fix_tasks import submit_all
from wheel_timer.biz import BizTypeIn
from wheel_timer.database import Database
from wheel_timer.store import biz as store_biz
from wheel_timer.store import keys, lanetime, node, operation
from wheel_timer.store.change import Change, change
from wheel_timer.store.due import pass_barrier
from wheel_timer.store.filter import Filter
from wheel_timer.store.ledger import fold
from wheel_timer.task import NewTask

ROUNDS: Final = 14  # of a quarter of a lap: three laps and a half
TASKS: Final = 300  # a round
# Of records, which would be 400 days: so it is over within the soak.
RETENTION_S: Final = 40 * 86_400.0
# From here on nothing grows: what a lap leaves is there, and what outlives one.
FLAT_FROM: Final = 5
LAP_ROUNDS: Final = 4
# A vacuum leaves what some other session may still see: the next round's rows lie beside it then.
# What was never given back would be half as much again after another lap.
BLOAT: Final = 1.4
PAGE_BYTES: Final = 8192

# Kept for ever: of tasks that are gone a row for each day and biz_type.
BY_DAY: Final = {"timer_ledger", "timer_ledger_day"}

# Every table there is, the partitions of the wheel as one: these are emptied, the others vacuumed.
SIZES: Final = """
SELECT CASE WHEN c.relname ~ '^timer_task_[0-9]' THEN 'timer_task' ELSE c.relname END,
    CAST(sum(pg_total_relation_size(c.oid)) AS bigint), CAST(sum(pg_relation_size(c.oid)) AS bigint)
FROM pg_class AS c
WHERE c.relkind = 'r' AND c.relname ~ '^timer_' AND c.relnamespace = 'public'::regnamespace
GROUP BY 1
"""
BALANCE: Final = """
SELECT sum(submitted), sum(pending),
    sum(finished + failed + cancelled - revived
        - reaped_finished - reaped_failed - reaped_cancelled)
FROM timer_ledger_view
"""


async def a_quarter(hands: Hands, db: Database, clock: DatabaseClock, number: int) -> None:
    """Tasks of all kinds, their ends, and a quarter of a lap."""
    now_ms = clock.now_ms()
    soon_ms = now_ms + 5_000
    tasks = [
        task_at(soon_ms + n, biz_id=f"{number}-{n}" if n % 2 else None, biz_data=b"x" * 500)
        for n in range(TASKS)
    ]
    # Of the next lap: it lies where this lap's tasks are reaped.
    later = [task_at(soon_ms + n + LAP_MS, biz_id=f"{number}-later-{n}") for n in range(5)]
    await submit_all(db, [*tasks, *later])
    moved, cancelled, failed = tasks[:20], tasks[20:60], tasks[60:120]
    await change(
        db, [Change(t.task_id, "patch", to_time_ms=t.start_time_ms + 3 * DAY_MS) for t in moved]
    )
    await change(db, [Change(t.task_id, "cancel", actor="a") for t in cancelled])
    await move_on(hands, clock, soon_ms + TASKS)
    await settle(db, failed, "failed", retention_ms=20 * DAY_MS)
    await settle(db, tasks[120:], retention_ms=10 * DAY_MS)
    await change(db, [Change(t.task_id, "replay") for t in failed[:10]])
    await settle(db, failed[:10], retention_ms=10 * DAY_MS)
    await move_on(hands, clock, soon_ms + 4 * DAY_MS)
    away = [NewTask(t.task_id, t.start_time_ms + 3 * DAY_MS, t.biz_type) for t in moved]
    await settle(db, away, retention_ms=10 * DAY_MS)
    await move_on(hands, clock, now_ms + LAP_MS // 4)


async def some_records(db: Database, number: int) -> None:
    """Beside the tasks: a biz_type is changed, a key and an operation end, a lane holds
    back."""
    await store_biz.put(db, "orders", BizTypeIn(callback_url=f"https://example.com/{number}"))
    key_id = f"key{number}"
    await keys.create(
        db, "a", key_id, name="n", scopes=["read"], biz_types=[], secret=b"s", expire_at_ms=None
    )
    assert await keys.revoke(db, "a", key_id)
    await lanetime.add(db, {("orders", reason): 1_000 for reason in ("paused", "concurrency")})
    id_ = uuid4()
    await operation.create(db, id_, "cancel", Filter(biz_type="orders"), actor="a", recorded=b"{}")
    await operation.stop(db, id_, "a")
    await node.beat(db, f"broker-{number}", "broker", "1", None)


async def test_the_disk_stays_flat_over_several_laps(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    await begin(hands, clock)
    await pass_barrier(db, 0, 50)
    hands.reap = ReapHand(
        db=hands.db, clock=hands.clock, leader=hands.leader, shards=1, retention_s=RETENTION_S
    )
    session = await sessions.open()
    stands: list[dict[str, tuple[int, int]]] = []
    wheel_bytes, later = [], 0
    for number in range(ROUNDS):
        await a_quarter(hands, db, clock, number)
        await some_records(db, number)
        if number >= 4:
            # What was submitted a lap ago has come due.
            due = await session.execute(
                "SELECT task_id, start_time FROM timer_task WHERE status = 0 AND start_time < %s",
                [clock.now_ms()],
            )
            rows = [NewTask(row[0], row[1], "orders") for row in await due.fetchall()]
            later += len(rows)
            await settle(db, rows, retention_ms=0)
        await hands.reap_all()
        await fold(db, hands.leader.epoch, 10_000)
        found = await (await session.execute(SIZES)).fetchall()
        tables = {name: sizes for name, *sizes in found}
        await session.execute(f"VACUUM {', '.join(tables.keys() - {'timer_task'})}".encode())
        wheel_bytes.append(tables["timer_task"][1])
        stands.append(
            {
                name: (size, await sessions.value(f"SELECT count(*) FROM {name}"))
                for name, (size, _) in tables.items()
            }
        )
        await audits_hold()
        # Only the tasks of later laps are there, and what a claim or a settle did to them.
        pending = 5 * min(number + 1, 4)
        assert await left(sessions) == (pending, pending, 0, 0, 0)
    assert later == 5 * (ROUNDS - 4)
    assert max(wheel_bytes) <= 8 * PAGE_BYTES
    for before, after in pairwise(stands[FLAT_FROM:]):
        assert {
            name: (before[name], stand)
            for name, stand in after.items()
            if stand[1] > before[name][1] and name not in BY_DAY
        } == {}
    first, last = stands[FLAT_FROM : FLAT_FROM + LAP_ROUNDS], stands[-LAP_ROUNDS:]
    largest = {name: max(stand[name][0] for stand in first) for name in last[0]}
    assert {
        name: (largest[name], stand[name][0])
        for stand in last
        for name in stand
        if stand[name][0] > BLOAT * largest[name]
    } == {}
    submitted, waiting, settled = await sessions.row(BALANCE)
    assert (submitted, waiting, settled) == ((TASKS + 5) * ROUNDS, 5 * 4, 0)
