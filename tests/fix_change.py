"""Tasks in any state, and changes of mind about them."""

from __future__ import annotations

from typing import Any, Final

from tests.fix_clock import DatabaseClock
from tests.fix_hands import ref_to, task_at
from wheel_timer.database import Database
from wheel_timer.store.change import Change, Changed, Verb, change
from wheel_timer.store.claim import claim
from wheel_timer.store.settle import settle_final
from wheel_timer.store.submit import submit
from wheel_timer.store.task import TaskRow, lookup
from wheel_timer.task import Claim, NewTask, Result

TIMEOUT_MS: Final = 10_000
LEASE_MS: Final = TIMEOUT_MS + 5_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000
STATES: Final = ("waiting", "due", "delivering", "expired", "finished", "failed", "cancelled")
EVERYTHING: Final = """
SELECT
    (SELECT array_agg(t.* ORDER BY t.task_id, t.start_time)::text FROM timer_task AS t),
    (SELECT array_agg(q.* ORDER BY q.task_id)::text FROM timer_requeue AS q),
    (SELECT array_agg(a.* ORDER BY a.task_id, a.attempt)::text FROM timer_attempt AS a),
    (SELECT array_agg(d.* ORDER BY d.task_id)::text FROM timer_dead AS d),
    (SELECT array_agg(c.* ORDER BY c.change_id)::text FROM timer_change AS c)
"""
REQUEUED: Final = "SELECT due_at, start_time, reason FROM timer_requeue WHERE task_id = %s"


async def claimed(db: Database, task: NewTask, moment_ms: int | None = None) -> Claim:
    (mine,) = (await claim(db, [ref_to(task, moment_ms)], [TIMEOUT_MS])).claims
    return mine


def result_of(mine: Claim, outcome: str, **facts: Any) -> Result:
    return Result(
        mine.task_id, mine.start_time_ms, mine.biz_type, mine.attempt, mine.revision, outcome,
        **{"retention_ms": 60_000, "started_ms": mine.first_attempt_ms, **facts},
    )  # fmt: skip


async def task_in(state: str, db: Database, clock: DatabaseClock) -> NewTask:
    """A task in this state; the clock stands."""
    now_ms = clock.freeze()
    task = task_at(now_ms + DAY_MS if state == "waiting" else now_ms, biz_data=b"1")
    await submit(db, 0, [task])
    match state:
        case "delivering":
            await claimed(db, task)
        case "expired":
            await claimed(db, task)
            clock.advance(LEASE_MS + 1)
        case "finished" | "failed" | "cancelled":
            mine = await claimed(db, task)
            clock.advance(40)
            await settle_final(db, [result_of(mine, state, error="e", http_status=500)])
    return task


async def row_of(db: Database, task: NewTask) -> TaskRow:
    return (await lookup(db, [task.task_id]))[task.task_id]


async def one(db: Database, task: NewTask, verb: Verb, **what: Any) -> Changed:
    (changed,) = await change(db, [Change(task.task_id, verb, **{"actor": "local", **what})])
    return changed


def task_like(task: NewTask, start_time_ms: int) -> NewTask:
    """The same task where it is now."""
    return NewTask(task.task_id, start_time_ms, task.biz_type)
