"""
The forecast: how many calls each minute of the next hours holds, and which seconds hold too many.

The ledger says exactly how many tasks each quarter hour has. How they lie in it only the wheel can
tell, at 3 to 5 us a row: so it is read piece by piece while somebody asks, what was found is kept,
and a quarter hour is read again once the ledger's sum of it is another. What was not read yet is
spread evenly over its quarter hour, what has changed since is kept in its shape; both are said to
be estimated.

What it costs is bounded twice: who asks waits LOOK_MS for it at most, and all of it together takes
a hundredth of the time that passes, but for BUDGET_MS_MAX at once for the first looks. One at a
time reads; who comes meanwhile gets what is known.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from wheel_timer.database import Database
from wheel_timer.monotonic import monotonic_s
from wheel_timer.store import forecast as store
from wheel_timer.store.forecast import QUARTER_MS, Key, within_laps

MINUTE_MS: Final = 60_000
SECOND_MS: Final = 1_000
# For all that a look reads; what an answer of a day takes besides is some 10 ms.
LOOK_MS: Final = 50.0
BUDGET_MS_MAX: Final = 2_000.0
BUDGET_SHARE: Final = 0.01
# A piece is so large as may be read in a slice, by the pace of the one before; a wheel that is not
# in memory is slower by the hundred.
PIECE_ROWS_MIN: Final = 50
PIECE_ROWS_MAX: Final = 10_000
SLICE_MS: Final = 20.0
# What has changed is not read again sooner; of the present quarter hour, which always does.
CHANGED_AGAIN_S: Final = 30.0
PRESENT_AGAIN_S: Final = 5.0
VIEWS_MAX: Final = 16
HOT_SECONDS_MAX: Final = 100
FIRST: Final = Key()


class Minute(NamedTuple):
    """tasks: pending, with start_time in it. is_estimated: the quarter hour is right, not this."""

    start_ms: int
    tasks: int
    is_estimated: bool


class HotSecond(NamedTuple):
    """More tasks of a biz_type than it can call in a second."""

    start_ms: int
    biz_type: str
    tasks: int


class Forecast(NamedTuple):
    """minutes: every one, in order. hot: the most crowded, HOT_SECONDS_MAX at most, in order."""

    minutes: list[Minute]
    hot: list[HotSecond]


@dataclass(slots=True)
class _Quarter:
    """What was read of a quarter hour, from from_ms on; to_read: the spans and the key to go on."""

    from_ms: int
    version: int
    began_s: float
    to_read: list[tuple[int, int]]
    key: Key = FIRST
    minutes: dict[int, int] = field(default_factory=dict)
    seconds: dict[tuple[int, str], int] = field(default_factory=dict)

    @property
    def tasks(self) -> int:
        return sum(self.minutes.values())

    @property
    def read_to_ms(self) -> int:
        """Every minute that ends up to here was read."""
        if not self.to_read:
            return self.from_ms // QUARTER_MS * QUARTER_MS + QUARTER_MS
        return max(self.key.start_time_ms, self.to_read[0][0])


@dataclass(slots=True)
class _View:
    """What is known for one set of biz_types. read: whole quarter hours; begun: those in parts."""

    sums: dict[int, int] = field(default_factory=dict)
    sums_span: tuple[int, int] = (0, 0)
    sums_until_s: float = 0.0
    read: dict[int, _Quarter] = field(default_factory=dict)
    begun: dict[int, _Quarter] = field(default_factory=dict)


class Forecaster:
    """The forecasts of one broker."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._views: OrderedDict[tuple[str, ...], _View] = OrderedDict()
        self._reading = asyncio.Lock()
        self._budget_ms = BUDGET_MS_MAX
        self._budget_s = monotonic_s()
        self._look = PIECE_ROWS_MIN  # rows that a slice is enough for

    async def look(
        self,
        hots: Mapping[str, int],
        version: int,
        from_ms: int,
        to_ms: int,
        *,
        are_all: bool = False,
    ) -> Forecast:
        """
        The minutes of [from_ms, to_ms), which is now and some hours later.

        hots: the biz_types that are meant, and for each how many tasks a second may hold before it
        is hot. version: another one means that these may have changed. are_all: there are no others
        (what is summed up already need not be). Raises DatabaseUnavailable.
        """
        began_s = monotonic_s()
        view = self._view(tuple(hots))
        await self._sum_up(view, None if are_all else list(hots), from_ms, to_ms)
        if not self._reading.locked():
            async with self._reading:
                await self._read(view, hots, version, from_ms, began_s + LOOK_MS / 1000)
        minutes = [
            minute
            for quarter_ms in range(from_ms // QUARTER_MS * QUARTER_MS, to_ms, QUARTER_MS)
            for minute in _minutes(view, quarter_ms, from_ms)
            if minute.start_ms < to_ms
        ]
        known = (view.read.get(q) or view.begun[q] for q in {*view.read, *view.begun})
        return Forecast(minutes, _hot(known, hots, from_ms, to_ms))

    def _view(self, names: tuple[str, ...]) -> _View:
        view = self._views.pop(names, None) or _View()
        self._views[names] = view
        if len(self._views) > VIEWS_MAX:
            self._views.popitem(last=False)
        return view

    async def _sum_up(self, view: _View, names: list[str] | None, from_ms: int, to_ms: int) -> None:
        """Ask the ledger, unless its answer would cost more than its share of the time."""
        # As far as anybody has asked: what is known there stays so.
        end_ms = max(-(-to_ms // QUARTER_MS) * QUARTER_MS, view.sums_span[1])
        span = from_ms // QUARTER_MS * QUARTER_MS, end_ms
        began_s = monotonic_s()
        is_within = view.sums_span[0] <= span[0] and span[1] <= view.sums_span[1]
        if is_within and began_s < view.sums_until_s:
            return
        view.sums = await store.quarters(self._db, names, *span)
        ended_s = monotonic_s()
        view.sums_span = span
        view.sums_until_s = ended_s + (ended_s - began_s) / BUDGET_SHARE
        for known in (view.read, view.begun):
            for quarter_ms in known.keys() - view.sums.keys():
                del known[quarter_ms]

    async def _read(
        self, view: _View, hots: Mapping[str, int], version: int, from_ms: int, until_s: float
    ) -> None:
        """Read on where it is wanted most, until the time or the budget is over."""
        self._earn()
        for quarter_ms in _wanted(view, version, from_ms):
            # Half of what is left, so that one very full quarter hour does not keep all others.
            half_s = monotonic_s() + (until_s - monotonic_s()) / 2
            while monotonic_s() < half_s and self._budget_ms > 0:
                quarter = view.begun.get(quarter_ms)
                if quarter is None:
                    begin_ms = max(quarter_ms, from_ms)
                    spans = within_laps(begin_ms, quarter_ms + QUARTER_MS)
                    quarter = _Quarter(begin_ms, version, monotonic_s(), spans)
                    view.begun[quarter_ms] = quarter
                await self._read_piece(quarter, hots, half_s)
                # Others sum up meanwhile: there may be none any more.
                total = view.sums.get(quarter_ms, 0)
                # All that the ledger counts there is found; of the present one it counts more.
                if quarter_ms > from_ms and quarter.tasks >= total:
                    quarter.to_read.clear()
                if not quarter.to_read:
                    view.read[quarter_ms] = quarter
                    view.begun.pop(quarter_ms, None)
                    break

    async def _read_piece(self, quarter: _Quarter, hots: Mapping[str, int], until_s: float) -> None:
        began_s = monotonic_s()
        slice_ms = min(SLICE_MS, (until_s - began_s) * 1000)
        look = max(PIECE_ROWS_MIN, int(self._look * slice_ms / SLICE_MS))
        from_ms, to_ms = quarter.to_read[0]
        piece = await store.piece(self._db, hots, from_ms, to_ms, quarter.key, look)
        for minute_ms, tasks in piece.minutes:
            quarter.minutes[minute_ms] = quarter.minutes.get(minute_ms, 0) + tasks
        for second_ms, biz_type, tasks in piece.seconds:
            second = second_ms, biz_type
            quarter.seconds[second] = quarter.seconds.get(second, 0) + tasks
        if piece.key is None or piece.looked < look:
            del quarter.to_read[0]
            quarter.key = FIRST
        else:
            quarter.key = piece.key
        took_ms = (monotonic_s() - began_s) * 1000
        self._budget_ms -= took_ms
        paced = int(piece.looked * SLICE_MS / max(took_ms, 1.0))
        self._look = max(PIECE_ROWS_MIN, min(PIECE_ROWS_MAX, paced, 4 * look))

    def _earn(self) -> None:
        now_s = monotonic_s()
        earned_ms = (now_s - self._budget_s) * 1000 * BUDGET_SHARE
        self._budget_ms = min(BUDGET_MS_MAX, self._budget_ms + earned_ms)
        self._budget_s = now_s


def _wanted(view: _View, version: int, from_ms: int) -> list[int]:
    """
    The quarter hours to read: the present one; then what was never read, the fullest first, for
    there the hot seconds are; then what has changed.
    """
    now_s = monotonic_s()
    present_ms = from_ms // QUARTER_MS * QUARTER_MS
    unread, changed = [], []
    for quarter_ms, tasks in view.sums.items():
        known = view.read.get(quarter_ms)
        if known is None:
            unread.append((quarter_ms != present_ms, -tasks, quarter_ms))
            continue
        age_s = now_s - known.began_s
        if quarter_ms == present_ms:
            if age_s >= PRESENT_AGAIN_S:
                unread.append((False, -tasks, quarter_ms))
        elif (known.tasks, known.version) != (tasks, version) and age_s >= CHANGED_AGAIN_S:
            changed.append(quarter_ms)
    return [quarter_ms for *_, quarter_ms in sorted(unread)] + sorted(changed)


def _minutes(view: _View, quarter_ms: int, from_ms: int) -> Iterable[Minute]:
    """The minutes of a quarter hour that are not over."""
    first_ms = max(quarter_ms, from_ms // MINUTE_MS * MINUTE_MS)
    starts = range(first_ms, quarter_ms + QUARTER_MS, MINUTE_MS)
    total = view.sums.get(quarter_ms, 0)
    known = view.read.get(quarter_ms)
    # The ledger's sum of the present one holds what is late, too.
    is_present = first_ms < from_ms or quarter_ms < from_ms
    if known is not None and (is_present or known.tasks == total):
        return [Minute(start, known.minutes.get(start, 0), False) for start in starts]
    if known is not None:
        shape = [known.minutes.get(start, 0) for start in starts]
        return _estimated(starts, spread(total, shape if any(shape) else [1] * len(starts)))
    part = view.begun.get(quarter_ms)
    read_to_ms = quarter_ms if part is None else part.read_to_ms
    counted = {} if part is None else part.minutes
    done = [s for s in starts if s + MINUTE_MS <= read_to_ms]
    rest = starts[len(done) :]
    minutes = [Minute(start, counted.get(start, 0), False) for start in done]
    left = total - sum(minute.tasks for minute in minutes)
    if is_present and part is None:
        left = total * len(starts) * MINUTE_MS // QUARTER_MS
    return minutes + _estimated(rest, spread(max(0, left), [1] * len(rest)))


def _estimated(starts: Iterable[int], tasks: Iterable[int]) -> list[Minute]:
    return [Minute(start, n, n > 0) for start, n in zip(starts, tasks, strict=True)]


def spread(total: int, weights: list[int]) -> list[int]:
    """`total` in whole parts by their weights; they add up to it. Not all weights are 0."""
    whole, sum_of, before, parts = sum(weights), 0, 0, []
    for weight in weights:
        sum_of += weight
        upto = total * sum_of // whole
        parts.append(upto - before)
        before = upto
    return parts


def _hot(
    known: Iterable[_Quarter], hots: Mapping[str, int], from_ms: int, to_ms: int
) -> list[HotSecond]:
    """The seconds with more tasks than hots allow."""
    found = [
        HotSecond(second_ms, biz_type, tasks)
        for quarter in known
        for (second_ms, biz_type), tasks in quarter.seconds.items()
        if tasks > hots[biz_type] and from_ms // SECOND_MS * SECOND_MS <= second_ms < to_ms
    ]
    found.sort(key=lambda hot: hot.tasks / max(1, hots[hot.biz_type]), reverse=True)
    return sorted(found[:HOT_SECONDS_MAX])
