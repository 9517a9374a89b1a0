"""Crons in zones, over both changes of the clocks, against croniter and against the wall clock."""

from __future__ import annotations

from calendar import isleap, weekday
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from typing import Final
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter

from wheel_timer.cron import Cron, check_cron

YEARS: Final = range(2026, 2036)
NEW_YORK, LORD_HOWE, SHANGHAI = "America/New_York", "Australia/Lord_Howe", "Asia/Shanghai"
ZONES: Final = (NEW_YORK, LORD_HOWE, SHANGHAI)
FIXED: Final = (
    "30 2 * * *",
    "15 2 * * *",
    "0 2 * * *",
    "45 1 * * *",
    "30 1 * * *",
    "0 0 * * *",
    "15,45 1,2,3 * * *",
    "0 9 * * MON",
    "30 2 1-7,8-14 * *",
    "20 30 2 * * *",
    "59 59 1 * * *",
)
REPEATING: Final = (
    "*/20 * * * *",
    "0 * * * *",
    "*/20 2 * * *",
    "*/20 1 * * *",
    "0 */2 * * *",
    "*/7 1-3 * * *",
    "30 */20 1,2 * * *",
    "*/30 59 * * * *",
)


def ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


@cache
def changes(zone: str) -> list[datetime]:
    """The moments in these years at which the offset of a zone changes, all at full half hours."""
    there = ZoneInfo(zone)
    found = []
    day = datetime(YEARS[0], 1, 1, tzinfo=UTC)
    while day.year <= YEARS[-1]:
        if offset(ms(day), there) != offset(ms(day + timedelta(days=1)), there):
            half_hours = [day + n * timedelta(minutes=30) for n in range(1, 49)]
            before = offset(ms(day), there)
            found.append(next(one for one in half_hours if offset(ms(one), there) != before))
        day += timedelta(days=1)
    return found


def spans(zone: str) -> list[tuple[datetime, datetime]]:
    """Two days around each change; and, where there is none, some quiet ones."""
    found = changes(zone) or [datetime(year, 3, 14, tzinfo=UTC) for year in YEARS]
    return [(one - timedelta(days=1), one + timedelta(days=1)) for one in found]


@cache
def walls(expression: str, day: datetime, days: int) -> list[datetime]:
    """The wall times that match, by croniter's calendar, which is told of no zone."""
    steps = croniter(expression, day - timedelta(seconds=1), second_at_beginning=True)
    found = []
    while (wall := steps.get_next(datetime)) < day + timedelta(days=days):
        found.append(wall)
    return found


def is_there(wall: datetime, zone: ZoneInfo, fold: int) -> bool:
    aware = wall.replace(tzinfo=zone, fold=fold)
    return aware.astimezone(UTC).astimezone(zone).replace(tzinfo=None) == wall


def offset(at_ms: int, zone: ZoneInfo) -> timedelta | None:
    return datetime.fromtimestamp(at_ms / 1000, zone).utcoffset()


def by_rule(
    expression: str, zone: str, begin: datetime, end: datetime, *, fixed: bool
) -> list[int]:
    """What the rule says, told from the wall times one by one."""
    there = ZoneInfo(zone)
    day = begin.astimezone(there).replace(tzinfo=None, hour=0, minute=0, second=0)
    found = set()
    for wall in walls(expression, day, 3):
        first, second = (wall.replace(tzinfo=there, fold=fold) for fold in (0, 1))
        if not is_there(wall, there, 0):
            if fixed:
                found.add(ms(end - timedelta(days=1)))  # the change itself
            continue
        found.add(ms(first))
        if not fixed and is_there(wall, there, 1):
            found.add(ms(second))
    return sorted(one for one in found if ms(begin) < one <= ms(end))


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("expression", FIXED + REPEATING)
def test_both_changes_of_ten_years_go_by_the_rule(expression: str, zone: str) -> None:
    cron = Cron(expression, zone)
    found = spans(zone)
    assert len(found) == (10 if zone == SHANGHAI else 20)
    for begin, end in found:
        expected = by_rule(expression, zone, begin, end, fixed=expression in FIXED)
        assert list(cron.between(ms(begin), ms(end))) == expected


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize(
    "expression",
    [
        *("0 0 1 */3 *", "0 12 29 2 *", "0 0 * * 5#2"),
        *(pytest.param(one, marks=pytest.mark.slow) for one in FIXED),
    ],
)
def test_ten_years_are_those_of_croniter_where_no_clock_is_changed(
    expression: str, zone: str
) -> None:
    """croniter calls fixed times twice where they are repeated, so those days are left out."""
    there = ZoneInfo(zone)
    begin = datetime(YEARS[0], 1, 1, tzinfo=there)
    end = datetime(YEARS[-1] + 1, 1, 1, tzinfo=there)
    changed = {one.astimezone(there).date() for one in changes(zone)}
    steps = croniter(expression, begin, second_at_beginning=True)
    expected = []
    while (moment := steps.get_next(datetime)) <= end:
        if moment.date() not in changed:
            expected.append(ms(moment))
    found = [
        moment
        for moment in Cron(expression, zone).between(ms(begin), ms(end))
        if datetime.fromtimestamp(moment / 1000, there).date() not in changed
    ]
    assert found == expected


def test_a_skipped_fixed_time_comes_when_the_clocks_are_changed() -> None:
    noon = datetime(2027, 3, 13, 17, tzinfo=UTC)
    first = Cron("30 2 * * *", NEW_YORK).next(ms(noon))
    assert first == ms(datetime(2027, 3, 14, 7, tzinfo=UTC))  # 03:00 there, an instant after 01:59


def test_a_repeated_fixed_time_comes_once() -> None:
    noon = datetime(2027, 11, 6, 16, tzinfo=UTC)
    first, second = islice(Cron("30 1 * * *", NEW_YORK).after(ms(noon)), 2)
    assert first == ms(datetime(2027, 11, 7, 5, 30, tzinfo=UTC))
    assert second - first == 25 * 3_600_000


def test_every_second_has_no_gap_over_a_change() -> None:
    change = ms(datetime(2027, 4, 3, 15, tzinfo=UTC))  # Lord Howe, half an hour back
    found = list(Cron("* * * * * *", LORD_HOWE).between(change - 60_000, change + 60_000))
    assert found == list(range(change - 59_000, change + 61_000, 1000))


def test_the_last_before_a_moment() -> None:
    noon = ms(datetime(2027, 1, 15, 12, tzinfo=UTC))
    cron = Cron("0 0 * * *", "UTC")
    day = 86_400_000
    assert cron.last(0, noon, 3) == [noon - day // 2 - n * day for n in (2, 1, 0)]
    assert cron.last(noon - day, noon, 3) == [noon - day // 2]
    assert cron.last(noon - 1000, noon, 3) == []


@pytest.mark.parametrize("zone", ["UTC", NEW_YORK])
def test_what_comes_seldom_ends_with_the_calendar(zone: str) -> None:
    """A fifth Monday in February: a leap day that is one."""
    found = list(Cron("0 0 * 2 MON#5", zone).after(ms(datetime(9900, 1, 1, tzinfo=UTC))))
    years = [year for year in range(9900, 9999) if isleap(year) and weekday(year, 2, 29) == 0]
    assert [datetime.fromtimestamp(one / 1000, UTC).year for one in found] == years


@pytest.mark.parametrize(
    "expression",
    [
        *("", "* * *", "60 * * * *", "*/0 * * * *", "0 0 30 2 *", "@daily", "a * * * *"),
        *("0 0 L-1 * *", "* * * * * * *", "5-1 * * * *", "0 0 * * 8", "\u0660 * * * *"),
        "1," * 200 + "1 * * * *",
    ],
)
def test_what_is_no_cron_is_said(expression: str) -> None:
    assert [error.pointer for error in check_cron(expression, "UTC")] == ["#/cron"]


@pytest.mark.parametrize("zone", ["Mars/X", "", "/etc/passwd", "../UTC", "utc+8", "UTC\0"])
def test_what_is_no_zone_is_said(zone: str) -> None:
    assert [error.pointer for error in check_cron("0 9 * * *", zone)] == ["#/timezone"]


@pytest.mark.parametrize("zone", ZONES)
def test_what_is_right_is_taken(zone: str) -> None:
    for expression in (*FIXED, *REPEATING, "0 0 L * *", "0 0 29 2 *", "0 9 * JAN-MAR mon"):
        assert check_cron(expression, zone) == []
