"""
The ledger: what became of every task, counted. sql/migrations: 0014_ledger.

Whoever changes what counts appends a delta in the transaction of the change, in SQL; here is what
sums them up, and what reads the sums.
"""

from __future__ import annotations

from typing import NamedTuple

from wheel_timer.database import Database


class Total(NamedTuple):
    """Tasks of a biz_type that are pending, and that lie dead."""

    biz_type: str
    pending: int
    dead: int


class QuarterKey(NamedTuple):
    """Where a page of the ledger ended."""

    biz_type: str = ""
    quarter_ms: int = 0


async def fold(db: Database, epoch: int, limit: int) -> int:
    """
    Fold a page of deltas into the sums; returns how many, fewer than `limit` at the end.

    epoch: of shard 0's leader. Raises LeadershipLost; nothing is folded twice or left behind,
    whatever crashes and whoever else is at it.
    """
    row = await db.fetch_one("ledger_fold", {"epoch": epoch, "limit": limit})
    assert row is not None
    folded: int = row[0]
    return folded


async def coarsen(
    db: Database, kept_ms: int, key: QuarterKey, limit: int
) -> tuple[int, QuarterKey | None]:
    """
    Sum up quarter hours that are older than kept_ms, and of which nothing is left, by day: among
    the next `limit` of one biz_type behind the key. Returns how many, and the next key; None at the
    end. No sum changes by it.
    """
    row = await db.fetch_one(
        "ledger_coarsen",
        {
            "kept_ms": kept_ms,
            "key_biz_type": key.biz_type,
            "key_quarter": key.quarter_ms,
            "limit": limit,
        },
    )
    assert row is not None
    return row[0], None if row[1] is None else QuarterKey._make(row[1:])


async def totals(db: Database) -> list[Total]:
    """Of every biz_type that ever had a task, as far as was folded: up to a second or two ago."""
    return [Total._make(row) for row in await db.fetch("ledger_totals")]


class Span(NamedTuple):
    """What became of the tasks of a quarter hour or a day of start_time; time_ms: its beginning."""

    time_ms: int
    submitted: int
    moved_in: int
    moved_out: int
    revived: int
    finished: int
    failed: int
    cancelled: int
    purged: int
    reaped_finished: int
    reaped_failed: int
    reaped_cancelled: int

    @property
    def pending(self) -> int:
        """To be called yet."""
        came = self.submitted + self.moved_in + self.revived
        settled = self.finished + self.failed + self.cancelled
        return came - self.moved_out - settled - self.purged

    @property
    def reaped(self) -> int:
        """Settled, and deleted since."""
        return self.reaped_finished + self.reaped_failed + self.reaped_cancelled

    @property
    def present(self) -> int:
        """Settled, and still there."""
        return self.finished + self.failed + self.cancelled - self.revived - self.reaped


async def spans(db: Database, biz_type: str, from_ms: int, to_ms: int, width_ms: int) -> list[Span]:
    """The ledger of a biz_type, newest first. width_ms: a quarter hour, or a day."""
    params = {"biz_type": biz_type, "from": from_ms, "to": to_ms, "width": width_ms}
    return [Span._make(row) for row in await db.fetch("ledger_span", params)]


async def pending(db: Database, biz_type: str) -> int:
    """How many tasks of a biz_type are pending now, exactly."""
    row = await db.fetch_one("ledger_pending", {"biz_type": biz_type})
    assert row is not None
    return int(row[0])


async def totals_now(db: Database) -> dict[str, Total]:
    """Of every biz_type that ever had a task, those deleted included, exactly."""
    return {row[0]: Total._make(row) for row in await db.fetch("ledger_totals_now")}
