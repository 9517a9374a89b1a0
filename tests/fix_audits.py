"""What must hold after every fault: the audits find nothing, and no pending task is uncovered."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, LiteralString

import pytest_asyncio
from psycopg import AsyncConnection, IsolationLevel

from wheel_timer.store.audit import audit_files

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


# The first name on every search path is that of the session's temporary tables, so this copy is
# what a text that says `timer_task` reads. All texts then see the same moment, and none of them
# plans for a hundred partitions: that takes half a second for ten texts, and this runs everywhere.
# The lock comes before the snapshot, which would else find a partition empty that is emptied just
# before it is locked, and what of it was carried over would be missing.
COPY: Final[tuple[LiteralString, ...]] = (
    "LOCK TABLE timer_task IN ACCESS SHARE MODE",
    "CREATE TEMPORARY TABLE timer_task ON COMMIT DROP AS SELECT * FROM timer_task",
    "ANALYZE timer_task",
)


class Auditor:
    """Looks at one database again and again, over a connection of its own that stays open."""

    def __init__(self, database_url: str) -> None:
        self._url = database_url
        self._connection: AsyncConnection | None = None

    async def hold(self) -> None:
        """AssertionError with the rows that should not be."""
        if self._connection is None:
            self._connection = await AsyncConnection.connect(self._url)
            await self._connection.set_isolation_level(IsolationLevel.REPEATABLE_READ)
        texts = {"uncovered": UNCOVERED, "disorder": DISORDER}
        # `overdue` tells of lateness, which a test makes by moving the clock; it is no loss.
        texts |= {
            file.name: file.text
            for file in audit_files()
            if file.kind == "violation" and file.name != "overdue"
        }
        found = {}
        async with self._connection.transaction(force_rollback=True):
            for statement in COPY:
                await self._connection.execute(statement)
            for name, text in texts.items():
                rows = await (await self._connection.execute(text.encode())).fetchall()
                if rows:
                    found[name] = rows
        # In whole: pytest would cut short what it compares.
        if found:
            raise AssertionError(found)

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()


@pytest_asyncio.fixture
async def audits_hold(database_url: str) -> AsyncIterator[AuditsHold]:
    """`await audits_hold()`: at any moment of a test, not only at its end."""
    auditor = Auditor(database_url)
    yield auditor.hold
    await auditor.close()
