"""
The audits: plain SQL files in sql/audit/, which psql runs as they are and this runs as well.

The first line of each says what its rows are: `-- kind: violation` (no row is good) or
`-- kind: report`; the comment after it, what a row means and what to do about it.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple

from wheel_timer.database import Database
from wheel_timer.queries import sql_directory

TIMEOUT_S: Final = 300.0

Kind = Literal["violation", "report"]


class Audit(NamedTuple):
    """The answer of one audit, at most 1,000 rows."""

    name: str
    kind: Kind
    columns: list[str]
    rows: list[tuple[Any, ...]]


async def run_audits(db: Database) -> list[Audit]:
    """Run every audit, violations first. Raises DatabaseUnavailable; reads only."""
    audits: list[Audit] = []
    for path in sorted((sql_directory() / "audit").glob("*.sql")):
        text = path.read_text(encoding="utf-8")
        kind: Kind = "violation" if text.startswith("-- kind: violation\n") else "report"
        columns, rows = await db.read(text, timeout_s=TIMEOUT_S)
        audits.append(Audit(path.stem, kind, columns, rows))
    return sorted(audits, key=lambda audit: audit.kind != "violation")
