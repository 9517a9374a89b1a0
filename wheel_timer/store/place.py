"""
Places on the wheel, as the SQL functions want them: rows of one partition, in place order.

Statements that name one partition are planned for that one, and rows locked in place order by
everybody cannot deadlock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, TypeVar
from uuid import UUID

from wheel_timer.wheel import PARTITION_SLOTS, home_of, slot_of

Row = TypeVar("Row")


class Run(NamedTuple):
    """Slots [slot_lo, slot_hi] of one partition."""

    slot_lo: int
    slot_hi: int


def by_partition(
    rows: Iterable[Row], place: Callable[[Row], tuple[int, UUID]]
) -> Iterator[tuple[Run, Sequence[Row]]]:
    """
    Split rows into runs of one partition, each in place order.

    place: row -> (start_time_ms, task_id); the shard is the one in the id. Yields the slots a run
    spans with its rows.
    """

    def key(row: Row) -> tuple[int, int, int, UUID]:
        start_time_ms, task_id = place(row)
        return slot_of(start_time_ms), home_of(task_id)[1], start_time_ms, task_id

    ordered = sorted(((key(row), row) for row in rows), key=lambda pair: pair[0])
    first = 0
    while first < len(ordered):
        lo = ordered[first][0][0]
        end = (lo // PARTITION_SLOTS + 1) * PARTITION_SLOTS
        last = first
        while last < len(ordered) and ordered[last][0][0] < end:
            last += 1
        yield Run(lo, ordered[last - 1][0][0]), [row for _, row in ordered[first:last]]
        first = last
