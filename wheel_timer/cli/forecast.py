"""`forecast`: what is to be called in the next hours, against the rate limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from wheel_timer.cli.listing import BizType
from wheel_timer.cli.moments import parse_rfc3339
from wheel_timer.cli.options import AsJson, Config, KeyFile, Url, connect
from wheel_timer.cli.output import out, print_json

# Each look knows more than the one before: so many, as long as something is still estimated.
LOOKS_MAX: Final = 10
BAR_CHARS: Final = 30


def forecast(
    biz_type: BizType = None,
    hours: Annotated[
        int, typer.Option("--hours", min=1, max=72, metavar="N", help="How far ahead.")
    ] = 24,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Show how many calls the next hours hold, and the seconds that hold too many.

    A line an hour: its tasks, its fullest minute, and how that compares with what the rate limit
    lets through in a minute. Times are UTC. What is marked with ~ is spread evenly over its quarter
    of an hour, because the wheel was not read so far. --json prints each minute.

    [bold]Examples[/]

    $ wheel-timer forecast --biz-type orders

    $ wheel-timer forecast --hours 2 --json | jq '.buckets[] | select(.tasks > .limit)'
    """
    query: dict[str, str | int] = {"hours": hours} | ({"biz_type": biz_type} if biz_type else {})
    with connect(url, key_file, config) as server:
        for _ in range(LOOKS_MAX):
            found = server.get("/v1/forecast", **query)
            if not found["estimated"]:
                break
    if as_json:
        print_json(found)
    else:
        out.print(forecast_view(found))


def forecast_view(found: Mapping[str, Any]) -> RenderableType:
    """A line an hour, and the hot seconds."""
    limit = found["buckets"][0]["limit"]
    table = Table("hour", box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("tasks", "fullest minute", "of the limit"):
        table.add_column(name, justify="right")
    table.add_column("")
    hours = list(_hours(found["buckets"]))
    most = max((sum(bucket["tasks"] for bucket in hour) for _, hour in hours), default=0)
    for start, hour in hours:
        tasks = sum(bucket["tasks"] for bucket in hour)
        about = "~" if any(bucket["estimated"] for bucket in hour) else ""
        peak = max(hour, key=lambda bucket: bucket["tasks"])
        table.add_row(
            f"{start:%d %b %H:00}",
            f"{tasks:,}",
            f"{about}{peak['tasks']:,} at {parse_rfc3339(peak['start']):%H:%M}" if tasks else "",
            _share(peak["tasks"], limit, about) if tasks else "",
            Text("█" * round(BAR_CHARS * tasks / most) if most else "", style="cyan"),
        )
    said = "no rate limit" if limit is None else f"at most {limit:,.10g} a minute"
    whose = found["biz_type"] or "all biz_types"
    total = Text(f"{whose}: {found['tasks']:,} tasks in {found['hours']} h, {said}", style="bold")
    return Group(total, table, *_hot_lines(found["hot_seconds"]))


def _hours(buckets: Iterable[Mapping[str, Any]]) -> Iterator[tuple[datetime, list[Any]]]:
    def hour_of(bucket: Mapping[str, Any]) -> datetime:
        return parse_rfc3339(bucket["start"]).replace(minute=0, second=0)

    for start, group in groupby(buckets, hour_of):
        yield start, list(group)


def _share(tasks: int, limit: float | None, about: str) -> Text:
    if not limit:
        return Text("-")
    share = tasks / limit
    return Text(f"{about}{share:.0%}", style="red" if share > 1 else "")


def _hot_lines(hot: Sequence[Mapping[str, Any]]) -> Iterator[Text]:
    if hot:
        yield Text("seconds that hold more than can be called in them:", style="yellow")
    for one in hot:
        limit = "no rate limit" if one["limit"] is None else f"limit {one['limit']:g}/s"
        start = parse_rfc3339(one["start"])
        yield Text(f"  {start:%d %b %H:%M:%S}  {one['biz_type']}  {one['tasks']:,} tasks, {limit}")
