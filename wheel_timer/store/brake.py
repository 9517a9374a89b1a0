"""timer_brake: the brake of the whole wheel. Brokers read it with the biz_types: store/biz.py."""

from __future__ import annotations

import msgspec

from wheel_timer.database import Database


class Brake(msgspec.Struct, frozen=True):
    """The brake of the whole wheel, on: nothing new is called. since_ms: the database's clock."""

    reason: str
    since_ms: int
    actor: str


async def pull_brake(db: Database, reason: str | None, *, actor: str) -> Brake | None:
    """Put the brake on, for a reason, or take it off (None). The brake as it stands now."""
    row = await db.fetch_one("brake", {"actor": actor, "reason": reason})
    assert row is not None
    since_ms, by, stands = row
    return None if stands is None else Brake(stands, since_ms, by)
