"""Moments and delays: what is taken, what is refused, and where a fraction goes."""

from __future__ import annotations

from decimal import Decimal
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.api.times import (
    START_TIME_MS_MAX,
    START_TIME_MS_MIN,
    BadTime,
    format_time,
    parse_delay,
    parse_start_time,
)


@pytest.mark.parametrize(
    ("raw", "expected_ms"),
    [
        (b"1767225600", 1767225600000),
        (b"1767225600.0", 1767225600000),
        (b"1767225600.123", 1767225600123),
        (b"1767225600.1230000", 1767225600123),
        (b"1767225600.1230001", 1767225600124),
        (b"1767225600.12300000000000000000000000000000000001", 1767225600124),
        (b"1767225600.001", 1767225600001),
        (b"1767225600.999", 1767225600999),
        (b"1767225600.9991", 1767225601000),
        (b"1.7672256e9", 1767225600000),
        (b"17672256E+2", 1767225600000),
        (b"946684800", START_TIME_MS_MIN),
        (b"253402300799.999", START_TIME_MS_MAX),
        (b'"2026-01-01T00:00:00Z"', 1767225600000),
        (b'"2026-01-01t00:00:00z"', 1767225600000),
        (b'"2026-01-01 00:00:00Z"', 1767225600000),
        (b'"2026-01-01T00:00:00-00:00"', 1767225600000),
        (b'"2026-01-01T08:00:00+08:00"', 1767225600000),
        (b'"2025-12-31T14:15:00-09:45"', 1767225600000),
        (b'"2026-01-01T00:00:00.5Z"', 1767225600500),
        (b'"2026-01-01T00:00:00.1234Z"', 1767225600124),
        (b'"2026-01-01T00:00:00.123000Z"', 1767225600123),
        (b'"2024-02-29T00:00:00Z"', 1709164800000),
        (b'"9999-12-31T23:59:59.999Z"', START_TIME_MS_MAX),
        (b'"2000-01-01T00:00:00Z"', START_TIME_MS_MIN),
    ],
)
def test_a_moment_is_read(raw: bytes, expected_ms: int) -> None:
    assert parse_start_time(raw) == expected_ms


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"1767225600123", "not ms"),
        (b"1767225600123456", "not ms"),
        (b"29453760", "not minutes"),
        (b"0", "delay: 0"),
        (b"-1", "before 2000"),
        (b"-0", "before 2000"),
        (b"-1e400", "before 2000"),
        (b"1e400", "after the year 9999"),
        (b"1e999999999", "after the year 9999"),
        (b"9223372036854775808", "after the year 9999"),
        (b"1e-999999999", "before 2000"),
        (b"253402300799.9991", "after the year 9999"),
        (b"253402300800", "after the year 9999"),
        (b"1" * 65, "characters"),
        (b"1767225600." + b"0" * 100_000, "characters"),
        (b"true", "number of seconds"),
        (b"false", "number of seconds"),
        (b"null", "number of seconds"),
        (b"[]", "number of seconds"),
        (b"{}", "number of seconds"),
        (b'""', "RFC 3339"),
        (b'"123"', "RFC 3339"),
        (b'"1767225600"', "RFC 3339"),
        (b'"tomorrow"', "RFC 3339"),
        (b'"2026-01-01T00:00:00"', "offset is missing"),
        (b'"2026-01-01 00:00"', "offset is missing"),
        (b'"2026-01-01"', "offset is missing"),
        (b'"2026-1-1T00:00:00Z"', "RFC 3339"),
        (b'"2026-01-01T00:00Z"', "RFC 3339"),
        (b'"2026-01-01T00:00:00+0800"', "RFC 3339"),
        (b'"2026-01-01T00:00:00+24:00"', "not an offset"),
        (b'"2026-01-01T00:00:00+00:60"', "not an offset"),
        (b'"2026-01-01T24:00:00Z"', "time of day"),
        (b'"2026-01-01T00:60:00Z"', "time of day"),
        (b'"2026-12-31T23:59:60Z"', "leap second"),
        (b'"2026-12-31T23:59:61Z"', "time of day"),
        (b'"2026-02-29T00:00:00Z"', "no such day"),
        (b'"2026-13-01T00:00:00Z"', "no such day"),
        (b'"0000-01-01T00:00:00Z"', "no such day"),
        (b'"1999-12-31T23:59:59.999Z"', "before 2000"),
        (b'"9999-12-31T23:59:59.9991Z"', "after the year 9999"),
        (b'"9999-12-31T23:59:59-00:01"', "after the year 9999"),
        ('"\uff12026-01-01T00:00:00Z"'.encode(), "RFC 3339"),
        (b'"2026-01-01T00:00:00Z\\n"', "RFC 3339"),
        (b'"10000-01-01T00:00:00Z"', "RFC 3339"),
    ],
)
def test_what_is_no_moment_is_refused(raw: bytes, said: str) -> None:
    with pytest.raises(BadTime, match=said):
        parse_start_time(raw)


@pytest.mark.parametrize(
    ("raw", "expected_ms"),
    [
        (b"0", 0),
        (b"-0", 0),
        (b"-0.0", 0),
        (b"1800", 1800000),
        (b"0.25", 250),
        (b"0.0001", 1),
        (b"1e-999999", 1),
        (b"1e3", 1000000),
        (b"0.001", 1),
        (b"0.0010", 1),
        (b"4.35", 4350),
    ],
)
def test_a_delay_is_read(raw: bytes, expected_ms: int) -> None:
    assert parse_delay(raw) == expected_ms


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"-1", "negative"),
        (b"-0.0001", "negative"),
        (b"-1e999999", "negative"),
        (b"1e400", "year 9999"),
        (b"253402300800", "year 9999"),
        (b'"30"', "not a string"),
        (b'"PT30M"', "not a string"),
        (b"true", "number"),
    ],
)
def test_what_is_no_delay_is_refused(raw: bytes, said: str) -> None:
    with pytest.raises(BadTime, match=said):
        parse_delay(raw)


@given(st.decimals(0, 1_000_000_000, places=6))
def test_a_fraction_of_a_millisecond_is_always_rounded_up(seconds: Decimal) -> None:
    assert parse_delay(format(seconds, "f").encode()) == ceil(seconds * 1000)


@given(st.integers(START_TIME_MS_MIN, START_TIME_MS_MAX))
def test_what_is_shown_can_be_sent_back(moment_ms: int) -> None:
    shown = format_time(moment_ms)
    assert parse_start_time(f'"{shown}"'.encode()) == moment_ms
    assert len(shown) == len("2026-01-01T00:00:00.123Z")
