"""
Due: what the due hand reads and moves. sql/migrations: wheel_close_v1, wheel_due_v1 and others.

An interval is (after, to]: open below, closed above, in ms.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final, NamedTuple, Self
from uuid import UUID

from wheel_timer.clock import Clock, Pulse
from wheel_timer.database import Database
from wheel_timer.errors import FenceBusy
from wheel_timer.wheel import LAP_S

PAGE_ROWS: Final = 1000
# Of lanes that are full: the statement that puts them in line takes 5 ms, and a writer's turn comes
# after it.
FULL_ROWS: Final = 250
# 20 ms, if nearly all of them are passed over.
PART_ROWS: Final = 10_000
# An empty slot costs one index descent, 11 us; so many are read in one statement.
WINDOW_S: Final = 300
# A longer range is first asked for its first slot that holds anything.
SKIP_FROM_S: Final = 8
LOOK_S_MAX: Final = 120
NIL: Final = UUID(int=0)


class Due(NamedTuple):
    """A task on the wheel, pending, whose moment lies in the range asked for."""

    task_id: UUID
    start_time_ms: int
    biz_type: str


class Window(NamedTuple):
    """(after_ms, to_ms], of at most WINDOW_S seconds, not over the ring's end."""

    after_ms: int
    to_ms: int


class Closed(NamedTuple):
    """closed_to as it is now, and as it was before."""

    closed_to_ms: int
    closed_before_ms: int


class Key(NamedTuple):
    """Where a page ended: the next one begins behind it."""

    time_ms: int
    task_id: UUID

    @classmethod
    def before(cls, window: Window) -> Self:
        """The key of a window's first page."""
        return cls(window.after_ms, NIL)


async def close(db: Database, shard: int, epoch: int, to_ms: int, lookahead_ms: int) -> Closed:
    """
    Close every moment up to to_ms; go on with closed_to_ms of what comes back.

    Never beyond the database's clock plus lookahead_ms, never back. Raises LeadershipLost.
    """
    row = await db.fetch_one(
        "close", {"shard": shard, "epoch": epoch, "to": to_ms, "lookahead_ms": lookahead_ms}
    )
    assert row is not None
    return Closed._make(row)


async def pass_barrier(db: Database, shard: int, wait_ms: int) -> bool:
    """
    Whether every writer that may have read an older closed_to has committed.

    wait_ms: how long to wait for that, while new writers queue up behind us; 0: only look.
    """
    if not wait_ms:
        row = await db.fetch_one("barrier_try", {"shard": shard})
        return row == (True,)
    try:
        await db.execute("barrier", {"shard": shard, "wait_ms": wait_ms})
    except FenceBusy:
        return False
    return True


async def break_fence(db: Database, shard: int, older_than_ms: int) -> int:
    """End the backends that have held the fence for longer; returns how many."""
    row = await db.fetch_one("fence_break", {"shard": shard, "older_than_ms": older_than_ms})
    assert row is not None
    ended: int = row[0]
    return ended


async def advance(db: Database, shard: int, epoch: int, current_ms: int) -> None:
    """Everything up to current_ms was published. Raises LeadershipLost."""
    await db.execute("advance", {"shard": shard, "epoch": epoch, "current": current_ms})


class Look(NamedTuple):
    """
    What a look has found. has_operations: one is to go on; has_deltas: the ledger is to be folded;
    both as far as was looked.
    """

    is_due: bool
    has_operations: bool
    has_deltas: bool


async def look(db: Database, clock: Clock, shard: int, after_ms: int, to_ms: int) -> Look:
    """
    Whether anything is due in (after, to]. Closes and writes nothing; measures the clock.

    A range that is too long for one look, or runs over the ring's end, is answered with True.
    """
    first_s, last_s = (after_ms + 1) // 1000, to_ms // 1000
    if last_s - first_s > LOOK_S_MAX or first_s // LAP_S != last_s // LAP_S:
        await clock.measure()
        return Look(True, False, False)
    row, sent_s, came_s = await db.fetch_timed(
        "look", {"shard": shard, "after": after_ms, "to": to_ms}
    )
    clock.observe(Pulse._make(row[3:]), sent_s, came_s)
    return Look(row[0], row[1], bool(row[2]))


async def windows(db: Database, after_ms: int, to_ms: int) -> AsyncIterator[Window]:
    """Split (after, to] into windows, oldest first, leaving out stretches of empty slots."""
    while after_ms < to_ms:
        first_s, last_s = (after_ms + 1) // 1000, to_ms // 1000
        last_s = min(last_s, first_s // LAP_S * LAP_S + LAP_S - 1)
        if last_s - first_s >= SKIP_FROM_S:
            row = await db.fetch_one("skip", {"first": first_s, "last": last_s})
            assert row is not None
            if row[0] is None:
                after_ms = last_s * 1000 + 999
                continue
            if row[0] > first_s:
                first_s = row[0]
                after_ms = first_s * 1000 - 1
        last_s = min(last_s, first_s + WINDOW_S - 1)
        window = Window(after_ms, min(to_ms, last_s * 1000 + 999))
        yield window
        after_ms = window.to_ms


class Part(NamedTuple):
    """
    The biz_types that a page is of. is_only: these; else all but these, of which a page may hold
    little, so that more are looked at. is_full: their lanes are, and they are to be put in line.
    """

    biz_types: frozenset[str]
    is_only: bool
    is_full: bool = False

    @property
    def rows(self) -> int:
        """How many tasks a page looks at."""
        if self.is_full:
            return FULL_ROWS
        return PAGE_ROWS if self.is_only else PART_ROWS


async def due_part(
    db: Database, shard: int, window: Window, key: Key, part: Part
) -> tuple[list[Due], Key | None]:
    """Pending tasks of a window behind `key`, of some biz_types; the next key, None at its end."""
    rows = await db.fetch(
        "due_part",
        {
            "shard": shard,
            "after": window.after_ms,
            "to": window.to_ms,
            "key_time": key.time_ms,
            "key_id": key.task_id,
            "limit": part.rows,
            "biz_types": list(part.biz_types),
            "only": part.is_only,
        },
    )
    page = [Due._make(row[:3]) for row in rows if row[3]]
    if not rows or rows[-1][4] < part.rows:
        return page, None
    last_id, last_ms, *_ = rows[-1]
    assert key < (last_ms, last_id)
    return page, Key(last_ms, last_id)


async def due_page(db: Database, shard: int, window: Window, key: Key) -> list[Due]:
    """
    Pending tasks of a window behind `key`, in order of (start_time, task_id).

    At most PAGE_ROWS; fewer: the window is done.
    """
    rows = await db.fetch(
        "due",
        {
            "shard": shard,
            "after": window.after_ms,
            "to": window.to_ms,
            "key_time": key.time_ms,
            "key_id": key.task_id,
            "limit": PAGE_ROWS,
        },
    )
    page = [Due._make(row) for row in rows]
    if page:
        # The statement's order follows from its plan; a page out of order would lose rows.
        assert key < (page[0].start_time_ms, page[0].task_id)
        assert page[0].start_time_ms <= page[-1].start_time_ms <= window.to_ms
    return page
