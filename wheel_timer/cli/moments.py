"""
How people write times and durations, and how we write them back. Pure.

In:  `30m`, `1h30m`, `2d`, `500ms`, `90` (seconds); `2026-12-01T09:00:00+08:00`, `1796115600`.
Out: `in 29 min 58 s`, `1.2 ms`, `09:00:00.000`.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

_UNITS_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")
_DURATION: Final = re.compile(rf"(?:{_PART.pattern}\s*)+")
_EPOCH_MS_FROM: Final = 100_000_000_000  # as seconds this would be the year 5138: surely ms


def parse_duration(text: str) -> int:
    """
    A duration in ms, fractions of a ms rounded up; a bare number is seconds.

    Raises ValueError with a text that shows how to write one.
    """
    text = text.strip().lower()
    if _NUMBER.fullmatch(text):
        return _whole_ms(Decimal(text) * 1_000)
    if not _DURATION.fullmatch(text):
        raise ValueError(f"{text!r} is no duration: write 45s, 30m, 1h30m, 2d or 500ms")
    parts = _PART.findall(text)
    return _whole_ms(sum((Decimal(n) * _UNITS_MS[unit] for n, unit in parts), Decimal(0)))


def parse_moment(text: str) -> str | float:
    """
    A moment as the API takes it: RFC 3339 with its offset, or epoch seconds.

    Raises ValueError with a hint; a time without an offset is refused, for it would mean one thing
    here and another on the server.
    """
    text = text.strip()
    if _NUMBER.fullmatch(text):
        seconds = float(text)
        if seconds >= _EPOCH_MS_FROM:
            raise ValueError(f"{text} looks like milliseconds: epoch times are in seconds")
        return int(seconds) if seconds.is_integer() else seconds
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is no time: write 2026-12-01T09:00:00+08:00, or epoch seconds"
        ) from None
    if moment.tzinfo is None:
        offset = moment.astimezone().strftime("%z")
        raise ValueError(
            f"{text!r} has no offset: add Z for UTC, or {offset[:3]}:{offset[3:]} for this"
            " machine's zone"
        )
    return moment.isoformat()


def parse_rfc3339(text: str) -> datetime:
    """A time that the server wrote."""
    return datetime.fromisoformat(text).astimezone(UTC)


def in_words(duration_ms: float) -> str:
    """A duration for people, two units at most: `850 us`, `1.2 ms`, `3.4 s`, `29 min 58 s`."""
    if duration_ms < 0:
        return "-" + in_words(-duration_ms)
    if duration_ms < 1:
        return f"{duration_ms * 1_000:.0f} us"
    if duration_ms < 1_000:
        return _plain(duration_ms) + " ms"
    if duration_ms < 60_000:
        return _plain(duration_ms / 1_000) + " s"
    seconds = round(duration_ms / 1_000)
    for unit_s, unit, below_s, below in (
        (86_400, "d", 3_600, "h"),
        (3_600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if seconds >= unit_s:
            whole, rest = divmod(seconds, unit_s)
            return f"{whole} {unit}" + (f" {rest // below_s} {below}" if rest // below_s else "")
    return f"{seconds} s"


def clock_time(moment: datetime, now: datetime) -> str:
    """A moment, to the ms in UTC; the date only where it is not today's."""
    time = f"{moment:%H:%M:%S}.{moment.microsecond // 1_000:03d} UTC"
    return time if moment.date() == now.date() else f"{moment:%Y-%m-%d} {time}"


def _plain(number: float) -> str:
    return f"{number:.0f}" if number >= 100 else f"{number:.1f}".removesuffix(".0")


def _whole_ms(ms: Decimal) -> int:
    return int(ms.to_integral_value(rounding="ROUND_CEILING"))
