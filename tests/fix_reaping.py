"""Settled tasks with a retention, and how much of them there is left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands, ref_to, task_at
from tests.fix_sessions import Sessions
from tests.fix_tasks import submit_all
from wheel_timer.database import Database
from wheel_timer.store.claim import claim
from wheel_timer.store.settle import BATCH_ROWS_MAX, settle_final
from wheel_timer.task import NewTask, Result

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
PARTITION_MS: Final = 100_000_000
LAP_MS: Final = 10_000_000_000

# Rows of all that goes with tasks.
LEFT: Final = """
SELECT (SELECT count(*) FROM timer_task), (SELECT count(*) FROM timer_key),
    (SELECT count(*) FROM timer_attempt), (SELECT count(*) FROM timer_dead),
    (SELECT count(*) FROM timer_requeue)
"""


async def settle(
    db: Database, tasks: Sequence[NewTask], outcome: str = "finished", retention_ms: int = DAY_MS
) -> None:
    """Claim tasks whose moment has come, and end them all alike."""
    for first in range(0, len(tasks), BATCH_ROWS_MAX):
        refs = [ref_to(task) for task in tasks[first : first + BATCH_ROWS_MAX]]
        claims = (await claim(db, refs, [1000] * len(refs))).claims
        assert len(claims) == len(refs)
        await settle_final(
            db,
            [
                Result(
                    mine.task_id, mine.start_time_ms, mine.biz_type, mine.attempt, mine.revision,
                    outcome, http_status=500 if outcome == "failed" else 200,
                    started_ms=mine.first_attempt_ms, duration_ms=1, retention_ms=retention_ms,
                )
                for mine in claims
            ],
        )  # fmt: skip


async def move_on(hands: Hands, clock: DatabaseClock, to_ms: int) -> None:
    """It is to_ms, and the due and the sweep hand have come there."""
    clock.freeze(to_ms)
    await hands.serve()
    await hands.sweep.sweep_to(hands.due.current_ms)


async def left(sessions: Sessions) -> tuple[int, ...]:
    """Rows there are: tasks, keys, attempts, dead letters, requeue rows."""
    return await sessions.row(LEFT)


def slot_of(task: NewTask) -> int:
    """Where it is at home."""
    return task.start_time_ms // 1000 % 10_000_000


async def begin(hands: Hands, clock: DatabaseClock) -> int:
    """It is an hour behind the beginning of a partition; returns when that is."""
    now_ms = (clock.now_ms() // PARTITION_MS + 1) * PARTITION_MS + HOUR_MS
    await move_on(hands, clock, now_ms)
    return now_ms


async def due_now(
    hands: Hands, db: Database, clock: DatabaseClock, count: int, **fields: str
) -> list[NewTask]:
    """Tasks whose moment is now, an hour behind the beginning of a partition."""
    now_ms = await begin(hands, clock)
    tasks = [
        task_at(now_ms + 2_000, **{name: f"{text}-{n}" for name, text in fields.items()})
        for n in range(count)
    ]
    await submit_all(db, tasks)
    await move_on(hands, clock, now_ms + 2_000)
    return tasks
