"""What must hold after every fault: the audits find nothing, and no pending task is uncovered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import pytest_asyncio

from wheel_timer.database import Database
from wheel_timer.store.audit import TIMEOUT_S, run_audits

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


class Auditor:
    """Looks at one database again and again, over connections of its own that stay open: the first
    look of a session at a hundred partitions takes longer than all the rest."""

    def __init__(self, database_url: str) -> None:
        self._db = Database(database_url, pool_size=1, name="audit")

    async def hold(self) -> None:
        """AssertionError with the rows that should not be."""
        found: dict[str, list[tuple[Any, ...]]] = {}
        for name, query in (("uncovered", UNCOVERED), ("disorder", DISORDER)):
            _, found[name] = await self._db.read(query, timeout_s=TIMEOUT_S)
        for audit in await run_audits(self._db):
            # `overdue` tells of lateness, which a test makes by moving the clock; it is no loss.
            if audit.kind == "violation" and audit.name != "overdue":
                found[audit.name] = audit.rows
        assert {name: [] for name in found} == found

    async def close(self) -> None:
        await self._db.close()


@pytest_asyncio.fixture
async def audits_hold(database_url: str) -> AsyncIterator[AuditsHold]:
    """`await audits_hold()`: at any moment of a test, not only at its end."""
    auditor = Auditor(database_url)
    yield auditor.hold
    await auditor.close()
