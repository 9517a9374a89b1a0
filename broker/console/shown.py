"""
How the console writes what it shows: templates, moments, counts, durations.

All text is escaped by the templates; what is Markup here holds nothing but numbers and fixed words.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from broker.api.times import format_time
from broker.console.assets import asset_path
from broker.console.chart import columns, lines
from wheel_timer.cli.moments import in_words
from wheel_timer.version import __version__

_NONE: Final = "\N{EN DASH}"
_DIRECTORY: Final = Path(__file__).parent / "templates"


def render(template: str, **values: Any) -> str:
    """A template's text."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    """The templates; each is compiled when it is first used."""
    environment = Environment(
        loader=FileSystemLoader(_DIRECTORY),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters |= {
        "moment": moment,
        "at": at,
        "ago": ago,
        "day": day,
        "count": count,
        "words": words,
        "json": pretty,
        "short": short,
    }
    environment.globals |= {
        "asset": asset_path,
        "version": __version__,
        "columns": columns,
        "lines": lines,
    }
    return environment


def moment(value: int | str | None) -> str:
    """A moment (ms since the epoch, or as the API writes it) in UTC, to the millisecond."""
    if value is None:
        return _NONE
    text = format_time(value) if isinstance(value, int) else value
    at = datetime.fromisoformat(text).astimezone(UTC)
    date, time, ms = f"{at:%Y-%m-%d}", f"{at:%H:%M:%S}", at.microsecond // 1000
    machine = f"{date}T{time}.{ms:03d}Z"
    return Markup(
        '<time datetime="{}"><span class="day">{}</span> {}<span class="ms">.{:03d}</span></time>'
    ).format(machine, date, time, ms)


def day(at_ms: int) -> str:
    """The day of a moment, in UTC."""
    return format_time(at_ms)[:10]


def at(value: int | str | None, now_ms: float) -> str:
    """A moment for a table: its day only where it is another than today's, in UTC."""
    if value is None:
        return _NONE
    text = format_time(value) if isinstance(value, int) else value
    today = format_time(int(now_ms))[:10]
    day = "" if text[:10] == today else text[5:10] if text[:4] == today[:4] else text[:10]
    shown = Markup('<span class="day">{}</span> ').format(day) if day else ""
    return Markup('<time datetime="{}">{}{}<span class="ms">{}</span></time>').format(
        text, shown, text[11:19], text[19:23]
    )


def ago(value: int | str | None, now_ms: float) -> str:
    """How far a moment lies from now: `3 min 2 s ago`, `in 5 s`, `now`."""
    if value is None:
        return _NONE
    at_ms = value if isinstance(value, int) else datetime.fromisoformat(value).timestamp() * 1000
    away_ms = at_ms - now_ms
    if abs(away_ms) < 1000:
        return "now"
    told = in_words(round(abs(away_ms) / 1000) * 1000)
    return f"in {told}" if away_ms > 0 else f"{told} ago"


def count(value: float | None) -> str:
    """A number with its thousands apart."""
    if value is None:
        return _NONE
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.2f}".rstrip("0")


def words(duration_ms: float | None) -> str:
    """A duration."""
    if duration_ms is None:
        return _NONE
    return in_words(duration_ms) if duration_ms else "0 ms"


def pretty(value: Any) -> str:
    """Anything that has a JSON form, over several lines."""
    return json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False)


def short(text: str | None, characters_max: int = 120) -> str:
    """A text on one line, cut where it is long."""
    if text is None:
        return _NONE
    line = " ".join(text.split())
    return line if len(line) <= characters_max else line[: characters_max - 1] + "…"
