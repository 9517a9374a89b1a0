"""The audits' results, whoever ran them: the database directly, or the server by GET /v1/audits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from wheel_timer.cli.opened import LOCAL, opened
from wheel_timer.settings import Settings

if TYPE_CHECKING:
    from wheel_timer.store.repair import Repaired


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

    async with opened(settings, "audit") as db:
        return await repair(db, actor=LOCAL)


async def from_database(
    settings: Settings, begun: Callable[[str], None] | None = None
) -> list[Audited]:
    """Run them now; begun hears of each. Raises DatabaseUnavailable, SchemaMismatch."""
    from wheel_timer.store.audit import run_audits

    async with opened(settings, "audit") as db:
        return [
            Audited(
                audit.name,
                audit.kind,
                audit.kind != "violation" or not audit.rows,
                list(audit.columns),
                [list(row) for row in audit.rows],
            )
            for audit in await run_audits(db, begun=begun)
        ]
