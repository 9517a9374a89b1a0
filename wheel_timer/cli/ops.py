"""`wheel-timer ops`: one change for all tasks that fit a filter, begun, watched, stopped."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

import typer
from rich.table import Table
from rich.text import Text

from wheel_timer.cli.confirm import Yes, confirm
from wheel_timer.cli.exits import USAGE, Failure
from wheel_timer.cli.listing import (
    BizType,
    FinishFrom,
    FinishTo,
    HttpStatus,
    Prefix,
    ScheduleId,
    StartFrom,
    StartTo,
    Status,
    given_filter,
    moment,
    print_tasks,
)
from wheel_timer.cli.moments import clock_time, parse_duration, parse_rfc3339
from wheel_timer.cli.options import AsJson, Config, KeyFile, Url, connect
from wheel_timer.cli.output import err, out, print_json, print_ndjson

OperationId = Annotated[
    str, typer.Argument(metavar="ID", help="As `ops start` has printed it.", show_default=False)
]

ops = typer.Typer(no_args_is_help=True, help="Change all tasks that fit a filter.")


@ops.command()
def start(
    action: Annotated[
        str,
        typer.Argument(
            metavar="ACTION", help="cancel, shift, run, replay or purge.", show_default=False
        ),
    ],
    biz_type: BizType = None,
    status: Status = None,
    prefix: Prefix = None,
    start_from: StartFrom = None,
    start_to: StartTo = None,
    finish_from: FinishFrom = None,
    finish_to: FinishTo = None,
    http_status: HttpStatus = None,
    schedule_id: ScheduleId = None,
    by: Annotated[
        str | None,
        typer.Option("--by", metavar="DURATION", help="Of a shift: 1h, or -1h for earlier."),
    ] = None,
    rate: Annotated[
        float | None, typer.Option("--rate", metavar="N", help="Tasks a second, at most.")
    ] = None,
    over: Annotated[
        str | None, typer.Option("--over", metavar="DURATION", help="Spread over so long.")
    ] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Every task there is: needed without a filter.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show how many are meant, and some.")
    ] = False,
    yes: Yes = False,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Begin an operation.

    Says how many tasks are meant and asks before it begins. It goes on in the daemon whatever
    becomes of this command; what becomes due by it queues behind first attempts.

    [bold]Examples[/]

    $ wheel-timer ops start replay --biz-type orders --http-status 503 --over 10m

    $ wheel-timer ops start shift --by 1h --biz-type orders --dry-run

    $ wheel-timer ops start purge --biz-type old --yes
    """
    body: dict[str, Any] = {
        "action": action,
        "filter": given_filter(
            biz_type=biz_type,
            status=status,
            biz_id_prefix=prefix,
            start_from=moment("--from", start_from),
            start_to=moment("--to", start_to),
            finish_from=moment("--finish-from", finish_from),
            finish_to=moment("--finish-to", finish_to),
            http_status=http_status,
            schedule_id=schedule_id,
        ),
    }
    if by is not None:
        sign = -1 if by.startswith("-") else 1
        body["set"] = {"delay": sign * _seconds("--by", by.removeprefix("-"))}
    if rate is not None:
        body["rate"] = rate
    if over is not None:
        body["over"] = _seconds("--over", over)
    if all_:
        body["all"] = True
    with connect(url, key_file, config) as server:
        if dry_run or not yes:
            met = server.post("/v1/operations", body | {"dry_run": True})
            told = f"{met['matched']:,} tasks" if met["complete"] else f"{met['matched']:,} or more"
            if dry_run:
                _print_dry(met, told, as_json)
                return
            confirm(f"{action} {told}?", yes)
        begun = server.post("/v1/operations", body)
    if as_json:
        print_json(begun)
        return
    print(begun["operation_id"])
    err.print(Text(f"under way; wheel-timer ops show {begun['operation_id']}", style="dim"))


@ops.command()
def show(
    operation_id: OperationId,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Show an operation, and how far it is.

    [bold]Examples[/]

    $ wheel-timer ops show 0f6e9a4e-7f0e-4b8e-9f1c-7c8a3a0b7d11 --json | jq .done
    """
    with connect(url, key_file, config) as server:
        shown = server.get(_path(operation_id))
    _print_operation(shown, as_json)


@ops.command("list")
def list_operations(
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, metavar="N")] = 20,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    List operations, newest first.

    [bold]Examples[/]

    $ wheel-timer ops list --json | jq 'select(.state == "running")'
    """
    with connect(url, key_file, config) as server:
        items = server.get("/v1/operations", limit=limit)["items"]
    if as_json:
        print_ndjson(items)
        return
    now = datetime.now(UTC)
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in ("operation_id", "action", "state", "begun", "by"):
        table.add_column(name, overflow="fold")
    for name in ("matched", "done"):
        table.add_column(name, justify="right")
    for item in items:
        begun = clock_time(parse_rfc3339(item["create_time"]), now)
        numbers = [f"{item[name]:,}" for name in ("matched", "done")]
        named = [item[name] for name in ("operation_id", "action", "state")]
        table.add_row(*named, begun, Text(item["actor"]), *numbers)
    out.print(table if items else Text("no operations", style="dim"))


@ops.command()
def stop(
    operation_id: OperationId,
    yes: Yes = False,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Stop an operation; what it has changed stays changed.

    [bold]Examples[/]

    $ wheel-timer ops stop 0f6e9a4e-7f0e-4b8e-9f1c-7c8a3a0b7d11 --yes
    """
    confirm(f"Stop operation {operation_id}?", yes)
    with connect(url, key_file, config) as server:
        stopped = server.delete(_path(operation_id))
    _print_operation(stopped, as_json)


def _path(operation_id: str) -> str:
    return f"/v1/operations/{quote(operation_id, safe='')}"


def _seconds(option: str, text: str) -> float:
    try:
        return parse_duration(text) / 1_000
    except ValueError as error:
        raise Failure(f"{option}: {error}", USAGE) from None


def _print_dry(met: dict[str, Any], told: str, as_json: bool) -> None:
    if as_json:
        print_json(met)
        return
    out.print(Text(f"{told} are meant" + (", such as:" if met["sample"] else "")))
    if met["sample"]:
        print_tasks(met["sample"], datetime.now(UTC))


def _print_operation(shown: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(shown)
        return
    now = datetime.now(UTC)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in shown.items():
        if value is None:
            continue
        told = clock_time(parse_rfc3339(value), now) if name.endswith("_time") else value
        if isinstance(told, dict):
            told = ", ".join(f"{key} {one}" for key, one in told.items()) or "every task"
        table.add_row(name, Text(f"{told:,}" if isinstance(told, int) else str(told)))
    out.print(table)
