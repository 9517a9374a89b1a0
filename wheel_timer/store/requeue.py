"""Requeue: "look at this task again at due_at", as the due hand reads and re-arms it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from wheel_timer.database import Database
from wheel_timer.store.due import PAGE_ROWS, Key, Window
from wheel_timer.store.place import by_partition


class Requeued(NamedTuple):
    """A requeue row that is due, with what its task says; status None: the task is gone."""

    task_id: UUID
    start_time_ms: int
    due_at_ms: int
    biz_type: str
    reason: str
    status: int | None
    lease_until_ms: int | None
    next_at_ms: int | None


class Again(NamedTuple):
    """
    A row's next moment, or None: its task is settled and the row goes. reason: what it goes by
    from now on; None: as before.
    """

    task_id: UUID
    again_ms: int | None
    reason: str | None = None


async def requeue_page(
    db: Database, shard: int, window: Window, key: Key, *, is_again: bool
) -> list[Requeued]:
    """
    Rows with due_at in the window, behind `key`, in order of (due_at, task_id).

    is_again: retries, releases, runs and replays; else all others.
    At most PAGE_ROWS; fewer: the window is done.
    """
    rows = await db.fetch(
        "requeue_due",
        {
            "shard": shard,
            "again": is_again,
            "after": window.after_ms,
            "to": window.to_ms,
            "key_due": key.time_ms,
            "key_id": key.task_id,
            "limit": PAGE_ROWS,
        },
    )
    return [Requeued._make(row) for row in rows]


async def rearm(db: Database, shard: int, epoch: int, to_ms: int, rows: Sequence[Again]) -> int:
    """
    Give a page its next moments, where due_at is not later than to_ms still. Returns how many.

    Raises LeadershipLost, with nothing changed.
    """
    row = await db.fetch_one(
        "rearm",
        {
            "shard": shard,
            "epoch": epoch,
            "to": to_ms,
            "task_ids": [r.task_id for r in rows],
            "again": [r.again_ms for r in rows],
            "reasons": [r.reason for r in rows],
        },
    )
    assert row is not None
    changed: int = row[0]
    return changed


async def overflow(
    db: Database, shard: int, epoch: int, places: Sequence[tuple[int, UUID]], due_ms: Sequence[int]
) -> None:
    """
    See to it that these tasks, (start_time_ms, task_id), come again at due_ms: their lanes did not
    take them. Those settled, moved or waiting for a retry are left alone.

    At most PAGE_ROWS. Raises LeadershipLost, with nothing changed in that partition.
    """
    rows = zip(places, due_ms, strict=True)
    for run, batch in by_partition(rows, lambda row: row[0]):
        await db.execute(
            "overflow",
            {
                "shard": shard,
                "epoch": epoch,
                "slot_lo": run.slot_lo,
                "slot_hi": run.slot_hi,
                "task_ids": [place[1] for place, _ in batch],
                "start_times": [place[0] for place, _ in batch],
                "due_ats": [due for _, due in batch],
            },
        )


async def fill(db: Database, shard: int, epoch: int, biz_type: str, limit: int) -> int:
    """Let the first in line for a lane come now. Returns how many; fewer than limit: all."""
    row = await db.fetch_one(
        "fill", {"shard": shard, "epoch": epoch, "biz_type": biz_type, "limit": limit}
    )
    assert row is not None
    filled: int = row[0]
    return filled


class Line(NamedTuple):
    """A lane's line: when its last row is due, and when its first row's task was (ms)."""

    last_due_ms: int
    first_start_ms: int


async def lines(db: Database, shard: int) -> dict[str, Line]:
    """The lines there are, by biz_type."""
    rows = await db.fetch("lines", {"shard": shard})
    return {row[0]: Line(*row[1:]) for row in rows}


async def requeue_rows(db: Database) -> dict[str, int]:
    """How many requeue rows there are, by reason: an estimate, from the last analyze."""
    rows = await db.fetch("requeue_rows", {})
    return {row[0]: row[1] for row in rows}


class Pulled(NamedTuple):
    """One page of a pull. seen: rows looked at; pulled: those of them that come again now."""

    seen: int
    pulled: int
    last_due_ms: int | None
    last_id: UUID | None


async def pull(db: Database, shard: int, epoch: int, key: Key) -> Pulled:
    """
    Let what was published come again at once, a page of rows behind `key`.

    At most PAGE_ROWS are seen; fewer: that was all. Raises LeadershipLost, with nothing changed.
    """
    row = await db.fetch_one(
        "pull",
        {
            "shard": shard,
            "epoch": epoch,
            "key_due": key.time_ms,
            "key_id": key.task_id,
            "limit": PAGE_ROWS,
        },
    )
    assert row is not None
    return Pulled._make(row)


async def rescue(db: Database, shard: int, epoch: int) -> int:
    """Put rows that the hand has passed ahead of it; there should be none. Returns how many."""
    row = await db.fetch_one("rescue", {"shard": shard, "epoch": epoch})
    assert row is not None
    rescued: int = row[0]
    return rescued
