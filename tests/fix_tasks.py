"""Tasks in a state that a test wants, without the way there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from psycopg import AsyncConnection

from wheel_timer.database import Database
from wheel_timer.store.claim import BATCH_ROWS_MAX
from wheel_timer.store.submit import submit
from wheel_timer.task import NewTask, Status

# status, finish_time, expire_at less a day, http_status, task_ids: settled, and booked as such.
SETTLE: Final = """
WITH settled AS (
    UPDATE timer_task
    SET status = %s, finish_time = %s, expire_at = %s + 86400000, http_status = %s
    WHERE task_id = ANY (%s)
    RETURNING status, biz_type, start_time, create_time
)
SELECT wheel_ledger_v1(
    array_agg(16 << status), array_agg(biz_type), array_agg(start_time), array_agg(create_time)
)
FROM settled
"""


async def submit_all(db: Database, tasks: Iterable[NewTask]) -> list[NewTask]:
    """Put any number of tasks on the wheel; returns them in place order."""
    made = list(tasks)
    for first in range(0, len(made), BATCH_ROWS_MAX):
        await submit(db, 0, made[first : first + BATCH_ROWS_MAX])
    return sorted(made, key=lambda task: (task.start_time_ms, task.task_id))


async def settle_as(
    session: AsyncConnection[Any],
    tasks: Iterable[NewTask],
    status: Status,
    finish_ms: int,
    *,
    http_status: int | None = None,
) -> None:
    """Make pending tasks settled; a failed one gets its dead letter."""
    ids = [task.task_id for task in tasks]
    await session.execute(SETTLE, [int(status), finish_ms, finish_ms, http_status, ids])
    await session.execute("DELETE FROM timer_requeue WHERE task_id = ANY (%s)", [ids])
    if status is Status.FAILED:
        await session.execute(
            "INSERT INTO timer_dead (task_id, finish_time, biz_type, http_status)"
            " SELECT task_id, finish_time, biz_type, http_status FROM timer_task"
            " WHERE task_id = ANY (%s) AND status <> 4",
            [ids],
        )
