"""
The audits: plain SQL files in sql/audit/, which psql runs as they are and this runs as well.

The first line of each says what its rows are: `-- kind: violation` (no row is good) or
`-- kind: report`; the comment after it, what a row means and what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from wheel_timer.database import Database
from wheel_timer.errors import DatabaseUnavailable
from wheel_timer.queries import sql_directory

TIMEOUT_S: Final = 300.0
# Whoever began one so long ago is dead: all of them together take less.
DEAD_MS: Final = 3_600_000
# What is kept of the rows that an audit found.
SAMPLE_ROWS_MAX: Final = 200

Kind = Literal["violation", "report"]


class AuditFile(NamedTuple):
    """One of sql/audit/. text: the statement, and the comment that says what a row means."""

    name: str
    kind: Kind
    text: str

    @property
    def meaning(self) -> str:
        """The comment, line by line as it stands there."""
        lines = self.text.splitlines()[1:]
        end = next(at for at, line in enumerate(lines) if not line.startswith("--"))
        return "\n".join(line.removeprefix("--").removeprefix(" ") for line in lines[:end])

    @property
    def statement(self) -> str:
        """Without the comment."""
        return "\n".join(one for one in self.text.splitlines() if not one.startswith("--"))


class Audit(NamedTuple):
    """The answer of one audit, at most 1,000 rows."""

    name: str
    kind: Kind
    columns: list[str]
    rows: list[tuple[Any, ...]]


class Run(NamedTuple):
    """
    The last run of an audit to its end, and since when it runs now (None: it does not); ms. found:
    rows, None where it was given up (error says why).
    """

    audit: str
    begun_ms: int | None
    ended_ms: int | None
    took_ms: int | None
    found: int | None
    error: str | None


class Found(NamedTuple):
    """What the last run found: the first rows, as JSON has them."""

    columns: list[str]
    rows: list[list[Any]]


def audit_files() -> list[AuditFile]:
    """All of them, violations first, by name."""
    files = []
    for path in sorted((sql_directory() / "audit").glob("*.sql")):
        text = path.read_text(encoding="utf-8")
        kind: Kind = "violation" if text.startswith("-- kind: violation\n") else "report"
        files.append(AuditFile(path.stem, kind, text))
    return sorted(files, key=lambda file: file.kind != "violation")


async def run_audits(
    db: Database,
    *,
    only: Sequence[str] | None = None,
    begun: Callable[[str], None] | None = None,
) -> list[Audit]:
    """
    Run every audit, or `only` these, violations first. Reads only. begun: hears of each.

    Raises DatabaseUnavailable where one takes longer than TIMEOUT_S, and on a replica: there the
    order in which commits become visible is another, and an audit could tell of what never was.
    """
    if await db.fetch_one("is_replica") == (True,):
        raise DatabaseUnavailable("audits want the primary, and this server is a replica of it")
    audits: list[Audit] = []
    for name, kind, text in audit_files():
        if only is None or name in only:
            if begun is not None:
                begun(name)
            columns, rows = await db.read(text, timeout_s=TIMEOUT_S)
            audits.append(Audit(name, kind, columns, rows))
    return audits


async def begin(db: Database, name: str) -> bool:
    """Say that an audit runs from now on; False where it does already, wherever."""
    params = {"audit": name, "dead_ms": DEAD_MS}
    return await db.fetch_one("audit_begin", params) is not None


async def keep(db: Database, audit: Audit, took_ms: float) -> None:
    """Keep what an audit has found; it does not run any more."""
    sample = msgspec.json.encode(audit.rows[:SAMPLE_ROWS_MAX]).decode()
    # Postgres' JSON knows no NUL; nothing of ours holds one, but a damaged row may.
    sample = sample.replace("\\u0000", "")
    await _end(db, audit.name, took_ms, len(audit.rows), audit.columns, sample, None)


async def give_up(db: Database, name: str, took_ms: float, error: str) -> None:
    """Keep why there is no result."""
    await _end(db, name, took_ms, None, None, None, error)


async def _end(
    db: Database,
    name: str,
    took_ms: float,
    found: int | None,
    columns: list[str] | None,
    sample: str | None,
    error: str | None,
) -> None:
    params = {"audit": name, "took": round(took_ms), "found": found, "columns": columns}
    await db.execute("audit_end", params | {"sample": sample, "error": error})


async def runs(db: Database) -> dict[str, Run]:
    """The audits that were ever begun, by name."""
    return {row[0]: Run._make(row) for row in await db.fetch("audit_runs")}


async def found(db: Database, name: str) -> Found | None:
    """What the last run of an audit found; None where there is nothing."""
    row = await db.fetch_one("audit_found", {"audit": name})
    return None if row is None or row[1] is None else Found._make(row)
