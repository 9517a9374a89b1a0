"""
The audits: plain SQL files in sql/audit/, which psql runs as they are and this runs as well.

The first line of each says what its rows are: `-- kind: violation` (no row is good) or
`-- kind: report`; the comment after it, what a row means and what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple

from wheel_timer.database import Database
from wheel_timer.errors import DatabaseUnavailable
from wheel_timer.queries import sql_directory

TIMEOUT_S: Final = 300.0

Kind = Literal["violation", "report"]


class AuditFile(NamedTuple):
    """One of sql/audit/. text: the statement."""

    name: str
    kind: Kind
    text: str


class Audit(NamedTuple):
    """The answer of one audit, at most 1,000 rows."""

    name: str
    kind: Kind
    columns: list[str]
    rows: list[tuple[Any, ...]]


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
