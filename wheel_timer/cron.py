"""
When a cron expression comes due in a time zone. Pure; the fields are cronsim's, the zone is ours.

    5 fields   minute hour day-of-month month day-of-week
    6 fields   the same with seconds in front

cronsim reads the fields and walks the calendar of wall times, which knows no summer time. What a
wall time means where the clocks are changed is decided here, alike for 5 and 6 fields (of the
libraries one skips times in Lord Howe's half hour, the other calls fixed times twice):

    fixed      neither the minute nor the hour begins with `*`: "at 02:30". A wall time that is
               skipped comes at the moment of the change, once for all that are skipped together;
               one that is repeated comes the first time only. So: once for each time of a day
    repeating  any other: "every 20 minutes". What the wall clock shows counts: a skipped time does
               not come, a repeated one comes both times
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import resources
from itertools import takewhile
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from wheel_timer.errors import FieldError

CRON_CHARACTERS_MAX: Final = 256
YEAR_MAX: Final = 9998
# Offsets are looked at once a day: no zone changes its clocks twice in one.
_DAY_S: Final = 86_400
_SECOND: Final = timedelta(seconds=1)
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a wall time, of no zone
# How far back the last moments before another are looked for first, and how that grows.
_BACK_S: Final = 60
_BACK_GROWTH: Final = 4


class Cron:
    """An expression in a zone. Raises ValueError where one of them is none; see `check_cron`."""

    def __init__(self, expression: str, timezone: str) -> None:
        self._expression = expression
        self._timezone = timezone
        self._zone = zone_of(timezone)
        fields = _parsed(expression)
        self._is_fixed = not (fields[-5].startswith("*") or fields[-4].startswith("*"))

    def after(self, moment_ms: int) -> Iterator[int]:
        """The moments after `moment_ms`, in ms since the epoch, in their order."""
        moment_s = moment_ms // 1000
        seconds = self._fixed(moment_s) if self._is_fixed else self._repeating(moment_s)
        return (second * 1000 for second in seconds)

    def next(self, moment_ms: int) -> int | None:
        """The first one after `moment_ms`; None where there is none any more."""
        return next(self.after(moment_ms), None)

    def last(self, after_ms: int, to_ms: int, count: int) -> list[int]:
        """The last `count` moments in (after_ms, to_ms], in their order."""
        back_ms = _BACK_S * 1000
        while True:
            from_ms = max(after_ms, to_ms - back_ms)
            found = deque(self.between(from_ms, to_ms), maxlen=count)
            if len(found) == count or from_ms == after_ms:
                return list(found)
            back_ms *= _BACK_GROWTH

    def between(self, after_ms: int, to_ms: int) -> Iterator[int]:
        """The moments in (after_ms, to_ms], in their order."""
        return takewhile(lambda moment_ms: moment_ms <= to_ms, self.after(after_ms))

    def _walls(self, wall: datetime) -> Iterator[datetime]:
        """The wall times that match after `wall`, by the calendar alone."""
        if wall.year > YEAR_MAX:
            return
        try:
            for one in CronSim(self._expression, wall):
                if one.year > YEAR_MAX:
                    return
                yield one
        except (OverflowError, ValueError):
            return  # it was looking for one behind the calendar's end

    def _fixed(self, after_s: int) -> Iterator[int]:
        last_s = after_s
        for wall in self._walls(_wall(after_s + _offset_s(self._zone, after_s))):
            aware = wall.replace(tzinfo=self._zone)  # fold 0: the first of two
            moment_s = int(aware.timestamp())
            if moment_s + _offset_s(self._zone, moment_s) != _seconds(wall):
                # Skipped: by the offset of before, it lies behind the change.
                moment_s = self._change_before(moment_s)
            if moment_s > last_s:
                yield moment_s
                last_s = moment_s

    def _change_before(self, moment_s: int) -> int:
        changes = _changes(self._timezone, _wall(moment_s).year)
        return changes[bisect_right(changes, moment_s) - 1]

    def _repeating(self, after_s: int) -> Iterator[int]:
        while True:
            offset_s = _offset_s(self._zone, after_s)
            end_s = self._change_after(after_s)
            for wall in self._walls(_wall(after_s + offset_s)):
                moment_s = _seconds(wall) - offset_s
                if moment_s >= end_s:
                    break
                yield moment_s
            else:
                return
            # From the change on by its own offset, that very moment too.
            after_s = end_s - 1
            offset_s = _offset_s(self._zone, end_s)
            first = _wall(end_s + offset_s)
            if next(self._walls(first - _SECOND), None) == first:
                yield end_s
            after_s = end_s

    def _change_after(self, moment_s: int) -> int:
        """The next change of the clocks; where none comes soon, some later moment without one."""
        year = _wall(moment_s).year
        for one in (year, year + 1):
            changes = _changes(self._timezone, one)
            at = bisect_right(changes, moment_s)
            if at < len(changes):
                return changes[at]
        return _seconds(_wall(moment_s).replace(year=year + 2, month=1, day=1))


def check_cron(expression: str, timezone: str) -> list[FieldError]:
    """What is wrong with a schedule's cron and timezone; nothing that never comes is taken."""
    errors = []
    try:
        zone_of(timezone)
    except ValueError as error:
        errors.append(FieldError(str(error), "#/timezone"))
    try:
        _parsed(expression)
        if not errors and Cron(expression, timezone).next(0) is None:
            errors.append(FieldError("this never comes", "#/cron"))
    except ValueError as error:
        errors.append(FieldError(str(error), "#/cron"))
    return errors


def zone_of(name: str) -> ZoneInfo:
    """The zone of an IANA name. Raises ValueError where there is none: nothing else is opened."""
    if name not in _zones():
        raise ValueError("not an IANA time zone such as Europe/Berlin or UTC")
    return _zone(name)


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    """The names that the package tzdata knows. Not the machine's: all processes must agree."""
    return frozenset(resources.files("tzdata").joinpath("zones").read_text().split())


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    with resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


def _parsed(expression: str) -> list[str]:
    """The fields. Raises ValueError where they are no cron expression."""
    fields = expression.split()
    if len(expression) > CRON_CHARACTERS_MAX:
        raise ValueError(f"longer than {CRON_CHARACTERS_MAX} characters")
    if len(fields) not in (5, 6):
        raise ValueError("5 fields (minute hour day month weekday), or 6 with seconds first")
    if not expression.isascii() or not expression.isprintable():
        raise ValueError("not a cron expression")
    try:
        CronSim(expression, _EPOCH)
    except (CronSimError, ValueError, AssertionError, TypeError) as error:
        raise ValueError(f"not a cron expression: {error}" if str(error) else "not one") from None
    return fields


@lru_cache(maxsize=4096)
def _changes(timezone: str, year: int) -> list[int]:
    """The moments of a year (UTC, s) at which this zone's offset changes, in their order."""
    zone = _zone(timezone)
    first_s = _seconds(datetime(year, 1, 1))  # noqa: DTZ001 - seconds of UTC
    found = []
    before_s = _offset_s(zone, first_s - 1)
    for day_s in range(first_s - 1, first_s + 366 * _DAY_S, _DAY_S):
        low_s, high_s = day_s, day_s + _DAY_S
        after_s = _offset_s(zone, high_s)
        if after_s == before_s:
            continue
        while high_s - low_s > 1:
            middle_s = (low_s + high_s) // 2
            if _offset_s(zone, middle_s) == before_s:
                low_s = middle_s
            else:
                high_s = middle_s
        found.append(high_s)
        before_s = after_s
    return found


def _offset_s(zone: ZoneInfo, moment_s: int) -> int:
    """What the wall clocks of a zone are ahead of UTC."""
    offset = datetime.fromtimestamp(moment_s, UTC).astimezone(zone).utcoffset()
    assert offset is not None
    return int(offset.total_seconds())


def _wall(seconds: int) -> datetime:
    """The wall time so many seconds after its epoch."""
    return _EPOCH + timedelta(seconds=seconds)


def _seconds(wall: datetime) -> int:
    return round((wall - _EPOCH).total_seconds())
