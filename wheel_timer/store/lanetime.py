"""How long lanes held back what was due, and why, by the hour. sql/migrations/0010_limits.sql."""

from __future__ import annotations

from collections.abc import Mapping

from wheel_timer.database import Database


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
