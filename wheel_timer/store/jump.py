"""Accepting a jump of the database's clock: a number that every pulse carries to every process."""

from __future__ import annotations

from wheel_timer.database import Database


async def accept_jump(db: Database, ahead_ms: float, *, actor: str) -> None:
    """The database's clock is right, though ahead of the machine's by so much. Recorded."""
    await db.execute("accept_jump", {"ahead": round(ahead_ms), "actor": actor})
