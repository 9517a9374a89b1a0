"""What a benchmark says: rows of the table, and the numbers behind them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec


class Row(msgspec.Struct):
    """One line of the table. bound, measured: as shown. values: the numbers, by name with unit."""

    figure: str
    bound: str
    measured: str
    ok: bool
    values: dict[str, float]


class Figure(NamedTuple):
    """A benchmark. name: on the command line. measure: sets up all it needs and removes it."""

    name: str
    what: str
    measure: Callable[[], Awaitable[list[Row]]]


class Lateness(NamedTuple):
    """Lateness of callbacks in ms. early: how many came before their moment."""

    arrivals: int
    p50: float
    p99: float
    longest: float
    early: int


def at_least(figure: str, bound: float, measured: float, unit: str, **values: float) -> Row:
    """A row whose measured value must not be below its bound."""
    return Row(
        figure,
        f"{bound:,.0f}{unit}",
        f"{measured:,.0f}{unit}",
        measured >= bound,
        {"measured": measured, **values},
    )


def lateness(late_ms: Sequence[float]) -> Lateness:
    """Percentiles by rank. Raises ValueError where there is nothing."""
    if not late_ms:
        raise ValueError("nothing arrived")
    ordered = sorted(late_ms)
    return Lateness(
        len(ordered),
        percentile(ordered, 50),
        percentile(ordered, 99),
        ordered[-1],
        sum(1 for late in ordered if late < 0),
    )


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that so many percent of the ordered values do not exceed."""
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(0, int(rank) - 1)]
