"""How people write durations and times, and how we write them back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from wheel_timer.cli.moments import clock_time, in_words, parse_duration, parse_moment


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("90", 90_000),
        ("0.5", 500),
        ("45s", 45_000),
        ("30m", 1_800_000),
        ("1h30m", 5_400_000),
        ("1h 30m", 5_400_000),
        ("2d", 172_800_000),
        ("1w", 604_800_000),
        ("500ms", 500),
        ("1.5h", 5_400_000),
        ("10M", 600_000),
        (" 5s ", 5_000),
        ("0.1ms", 1),
    ],
)
def test_a_duration_is_read(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize("text", ["", "m", "30 minutes", "-5s", "1e3", "5m ago", "nan", "1..5s"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="1h30m"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-12-01T09:00:00+08:00", "2026-12-01T09:00:00+08:00"),
        ("2026-12-01 09:00:00Z", "2026-12-01T09:00:00+00:00"),
        ("2026-12-01T09:00:00.123456Z", "2026-12-01T09:00:00.123456+00:00"),
        ("1796115600", 1_796_115_600),
        ("1796115600.25", 1_796_115_600.25),
    ],
)
def test_a_moment_is_read(text: str, moment: str | float) -> None:
    assert parse_moment(text) == moment


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("2026-12-01T09:00:00", "no offset"),
        ("1796115600000", "milliseconds"),
        ("tomorrow", "2026-12-01T09:00:00"),
        ("09:00", "2026-12-01T09:00:00"),
    ],
)
def test_what_is_no_moment_is_refused_with_a_hint(text: str, hint: str) -> None:
    with pytest.raises(ValueError, match=hint):
        parse_moment(text)


@pytest.mark.parametrize(
    ("ms", "words"),
    [
        (0.85, "850 us"),
        (1.23, "1.2 ms"),
        (2, "2 ms"),
        (250.4, "250 ms"),
        (3_400, "3.4 s"),
        (59_000, "59 s"),
        (1_798_000, "29 min 58 s"),
        (1_800_000, "30 min"),
        (5_400_000, "1 h 30 min"),
        (90_000_000, "1 d 1 h"),
        (-1_500, "-1.5 s"),
    ],
)
def test_a_duration_is_told(ms: float, words: str) -> None:
    assert in_words(ms) == words


def test_the_date_is_told_only_where_it_is_not_today() -> None:
    now = datetime(2026, 12, 1, 9, tzinfo=UTC)
    assert clock_time(now.replace(microsecond=7_000), now) == "09:00:00.007 UTC"
    assert clock_time(now.replace(day=2), now) == "2026-12-02 09:00:00.000 UTC"
