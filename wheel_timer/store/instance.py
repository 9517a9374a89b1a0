"""timer_meta.instance: whose processes may run on this database."""

from __future__ import annotations

from wheel_timer.database import Database


async def adopt(db: Database, instance: str, *, reason: str | None, actor: str) -> str | None:
    """
    Take the database over for an instance; a reason puts the brake on in the same transaction.

    Returns whose it was. Safe to repeat. Raises DatabaseUnavailable, SchemaMismatch.
    """
    row = await db.fetch_one("adopt", {"instance": instance, "reason": reason, "actor": actor})
    assert row is not None
    before: str | None = row[0]
    return before
