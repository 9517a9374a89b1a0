"""The audits' results, whoever ran them: the database directly, or the server by GET /v1/audits."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from wheel_timer.settings import Settings

if TYPE_CHECKING:
    from wheel_timer.database import Database
    from wheel_timer.store.repair import Repaired

LOCAL: Final = "local"  # who changes something at the database itself, in timer_change


class Audited(NamedTuple):
    """One audit. kind: violation (each row is wrong) or report (rows are figures)."""

    name: str
    kind: str
    holds: bool
    columns: list[str]
    rows: list[list[Any]]

    @property
    def told(self) -> str:
        """`ok`, or how many rows are wrong."""
        if self.kind == "report":
            return "report"
        rows = len(self.rows)
        return "ok" if self.holds else f"{rows:,} row{'' if rows == 1 else 's'}"


def from_answer(answer: dict[str, Any]) -> list[Audited]:
    """The JSON of GET /v1/audits."""
    return [
        Audited(item["name"], item["kind"], item["holds"], item["columns"], item["rows"])
        for item in answer["items"]
    ]


async def repair_database(settings: Settings) -> list[Repaired]:
    """Put right what can be. Raises DatabaseUnavailable, SchemaMismatch."""
    from wheel_timer.store.repair import repair

    async with _opened(settings) as db:
        return await repair(db, actor=LOCAL)


async def from_database(settings: Settings) -> list[Audited]:
    """Run them now. Raises DatabaseUnavailable, SchemaMismatch."""
    from wheel_timer.store.audit import run_audits

    async with _opened(settings) as db:
        return [
            Audited(
                audit.name,
                audit.kind,
                audit.kind != "violation" or not audit.rows,
                list(audit.columns),
                [list(row) for row in audit.rows],
            )
            for audit in await run_audits(db)
        ]


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Database]:
    from wheel_timer.database import Database

    db = Database(
        settings.database_url,
        schema=settings.database_schema,
        pool_size=1,
        name="wheel-timer audit",
    )
    try:
        yield db
    finally:
        await db.close()
