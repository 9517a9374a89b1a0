"""`wheel-timer schedule`: timers that come back by a calendar."""

from __future__ import annotations

import sys
from typing import Annotated, Any
from urllib.parse import quote

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from wheel_timer.cli.bizview import settings_view
from wheel_timer.cli.confirm import Unasked, Yes, confirm
from wheel_timer.cli.exits import USAGE, Failure
from wheel_timer.cli.listing import moment
from wheel_timer.cli.moments import parse_duration
from wheel_timer.cli.options import AsJson, Config, KeyFile, Url, connect
from wheel_timer.cli.output import err, out, print_json, print_ndjson

Name = Annotated[
    str, typer.Argument(metavar="BIZ_TYPE/NAME", help="A schedule.", show_default=False)
]

schedule = typer.Typer(no_args_is_help=True, help="Timers that come back by a calendar.")


@schedule.command("list")
def list_schedules(
    biz_type: Annotated[
        str | None, typer.Option("--biz-type", metavar="NAME", help="Of this biz_type.")
    ] = None,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    List schedules.

    [bold]Examples[/]

    $ wheel-timer schedule list --json | jq -r 'select(.enabled) | .name'
    """
    items: list[dict[str, Any]] = []
    query = {} if biz_type is None else {"biz_type": biz_type}
    with connect(url, key_file, config) as server:
        cursor: str | None = ""
        while cursor is not None:
            more = {"cursor": cursor} if cursor else {}
            page = server.get("/v1/schedules", limit=1000, **query, **more)
            items += page["items"]
            cursor = page["next_cursor"]
    if as_json:
        print_ndjson(items)
        return
    table = Table("schedule", "cron", "timezone", "next", box=None)
    for item in items:
        name = Text(f"{item['biz_type']}/{item['name']}")
        if not item["enabled"]:
            name.append(" (disabled)", style="yellow")
        table.add_row(name, item["cron"], item["timezone"], (item["next_time"] or "-")[:19])
    out.print(table)


@schedule.command()
def create(
    name: Name,
    cron: Annotated[
        str,
        typer.Option("--cron", metavar="CRON", help="5 fields, or 6 with seconds in front."),
    ],
    timezone: Annotated[
        str, typer.Option("--timezone", metavar="ZONE", help="IANA, as Asia/Shanghai.")
    ] = "UTC",
    data: Annotated[
        str | None,
        typer.Option("--data", metavar="JSON|-", help="Each callback's body; - reads stdin."),
    ] = None,
    callback: Annotated[
        str | None,
        typer.Option("--callback", metavar="URL", help="Call this, not the biz_type's own URL."),
    ] = None,
    start_after: Annotated[
        str | None, typer.Option("--start-after", metavar="TIME", help="Not before this.")
    ] = None,
    end_before: Annotated[
        str | None, typer.Option("--end-before", metavar="TIME", help="Only before this.")
    ] = None,
    misfire: Annotated[
        str,
        typer.Option("--misfire", metavar="once|skip|all", help="Which missed ones still come."),
    ] = "once",
    misfire_after: Annotated[
        str,
        typer.Option("--misfire-after", metavar="DURATION", help="From when on one is missed."),
    ] = "60s",
    overlap: Annotated[
        str,
        typer.Option("--overlap", metavar="allow|skip", help="skip: one after the other."),
    ] = "allow",
    jitter: Annotated[
        str, typer.Option("--jitter", metavar="DURATION", help="Spread each start over this.")
    ] = "0",
    disabled: Annotated[bool, typer.Option("--disabled", help="Not before it is enabled.")] = False,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Create a schedule, or replace the one of this name.

    [bold]Examples[/]

    $ wheel-timer schedule create orders/report --cron '0 9 * * MON' --timezone Asia/Shanghai

    $ wheel-timer schedule create orders/poll --cron '*/10 * * * * *' --overlap skip
    """
    body: dict[str, Any] = {
        "cron": cron,
        "timezone": timezone,
        "enabled": not disabled,
        "misfire": misfire,
        "misfire_after": _seconds("--misfire-after", misfire_after),
        "overlap": overlap,
        "jitter": _seconds("--jitter", jitter),
    }
    if data is not None:
        body["biz_data"] = _json_of(sys.stdin.buffer.read() if data == "-" else data.encode())
    if callback is not None:
        body["callback"] = {"url": callback}
    for field, option, text in (
        ("start_after", "--start-after", start_after),
        ("end_before", "--end-before", end_before),
    ):
        if text is not None:
            body[field] = moment(option, text)
    with connect(url, key_file, config) as server:
        made = server.put(_path(name), body)
    if as_json:
        print_json(made)
    else:
        out.print(settings_view(made))


@schedule.command()
def enable(
    name: Name,
    _yes: Unasked = False,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Let a schedule come due from now on.

    [bold]Examples[/]

    $ wheel-timer schedule enable orders/report
    """
    with connect(url, key_file, config) as server:
        done = server.post(f"{_path(name)}/enable", {})
    _tell(done, f"{name} comes next at {done['next_time'] or 'no time'}", as_json)


@schedule.command()
def disable(
    name: Name,
    _yes: Unasked = False,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Take a schedule's occurrences back; none starts any more.

    [bold]Examples[/]

    $ wheel-timer schedule disable orders/report
    """
    with connect(url, key_file, config) as server:
        done = server.post(f"{_path(name)}/disable", {})
    _tell(done, f"{name} is disabled", as_json)


@schedule.command()
def delete(
    name: Name,
    yes: Yes = False,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Delete a schedule.

    [bold]Examples[/]

    $ wheel-timer schedule delete orders/report --yes
    """
    confirm(f"Delete the schedule {name}?", yes)
    with connect(url, key_file, config) as server:
        server.delete(_path(name))
    _tell({"schedule": name, "deleted": True}, f"{name} is deleted", as_json)


@schedule.command()
def run(
    name: Name,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Call for one more occurrence, now. Prints its task_id.

    [bold]Examples[/]

    $ wheel-timer schedule run orders/report
    """
    with connect(url, key_file, config) as server:
        made = server.post(f"{_path(name)}/run", {})
    if as_json:
        print_json(made)
    else:
        out.print(made["task_id"])


@schedule.command()
def upcoming(
    name: Name,
    count: Annotated[
        int, typer.Option("--count", min=1, max=1000, metavar="N", help="So many.")
    ] = 10,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Show when a schedule comes due next.

    [bold]Examples[/]

    $ wheel-timer schedule upcoming orders/report --count 3
    """
    with connect(url, key_file, config) as server:
        found = server.get(f"{_path(name)}/upcoming", count=count)
    if as_json:
        print_ndjson(found["items"])
        return
    if not found["enabled"]:
        err.print("it is disabled; if it were not:", style="yellow")
    for item in found["items"]:
        later = "" if item["start_time"] == item["scheduled_time"] else f"  {item['start_time']}"
        out.print(Text(item["scheduled_time"] + later))


def _path(name: str) -> str:
    biz_type, slash, own = name.partition("/")
    if not (biz_type and slash and own):
        raise Failure(f"{name}: a schedule is named BIZ_TYPE/NAME", USAGE)
    return f"/v1/biz/{quote(biz_type, safe='')}/schedules/{quote(own, safe='')}"


def _seconds(option: str, text: str) -> float:
    try:
        return parse_duration(text) / 1000
    except ValueError as error:
        raise Failure(f"{option}: {error}", USAGE) from None


def _json_of(raw: bytes) -> msgspec.Raw:
    try:
        msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise Failure(f"--data is not JSON: {error}", USAGE) from None
    return msgspec.Raw(raw)


def _tell(done: dict[str, Any], told: str, as_json: bool) -> None:
    if as_json:
        print_json(done)
    else:
        err.print(told)
