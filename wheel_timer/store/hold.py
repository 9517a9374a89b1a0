"""
Hold: what a held lane's references become; fetch.py brings them back.
sql/migrations/0010_limits.sql.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from wheel_timer.database import Database
from wheel_timer.store.place import by_partition
from wheel_timer.task import Ref

PAGE_ROWS: Final = 500


async def hold(db: Database, shard: int, refs: Sequence[Ref], due_ms: Sequence[int]) -> None:
    """
    See to it that these tasks of one shard come again at due_ms, not before; at most PAGE_ROWS.

    Those settled, moved, in a call, or waiting for their own retry are left alone. The references
    may be given up then. Safe to repeat.
    """
    rows = zip(refs, due_ms, strict=True)
    for run, batch in by_partition(rows, lambda row: (row[0].start_time_ms, row[0].task_id)):
        await db.execute(
            "hold",
            {
                "shard": shard,
                "slot_lo": run.slot_lo,
                "slot_hi": run.slot_hi,
                "task_ids": [ref.task_id for ref, _ in batch],
                "start_times": [ref.start_time_ms for ref, _ in batch],
                "due_ats": [due for _, due in batch],
            },
        )


async def recall(db: Database, shard: int, biz_type: str, spread_ms: int) -> int:
    """
    Let retries that wait for longer than spread_ms come within it, spread by chance; a page of
    them. Returns how many were looked at; fewer than PAGE_ROWS: that was all.
    """
    params = {"shard": shard, "biz_type": biz_type, "spread_ms": spread_ms, "limit": PAGE_ROWS}
    row = await db.fetch_one("recall", params)
    assert row is not None
    count: int = row[0]
    return count


async def held(db: Database) -> list[str]:
    """The biz_types of which tasks are held."""
    return [biz_type for (biz_type,) in await db.fetch("held", {})]
