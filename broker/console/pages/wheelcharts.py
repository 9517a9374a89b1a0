"""The charts of the wheel's page: how late calls were in the last hour, and what is coming."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from broker.api.times import format_time
from broker.console.chart import Column, Line
from broker.console.visit import Visit
from wheel_timer.cli.moments import in_words
from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.lateness import ENDS_MS, FIVE_MS, MINUTE_MS, Counts, percentile_ms, summed
from wheel_timer.store.forecast import QUARTER_MS, quarters

MINUTES: Final = 60
COMING_QUARTERS: Final = 32
# Of a narrowed key, whose part is read for each biz_type: those with the most pending tasks.
BIZ_TYPES_MAX: Final = 50
HOUR_MS: Final = 3_600_000
_SHARES: Final = (("half of them by", "", 0.5), ("99 of 100 by", "second", 0.99))
_MARKS: Final = (
    *((1.0, "1 ms"), (10.0, "10 ms"), (100.0, "100 ms"), (1000.0, "1 s")),
    *((10_000.0, "10 s"), (60_000.0, "1 min"), (600_000.0, "10 min"), (ENDS_MS[-1], "later")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatenessChart:
    """
    p50_ms, p99_ms: of the whole hour; None: no first call. marks: the lines across. left_out: how
    many biz_types of a narrowed key are not in it.
    """

    calls: int
    p50_ms: float | None
    p99_ms: float | None
    lines: Sequence[Line]
    labels: Sequence[str]
    marks: Sequence[tuple[float, str]]
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ComingChart:
    """tasks: of all columns, each a quarter hour."""

    tasks: int
    columns: Sequence[Column]


@dataclass(frozen=True, slots=True, kw_only=True)
class Charts:
    """lateness: None while the event center is away, which keeps it."""

    lateness: LatenessChart | None
    coming: ComingChart


async def charts(visit: Visit, names: Sequence[str], now_ms: int) -> Charts:
    """names: the biz_types that the key sees, those with the most pending tasks first."""
    return Charts(
        lateness=await _lateness(visit, names, now_ms), coming=await _coming(visit, names, now_ms)
    )


async def _lateness(visit: Visit, names: Sequence[str], now_ms: int) -> LatenessChart | None:
    event_center = visit.context.event_center
    left_out = 0
    try:
        if visit.actor.is_narrowed:
            step_ms, left_out = FIVE_MS, max(0, len(names) - BIZ_TYPES_MAX)
            fives = MINUTES * MINUTE_MS // FIVE_MS
            found = await event_center.lateness_of(names[:BIZ_TYPES_MAX], now_ms, fives)
        else:
            step_ms, found = MINUTE_MS, await event_center.lateness(now_ms, MINUTES)
    except EventCenterUnavailable:
        return None
    whole = summed(found)
    worst_ms = max([percentile_ms(whole, 1.0) or 0, 100.0])
    top = next((n for n, mark in enumerate(_MARKS) if mark[0] >= worst_ms), len(_MARKS) - 1)
    last_ms = now_ms // step_ms * step_ms
    starts = [last_ms - n * step_ms for n in reversed(range(len(found)))]
    return LatenessChart(
        calls=sum(whole.values()),
        p50_ms=percentile_ms(whole, 0.5),
        p99_ms=percentile_ms(whole, 0.99),
        lines=[
            *(Line(name, mark, _values(found, share)) for name, mark, share in _SHARES),
            Line("the last by", "third", _values(found, 1.0)),
        ],
        labels=[
            format_time(start)[11:16] if start % (15 * MINUTE_MS) == 0 else "" for start in starts
        ],
        marks=_MARKS[: top + 1],
        left_out=left_out,
    )


def _values(found: Sequence[Counts], share: float) -> list[float | None]:
    return [percentile_ms(counts, share) for counts in found]


async def _coming(visit: Visit, names: Sequence[str], now_ms: int) -> ComingChart:
    """What is pending in the next quarter hours, by the ledger: it costs nobody a look around."""
    first_ms = now_ms // QUARTER_MS * QUARTER_MS
    end_ms = first_ms + COMING_QUARTERS * QUARTER_MS
    asked = list(names) if visit.actor.is_narrowed else None
    sums = await quarters(visit.context.db, asked, first_ms, end_ms)
    columns = []
    for start_ms in range(first_ms, end_ms, QUARTER_MS):
        tasks = max(0, sums.get(start_ms, 0))
        begin, end = (format_time(at)[11:16] for at in (start_ms, start_ms + QUARTER_MS))
        away_ms = start_ms - now_ms
        when = f"in {in_words(away_ms // MINUTE_MS * MINUTE_MS)}" if away_ms > 0 else "now"
        label = begin if start_ms % HOUR_MS == 0 else ""
        columns.append(Column(tasks, label, f"{begin} to {end}, {when}: {tasks:,} tasks"))
    return ComingChart(tasks=sum(int(one.value) for one in columns), columns=columns)
