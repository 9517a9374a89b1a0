"""A test's clock in the database's place, and what happens by it: `up --test-clock`."""

from __future__ import annotations

from typing import NamedTuple

from wheel_timer.database import Database, Session


class Shown(NamedTuple):
    """What a test's clock shows. is_frozen: it stands still."""

    is_frozen: bool
    now_ms: int


class Outlook(NamedTuple):
    """
    due: tasks that could be called now. held: due, and put aside by a broker. paused: due, of a
    paused biz_type or under the brake. calling: under way. next_ms: the next one's moment.
    """

    due: int
    held: int
    paused: int
    calling: int
    next_ms: int | None


async def begin(db: Database) -> None:
    """Put one there, showing the machine's time; a database with tasks is left as it is."""
    await db.execute("begin_test_clock")


async def shown(db: Database) -> Shown | None:
    """What it shows; None where the clock is the machine's."""
    row = await db.fetch_one("test_clock")
    return None if row is None else Shown._make(row)


async def take_turn(session: Session) -> bool:
    """Whether this session alone may move it now; until it is closed."""
    row = await session.fetch_one("turn_of_test_clock")
    assert row is not None
    return bool(row[0])


async def show(db: Database, now_ms: int, *, frozen: bool) -> None:
    """Set it, where there is one."""
    await db.execute("set_test_clock", {"now": now_ms, "frozen": frozen})


async def outlook(db: Database) -> Outlook:
    """What is due by it. Reads the whole wheel."""
    row = await db.fetch_one("outlook")
    assert row is not None
    return Outlook._make(row)
