"""Laps of the wheel with a fast clock: what comes in goes out again, and the disk stays flat."""

from __future__ import annotations

from typing import Final

from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands, task_at
from tests.fix_reaping import DAY_MS, LAP_MS, begin, left, move_on, settle
from tests.fix_sessions import Sessions
from tests.fix_tasks import submit_all
from wheel_timer.database import Database
from wheel_timer.store.change import Change, change
from wheel_timer.store.due import pass_barrier
from wheel_timer.task import NewTask

ROUNDS: Final = 6  # of a quarter of a lap
TASKS: Final = 300  # a round

# All that tasks are written to; the partitions are emptied, the others vacuumed.
SIZES: Final = """
SELECT CAST(sum(pg_relation_size(c.oid)) FILTER (WHERE c.relname ~ '^timer_task_') AS bigint),
    CAST(sum(pg_total_relation_size(c.oid)) AS bigint)
FROM pg_class AS c
WHERE c.relkind = 'r' AND c.relname ~ '^timer_(task_|key$|attempt$|dead$|requeue$)'
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
    await change(db, [Change(t.task_id, "cancel") for t in cancelled])
    await move_on(hands, clock, soon_ms + TASKS)
    await settle(db, failed, "failed", retention_ms=20 * DAY_MS)
    await settle(db, tasks[120:], retention_ms=10 * DAY_MS)
    await change(db, [Change(t.task_id, "replay") for t in failed[:10]])
    await settle(db, failed[:10], retention_ms=10 * DAY_MS)
    await move_on(hands, clock, soon_ms + 4 * DAY_MS)
    away = [NewTask(t.task_id, t.start_time_ms + 3 * DAY_MS, t.biz_type) for t in moved]
    await settle(db, away, retention_ms=10 * DAY_MS)
    await move_on(hands, clock, now_ms + LAP_MS // 4)


async def test_the_disk_stays_flat_over_several_laps(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    await begin(hands, clock)
    await pass_barrier(db, 0, 50)
    session = await sessions.open()
    sizes, later = [], 0
    for number in range(ROUNDS):
        await a_quarter(hands, db, clock, number)
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
        await session.execute("VACUUM timer_key, timer_attempt, timer_dead, timer_requeue")
        sizes.append(await sessions.row(SIZES))
        await audits_hold()
        # Only the tasks of later laps are there, and what a claim or a settle did to them.
        pending = 5 * min(number + 1, 4)
        assert await left(sessions) == (pending, pending, 0, 0, 0)
    assert later == 5 * (ROUNDS - 4)
    assert max(size for size, _ in sizes) <= 8192 * 8
    assert sizes[-1][1] <= sizes[3][1]
    submitted, waiting, settled = await sessions.row(BALANCE)
    assert (submitted, waiting, settled) == ((TASKS + 5) * ROUNDS, 5 * 4, 0)
