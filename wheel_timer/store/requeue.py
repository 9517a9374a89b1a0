"""Requeue: "look at this task again at due_at", as the due hand reads and re-arms it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from wheel_timer.database import Database
from wheel_timer.store.due import PAGE_ROWS, Key, Window


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
    A row's next moment, or None: its task is settled and the row goes. published: it goes by the
    name of `published` from now on.
    """

    task_id: UUID
    again_ms: int | None
    published: bool


async def requeue_page(db: Database, shard: int, window: Window, key: Key) -> list[Requeued]:
    """
    Rows with due_at in the window, behind `key`, in order of (due_at, task_id).

    At most PAGE_ROWS; fewer: the window is done.
    """
    rows = await db.fetch(
        "requeue_due",
        {
            "shard": shard,
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
            "published": [r.published for r in rows],
        },
    )
    assert row is not None
    changed: int = row[0]
    return changed


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
