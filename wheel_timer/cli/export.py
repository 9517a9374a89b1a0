"""`export`: every task of a day as NDJSON."""

from __future__ import annotations

import sys
from datetime import date
from typing import Annotated

import typer
from rich.text import Text

from wheel_timer.cli.exits import USAGE, Failure
from wheel_timer.cli.listing import BizType
from wheel_timer.cli.options import AsJson, Config, KeyFile, Url, connect
from wheel_timer.cli.output import err


def export(
    day: Annotated[
        str, typer.Option("--day", metavar="YYYY-MM-DD", help="The day of start_time, in UTC.")
    ],
    biz_type: BizType = None,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Write every task of a day to stdout, a line of JSON each.

    The day is that of start_time, in UTC: the day that the ledger counts a task under. Tasks are
    there until the retention of their biz_type is over. Without payloads and attempts. Exits 4
    where the answer breaks off: what was written then is not all.

    [bold]Examples[/]

    $ wheel-timer export --day 2026-12-24 | gzip > tasks-2026-12-24.ndjson.gz

    $ wheel-timer export --day 2026-12-24 --biz-type orders | jq -r .status | sort | uniq -c
    """
    try:
        date.fromisoformat(day)
    except ValueError:
        raise Failure(f"--day: {day!r} is no day such as 2026-01-31", USAGE) from None
    query = {"day": day} | ({"biz_type": biz_type} if biz_type else {})
    tasks = 0
    with connect(url, key_file, config) as server:
        for line in server.lines("/v1/export", **query):
            sys.stdout.write(line + "\n")
            tasks += 1
    if not as_json:
        err.print(Text(f"{tasks:,} task{'' if tasks == 1 else 's'}", style="dim"))
