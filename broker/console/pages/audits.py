"""
The audits: what each means, its SQL, and what its last run found. A run is begun here and goes on
behind: on a large wheel it takes a minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from starlette.responses import Response

from broker.api.audits import seen
from broker.console.page import Page
from broker.console.visit import Confirmation, Visit
from wheel_timer.errors import NotFound
from wheel_timer.store import audit as store
from wheel_timer.store.audit import AuditFile, Found, Run, audit_files

HERE: Final = "/console/audits"
ROWS_MAX: Final = 50
CELL_CHARACTERS_MAX: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """
    One audit. run: the last one to its end. runs_since_ms: it runs now. found: how many rows; None
    where that is not for this key.
    """

    file: AuditFile
    run: Run | None
    runs_since_ms: int | None
    found: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Audits:
    """All of them."""

    rows: Sequence[Row]
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class One:
    """One audit, and what its last run found; shown: the first rows."""

    row: Row
    columns: Sequence[str]
    shown: Sequence[Sequence[str]]
    is_cut: bool
    now_ms: int


async def show(visit: Visit) -> Response:
    """The list."""
    runs = await store.runs(visit.context.db)
    now_ms = int(visit.context.clock.now_ms())
    rows = [_row(visit, file, runs.get(file.name), now_ms) for file in audit_files()]
    return visit.render("audits.html", Audits(rows=rows, now_ms=now_ms))


async def show_one(visit: Visit) -> Response:
    """One audit."""
    file = _file(visit)
    run = (await store.runs(visit.context.db)).get(file.name)
    now_ms = int(visit.context.clock.now_ms())
    found = await store.found(visit.context.db, file.name) or Found([], [])
    rows = seen(found.columns, found.rows, visit.actor)
    data = One(
        row=_row(visit, file, run, now_ms),
        columns=found.columns,
        shown=[[_cell(value) for value in row] for row in rows[:ROWS_MAX]],
        is_cut=len(rows) > ROWS_MAX or (run is not None and (run.found or 0) > len(found.rows)),
        now_ms=now_ms,
    )
    return visit.render("audit.html", data)


async def ask_run(visit: Visit) -> Response:
    """Whether it is to run now."""
    file = _file(visit)
    return visit.confirm(
        Confirmation(
            title=f"Run the audit {file.name} now?",
            sentences=[
                "It reads and changes nothing. Some of the audits read every row of the wheel, two"
                " or three seconds for each million of tasks; calls go on beside it.",
                "It goes on when this page is left; what it finds is shown on its page.",
            ],
            button="Run it",
            back=f"{HERE}/{file.name}",
        )
    )


async def run_it(visit: Visit) -> Response:
    """Begin a run."""
    file = _file(visit)
    has_begun = await visit.context.auditor.begin(file.name)
    told = f"The audit {file.name} runs." if has_begun else f"The audit {file.name} runs already."
    return visit.done(f"{HERE}/{file.name}", told)


def _row(visit: Visit, file: AuditFile, run: Run | None, now_ms: int) -> Row:
    begun_ms = None if run is None else run.begun_ms
    runs = begun_ms is not None and now_ms - begun_ms < store.DEAD_MS
    return Row(
        file=file,
        run=None if run is None or run.ended_ms is None else run,
        runs_since_ms=begun_ms if runs else None,
        # How many rows there are over all biz_types tells of those of others.
        found=None if run is None or visit.actor.is_narrowed else run.found,
    )


def _file(visit: Visit) -> AuditFile:
    name = visit.params["audit"]
    for file in audit_files():
        if file.name == name:
            return file
    raise NotFound("there is no such audit")


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return text if len(text) <= CELL_CHARACTERS_MAX else text[:CELL_CHARACTERS_MAX] + "…"


PAGES: Final = (
    Page(path=HERE, scope="read", show=show, menu="Audits"),
    Page(path=f"{HERE}/{{audit}}", scope="read", show=show_one),
    Page(path=f"{HERE}/{{audit}}/run", scope="read", show=ask_run, act=run_it),
)
