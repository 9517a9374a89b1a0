"""Leader: the lease, the epoch and the lock of a shard."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from wheel_timer.database import Database, Session


class Term(NamedTuple):
    """One leadership: its epoch, and where the hands stood when it began (ms)."""

    epoch: int
    current_time_ms: int
    sweep_time_ms: int


class Poll(NamedTuple):
    """locked: the leader's lock fell and is ours now. expired: the lease has run out."""

    locked: bool
    expired: bool


class Renewed(NamedTuple):
    """kept: the shard is led under our epoch still. locked: the leader's lock is ours."""

    kept: bool
    locked: bool


async def poll(session: Session, shard: int) -> Poll:
    """Look whether the shard can be had. The lock, once taken, is held by `session`."""
    row = await session.fetch_one("lead_poll", {"shard": shard})
    assert row is not None
    return Poll._make(row)


async def take(
    session: Session, shard: int, leader: str, lease_ms: int, *, locked: bool
) -> Term | None:
    """Begin a term under the next epoch; None: somebody was faster, and a lock is let go."""
    row = await session.fetch_one(
        "lead_take", {"shard": shard, "leader": leader, "lease_ms": lease_ms, "locked": locked}
    )
    return Term._make(row) if row else None


async def renew(
    session: Session, shard: int, epoch: int, lease_ms: int, *, locked: bool
) -> Renewed:
    """Extend the lease, 0 ms gives it back; try for the lock where it is not ours yet."""
    row = await session.fetch_one(
        "lead_renew", {"shard": shard, "epoch": epoch, "lease_ms": lease_ms, "locked": locked}
    )
    assert row is not None
    return Renewed._make(row)


async def unlock(session: Session, shard: int) -> None:
    """Let the leader's lock go."""
    await session.fetch_one("lead_unlock", {"shard": shard})


async def raise_epoch(db: Database, shard: int, epoch: int, seen: int) -> int | None:
    """Lift our epoch above one seen elsewhere; returns it, None where somebody else leads."""
    row = await db.fetch_one("lead_raise", {"shard": shard, "epoch": epoch, "seen": seen})
    return row[0] if row else None


async def cluster_id(db: Database) -> UUID:
    """The database's own id, made once by migrate."""
    row = await db.fetch_one("cluster_id")
    assert row is not None
    found: UUID = row[0]
    return found
