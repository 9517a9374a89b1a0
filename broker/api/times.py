"""
Moments and delays as the API writes them. Pure.

In: epoch seconds as a JSON number, or RFC 3339 with an offset; out: RFC 3339 UTC with ms. Inside,
everything is whole milliseconds, and a fraction of one is rounded up: a callback may not be early.
The number's own digits are read, never a float: 1767225600.123 as a float is a little less or a
little more than its text, and one of the two would come out a millisecond late.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from decimal import ROUND_CEILING, Context, Decimal
from typing import Final

START_TIME_MS_MIN: Final = 946_684_800_000  # 2000-01-01T00:00:00Z
START_TIME_MS_MAX: Final = 253_402_300_799_999  # 9999-12-31T23:59:59.999Z
DELAY_MS_MAX: Final = START_TIME_MS_MAX

# A number of more characters is no moment; and int() and Decimal() never see a megabyte of digits.
_NUMBER_CHARACTERS_MAX: Final = 64
# Digits beyond the precision are rounded towards later, as all fractions are.
_ARITHMETIC: Final = Context(prec=40, rounding=ROUND_CEILING)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_RFC3339: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,30}))?(?:[Zz]|([+-])(\d\d):(\d\d))",
    re.ASCII,
)
_NO_OFFSET: Final = re.compile(r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?", re.ASCII)

_HINT: Final = "times are epoch seconds, not ms and not minutes; for now, use delay: 0"


class BadTime(ValueError):
    """The text is no moment (or delay) that the wheel takes; the message says why."""


def parse_start_time(raw: bytes) -> int:
    """The moment that one JSON value means, in ms since the epoch. Raises BadTime."""
    if raw.startswith(b'"'):
        moment_ms = _parse_rfc3339(_text(raw))
    else:
        moment_ms = _parse_seconds(raw)
    if moment_ms < START_TIME_MS_MIN:
        raise BadTime(f"before 2000-01-01; {_HINT}")
    if moment_ms > START_TIME_MS_MAX:
        raise BadTime(f"after the year 9999; {_HINT}")
    return moment_ms


def parse_delay(raw: bytes) -> int:
    """The delay that one JSON value means, in ms. Raises BadTime."""
    if raw.startswith(b'"'):
        raise BadTime("a number of seconds, not a string")
    delay_ms = _parse_seconds(raw)
    if delay_ms < 0:
        raise BadTime("a delay cannot be negative")
    if delay_ms > DELAY_MS_MAX:
        raise BadTime("beyond the year 9999; a delay is in seconds")
    return delay_ms


def format_time(moment_ms: int) -> str:
    """RFC 3339 UTC with ms: 2026-01-01T00:00:00.123Z."""
    seconds, ms = divmod(moment_ms, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC).isoformat()[:-6]}.{ms:03d}Z"


def _parse_seconds(raw: bytes) -> int:
    """A JSON number of seconds in ms, rounded up; beyond the year 9999 only roughly."""
    if raw[:1] not in b"-0123456789" or not raw:
        raise BadTime("a number of seconds or an RFC 3339 text")
    if len(raw) > _NUMBER_CHARACTERS_MAX:
        raise BadTime(f"a number of more than {_NUMBER_CHARACTERS_MAX} characters")
    # What nearly everybody sends; a tenth of the time that Decimal takes.
    whole, point, fraction = raw.partition(b".")
    if whole.isdigit() and len(fraction) <= 3 and (fraction.isdigit() or not point):
        return int(whole) * 1000 + int(fraction.ljust(3, b"0"))
    seconds = Decimal(raw.decode("ascii"))
    # Compared before it is multiplied out: 1e999999 has a million digits.
    if seconds > START_TIME_MS_MAX:
        return START_TIME_MS_MAX + 1
    if seconds < 0:
        return -1
    ms = _ARITHMETIC.multiply(seconds, Decimal(1000))
    return int(ms.to_integral_value(ROUND_CEILING))


def _text(raw: bytes) -> str:
    """The text of a JSON string without escapes; no moment needs one."""
    try:
        return raw[1:-1].decode("ascii")
    except UnicodeDecodeError as error:
        raise BadTime("not an RFC 3339 time") from error


def _parse_rfc3339(text: str) -> int:
    found = _RFC3339.fullmatch(text)
    if found is None:
        if _NO_OFFSET.fullmatch(text):
            raise BadTime("an offset is missing (Z or +08:00)")
        raise BadTime("not an RFC 3339 time such as 2026-01-01T09:00:00+08:00")
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    fraction, sign, offset_hour, offset_minute = found.groups()[6:]
    if second == 60:
        raise BadTime("leap seconds are not kept: epoch time has none; send the next second")
    if hour > 23 or minute > 59 or second > 59:
        raise BadTime("not a time of day")
    try:
        days = date(year, month, day).toordinal() - _EPOCH_DAY
    except ValueError as error:
        raise BadTime("there is no such day") from error
    seconds = days * 86400 + hour * 3600 + minute * 60 + second
    if sign is not None:
        if int(offset_hour) > 23 or int(offset_minute) > 59:
            raise BadTime("not an offset")
        offset_s = int(offset_hour) * 3600 + int(offset_minute) * 60
        seconds -= offset_s if sign == "+" else -offset_s
    digits = fraction or ""
    ms = int(digits[:3].ljust(3, "0"))
    if digits[3:].strip("0"):
        ms += 1
    return seconds * 1000 + ms
