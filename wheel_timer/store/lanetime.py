"""How long lanes held back what was due, and why, by the hour. sql/migrations/0010_limits.sql."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from wheel_timer.database import Database


class HeldTime(NamedTuple):
    """How long a lane has held back what was due, for one reason."""

    biz_type: str
    reason: str
    held_ms: int


async def held(db: Database, limit: int) -> list[HeldTime]:
    """Of this hour and the one before, the longest first."""
    return [HeldTime._make(row) for row in await db.fetch("lanes_held", {"limit": limit})]


async def add(db: Database, held_ms: Mapping[tuple[str, str], float]) -> None:
    """
    Add these (biz_type, reason) to this hour's, and forget what is two days old.

    Raises DatabaseUnavailable; said again, it would be added twice.
    """
    await db.execute(
        "add_lane_time",
        {
            "biz_types": [biz_type for biz_type, _ in held_ms],
            "reasons": [reason for _, reason in held_ms],
            "held_ms": [round(ms) for ms in held_ms.values()],
        },
    )
    await db.execute("drop_lane_time", {})
