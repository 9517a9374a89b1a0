"""`audit`: is every accepted timer where it must be?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from wheel_timer.cli.auditing import Audited, from_answer, from_database, repair_database
from wheel_timer.cli.exits import DONE, NO
from wheel_timer.cli.options import AsJson, Config, KeyFile, Url, connect, load_settings
from wheel_timer.cli.output import err, out, print_ndjson

ROWS_SHOWN: Final = 10
ANSWER_S: Final = 900.0  # ten million rows are some two minutes of work


def audit(
    repair: Annotated[
        bool,
        typer.Option("--repair", help="First put right what is safe to, and say what was done."),
    ] = False,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Check that every accepted timer is where it must be.

    A violation is a row that must not be there: a task without cover, one called early, one
    overdue. With the setting DATABASE_URL the audits run on the database itself, otherwise the
    server is asked to. The files, with what a row means and what to do, are sql/audit/*.sql.
    Exits 1 on a violation. They read the whole wheel, in seconds for each million tasks; one that
    takes longer than five minutes is given up, and the command with it.

    --repair gives a lost task its cover again and drops what leads nowhere; nothing is called or
    given up by it, and it is recorded in timer_change. It needs DATABASE_URL.

    [bold]Examples[/]

    $ wheel-timer audit

    $ wheel-timer audit --repair

    $ wheel-timer audit --json | jq 'select(.holds | not)'
    """
    settings = load_settings(config)
    with err.status("auditing") as status:
        if as_json or not err.is_terminal:
            status.stop()
        if repair:
            repaired = asyncio.run(repair_database(settings))
        else:
            repaired = []
        if repair or (settings.database_url and url is None):
            audits = asyncio.run(
                from_database(settings, lambda name: status.update(f"auditing: {name}"))
            )
        else:
            with connect(url, key_file, config) as server:
                audits = from_answer(server.get("/v1/audits", ANSWER_S))
    if as_json:
        print_ndjson({"repaired": one._asdict()} for one in repaired)
        print_ndjson(one._asdict() for one in audits)
    else:
        for one in repaired:
            out.print(Text.assemble((f"{one.audit:<20}", "bold"), f"{one.task_id}  {one.did}"))
        out.print(_view(audits))
    raise typer.Exit(DONE if all(one.holds for one in audits) else NO)


def _view(audits: Sequence[Audited]) -> RenderableType:
    return Group(*(part for one in audits for part in _parts(one)))


def _parts(one: Audited) -> Iterator[RenderableType]:
    if one.kind == "report":
        yield Text(one.name, style="bold")
    else:
        mark = ("✓ ", "bold green") if one.holds else ("✗ ", "bold red")
        yield Text.assemble(mark, f"{one.name:<20}", one.told)
    if one.rows and (one.kind == "report" or not one.holds):
        yield Padding(_rows(one), (0, 0, 1, 2))


def _rows(one: Audited) -> RenderableType:
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for column in one.columns:
        table.add_column(column, overflow="fold")
    for row in one.rows[:ROWS_SHOWN]:
        table.add_row(*(_cell(value) for value in row))
    more = len(one.rows) - ROWS_SHOWN
    return Group(table, Text(f"... and {more:,} more", style="dim")) if more > 0 else table


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,.1f}" if isinstance(value, float) else str(value)
