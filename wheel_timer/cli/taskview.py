"""`get`: a task as a table for people, its attempts below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from wheel_timer.cli.moments import clock_time, in_words, parse_rfc3339

_STYLES: Final = {
    "pending": "yellow",
    "delivering": "cyan",
    "finished": "green",
    "failed": "red",
    "cancelled": "dim",
}
_DATA_CHARS_MAX: Final = 400


def task_view(task: Mapping[str, Any], now: datetime) -> RenderableType:
    """What is set, in the order of CONTRACT; what is null is left out."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in task.items():
        if value is None or name == "attempt_log":
            continue
        table.add_row(name, _cell(name, value, now))
    log = task.get("attempt_log") or ()
    return Group(table, Text(), _attempts(log, now)) if log else table


def styled_status(status: str) -> Text:
    """A status in its colour."""
    return Text(status, style=_STYLES.get(status, ""))


def _cell(name: str, value: Any, now: datetime) -> Text:
    if name == "status":
        return styled_status(value)
    if name.endswith("_time"):
        return _moment(value, now)
    if name == "waiting":
        until = value.get("until")
        told = Text(str(value.get("reason")))
        return told.append(Text.assemble(", until ", _moment(until, now))) if until else told
    if isinstance(value, str):
        return Text(value)
    text = msgspec.json.encode(value).decode()
    return Text(text if len(text) <= _DATA_CHARS_MAX else text[: _DATA_CHARS_MAX - 1] + "…")


def _moment(text: str, now: datetime) -> Text:
    moment = parse_rfc3339(text)
    away_ms = (moment - now).total_seconds() * 1_000
    away = f"in {in_words(away_ms)}" if away_ms > 0 else f"{in_words(-away_ms)} ago"
    return Text.assemble(clock_time(moment, now), (f"  {away}", "dim"))


def _attempts(log: Sequence[Mapping[str, Any]], now: datetime) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("attempt", justify="right")
    table.add_column("began", no_wrap=True)
    table.add_column("took", justify="right")
    for name in ("outcome", "status", "answer"):
        table.add_column(name, overflow="fold")
    for entry in log:
        began = entry.get("started_time")
        took = entry.get("duration_ms")
        table.add_row(
            str(entry["attempt"]),
            clock_time(parse_rfc3339(began), now) if began else "",
            in_words(took) if took is not None else "",
            Text(str(entry.get("outcome") or "")),
            str(entry.get("http_status") or entry.get("error_class") or ""),
            Text(" ".join((entry.get("response_excerpt") or entry.get("error") or "").split())),
        )
    return table
