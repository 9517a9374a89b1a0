"""What must hold after every fault: the audits find nothing, and no pending task is uncovered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

import psycopg
import pytest

from wheel_timer.database import Database
from wheel_timer.store.audit import run_audits

AuditsHold = Callable[[], Awaitable[None]]

# The invariant of docs/design.md, word for word and apart from sql/audit/lost.sql: a defect of
# that file would else hide the defect that it is there to find.
UNCOVERED: Final = """
SELECT t.task_id, t.start_time, p.sweep_time, p."current_time", q.due_at, q.reason
FROM timer_task AS t
JOIN timer_pointer AS p USING (shard)
LEFT JOIN timer_requeue AS q USING (task_id)
WHERE t.status = 0
    AND NOT (t.start_time > p.sweep_time OR coalesce(q.due_at > p."current_time", false))
"""
DISORDER: Final = """
SELECT p.shard, p.sweep_time, p."current_time", wheel_closed_to_v1(p.shard)
FROM timer_pointer AS p
WHERE NOT (p.sweep_time <= p."current_time" AND p."current_time" <= wheel_closed_to_v1(p.shard))
"""


async def check_audits(database_url: str) -> None:
    """AssertionError with the rows that should not be."""
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection:
        found: dict[str, list[tuple[Any, ...]]] = {
            "uncovered": await (await connection.execute(UNCOVERED)).fetchall(),
            "disorder": await (await connection.execute(DISORDER)).fetchall(),
        }
    db = Database(database_url, pool_size=1, name="audit")
    try:
        for audit in await run_audits(db):
            # `overdue` tells of lateness, which a test makes by moving the clock; it is no loss.
            if audit.kind == "violation" and audit.name != "overdue":
                found[audit.name] = audit.rows
    finally:
        await db.close()
    assert {name: [] for name in found} == found


@pytest.fixture
def audits_hold(database_url: str) -> AuditsHold:
    """`await audits_hold()`: at any moment of a test, not only at its end."""

    async def hold() -> None:
        await check_audits(database_url)

    return hold
