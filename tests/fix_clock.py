"""Moves the clock that all of a database's users go by: the one row of timer_clock."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import psycopg
import pytest

SET: Final = """
INSERT INTO timer_clock (one_row, shown_us, set_at_us, frozen)
VALUES (
    true,
    %(shown_us)s,
    CAST(date_part('epoch', clock_timestamp()) * 1000000 AS bigint),
    %(frozen)s
)
ON CONFLICT (one_row) DO UPDATE
SET shown_us = excluded.shown_us, set_at_us = excluded.set_at_us, frozen = excluded.frozen
"""


class DatabaseClock:
    """wheel_now_ms() of one database, in a test's hands. Times are epoch milliseconds."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def now_ms(self) -> int:
        """What the database says now."""
        row = self._connection.execute("SELECT wheel_now_ms()").fetchone()
        assert row is not None
        return int(row[0])

    def set(self, now_ms: int) -> None:
        """It is now_ms now, and time goes on from there."""
        self._show(now_ms, frozen=False)

    def freeze(self, now_ms: int | None = None) -> int:
        """It is now_ms (None: what it is) and stays so. Returns now_ms."""
        shown_ms = self.now_ms() if now_ms is None else now_ms
        self._show(shown_ms, frozen=True)
        return shown_ms

    def advance(self, by_ms: int) -> int:
        """by_ms later, or earlier; a frozen clock stays frozen. Returns the time shown."""
        row = self._connection.execute("SELECT frozen FROM timer_clock").fetchone()
        shown_ms = self.now_ms() + by_ms
        self._show(shown_ms, frozen=row is not None and bool(row[0]))
        return shown_ms

    def clear(self) -> None:
        """Back to the machine's own time."""
        self._connection.execute("DELETE FROM timer_clock")

    def jump(self, by_ms: int) -> None:
        """The server's own clock is by_ms off from now on, and nobody has said that it is a test's.
        0 puts it right."""
        row = self._connection.execute(
            "SELECT pg_get_functiondef(CAST('wheel_now_us()' AS regprocedure))"
        ).fetchone()
        assert row is not None
        jumped = re.sub(r"\* 1000000( \+ \S+)?;", f"* 1000000 + ({by_ms * 1000});", row[0])
        self._connection.execute(jumped.encode())

    def _show(self, shown_ms: int, *, frozen: bool) -> None:
        self._connection.execute(SET, {"shown_us": shown_ms * 1000, "frozen": frozen})


@pytest.fixture
def clock(database_url: str) -> Iterator[DatabaseClock]:
    """The clock of the test's database."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        yield DatabaseClock(connection)
