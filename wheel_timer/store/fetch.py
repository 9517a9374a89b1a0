"""Fetch: references straight from requeue rows in Postgres. sql/migrations: wheel_fetch_v1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal
from uuid import UUID

from wheel_timer.database import Database
from wheel_timer.task import Ref

PAGE_ROWS: Final = 500


async def fetch(
    db: Database,
    shard: int,
    limits: Mapping[str, int],
    *,
    reason: Literal["overflow", "held"] = "overflow",
    visibility_ms: int,
    lookahead_ms: int,
) -> list[Ref]:
    """
    Take the first in line of each of these biz_types, at most so many; nobody else gets them.
    reason: held: not who stands in line, but what was put away while its lane was held.

    Their rows come again after visibility_ms. Raises DatabaseUnavailable; what was taken then comes
    again as well.
    """
    rows = await db.fetch(
        "fetch",
        {
            "shard": shard,
            "reason": reason,
            "biz_types": list(limits),
            "limits": list(limits.values()),
            "visibility_ms": visibility_ms,
            "lookahead_ms": lookahead_ms,
        },
    )
    return [Ref(*row) for row in rows]


async def unfetch(db: Database, shard: int, task_ids: Sequence[UUID]) -> None:
    """
    Let these come again at once, at most PAGE_ROWS: they were fetched, and are not called here.

    Raises DatabaseUnavailable; they come after their visibility time then.
    """
    assert len(task_ids) <= PAGE_ROWS, len(task_ids)
    await db.execute("unfetch", {"shard": shard, "task_ids": list(task_ids)})
