"""`list`: the tasks that fit, as a table or as NDJSON, page after page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.table import Table
from rich.text import Text

from wheel_timer.cli.exits import USAGE, Failure
from wheel_timer.cli.moments import clock_time, parse_moment, parse_rfc3339
from wheel_timer.cli.options import AsJson, Config, KeyFile, Url, connect
from wheel_timer.cli.output import err, out, print_ndjson, print_wide
from wheel_timer.cli.taskview import styled_status

if TYPE_CHECKING:
    from wheel_timer.cli.server import Server

PAGE_ITEMS: Final = 500

BizType = Annotated[
    str | None, typer.Option("--biz-type", metavar="NAME", help="Of this line of business.")
]
Status = Annotated[
    str | None,
    typer.Option(
        "--status", metavar="STATUS", help="pending, delivering, finished, failed or cancelled."
    ),
]
Prefix = Annotated[
    str | None,
    typer.Option("--prefix", metavar="TEXT", help="A biz_id that begins so; needs --biz-type."),
]
StartFrom = Annotated[
    str | None, typer.Option("--from", metavar="TIME", help="start_time at or after.")
]
StartTo = Annotated[str | None, typer.Option("--to", metavar="TIME", help="start_time before.")]
FinishFrom = Annotated[
    str | None, typer.Option("--finish-from", metavar="TIME", help="Settled at or after.")
]
FinishTo = Annotated[
    str | None, typer.Option("--finish-to", metavar="TIME", help="Settled before.")
]
HttpStatus = Annotated[
    int | None, typer.Option("--http-status", metavar="CODE", help="Of the last answer.")
]
ScheduleId = Annotated[
    str | None, typer.Option("--schedule-id", metavar="ID", help="Of this schedule.")
]


def list_(
    biz_type: BizType = None,
    status: Status = None,
    biz_id: Annotated[
        str | None,
        typer.Option("--biz-id", metavar="ID", help="Of this biz_id; needs --biz-type."),
    ] = None,
    prefix: Prefix = None,
    start_from: StartFrom = None,
    start_to: StartTo = None,
    finish_from: FinishFrom = None,
    finish_to: FinishTo = None,
    http_status: HttpStatus = None,
    schedule_id: ScheduleId = None,
    limit: Annotated[
        int, typer.Option("--limit", min=0, metavar="N", help="At most so many; 0: all there are.")
    ] = 100,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    List tasks.

    By start_time, of the day before and the day after where no time is given; --status failed
    lists all dead letters, by the moment they died.

    [bold]Examples[/]

    $ wheel-timer list --biz-type orders --from 2026-12-01T00:00:00Z --to 2026-12-02T00:00:00Z

    $ wheel-timer list --status failed --limit 0 --json | jq -r .task_id
    """
    query = given_filter(
        biz_type=biz_type,
        status=status,
        biz_id=biz_id,
        biz_id_prefix=prefix,
        start_from=moment("--from", start_from),
        start_to=moment("--to", start_to),
        finish_from=moment("--finish-from", finish_from),
        finish_to=moment("--finish-to", finish_to),
        http_status=http_status,
        schedule_id=schedule_id,
    )
    with connect(url, key_file, config) as server:
        items = _items(server, query, limit)
        if as_json:
            print_ndjson(items)
        else:
            print_tasks(items, datetime.now(UTC))


def given_filter(**values: object) -> dict[str, Any]:
    """What of a filter was given."""
    return {name: value for name, value in values.items() if value is not None}


def moment(option: str, text: str | None) -> str | float | None:
    """A time as the API takes it. Raises Failure that names the option."""
    if text is None:
        return None
    try:
        return parse_moment(text)
    except ValueError as error:
        raise Failure(f"{option}: {error}", USAGE) from None


def _items(server: Server, query: Mapping[str, Any], limit: int) -> Iterator[dict[str, Any]]:
    """Item by item as the pages come; a page may be empty and still have a next one."""
    left, cursor = limit, None
    while True:
        page_query = {**query, "limit": min(left, PAGE_ITEMS) if limit else PAGE_ITEMS}
        if cursor is not None:
            page_query["cursor"] = cursor
        page = server.get("/v1/tasks", **page_query)
        yield from page["items"]
        left -= len(page["items"])
        cursor = page["next_cursor"]
        if cursor is None:
            return
        if limit and left <= 0:
            err.print(Text("there are more: --limit 0 shows all", style="dim"))
            return


def print_tasks(items: Iterable[dict[str, Any]], now: datetime) -> None:
    """Tasks of a list, a line each."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in ("task_id", "biz_type", "biz_id", "status", "start_time"):
        table.add_column(name, no_wrap=True)
    table.add_column("attempts", justify="right")
    table.add_column("", no_wrap=True)
    for item in items:
        waiting = (item.get("waiting") or {}).get("reason", "")
        table.add_row(
            item["task_id"],
            item["biz_type"],
            Text(item["biz_id"] or ""),
            styled_status(item["status"]),
            clock_time(parse_rfc3339(item["start_time"]), now),
            str(item["attempts"]),
            Text(waiting or " ".join((item.get("last_error") or "").split())[:80]),
        )
    if table.row_count:
        print_wide(table)
    else:
        out.print(Text("no tasks", style="dim"))
