"""What `demo` counts: which timers arrived, how late, which twice, which early. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from wheel_timer.echo import Arrival

PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9, 100.0)


class Tally:
    """`expect` the ids that were submitted, `count` each arrival, in any order of the two."""

    def __init__(self) -> None:
        self._expected: set[str] = set()
        self._times: dict[str, int] = {}
        self.lateness_ms: list[float] = []
        self.early = 0

    def expect(self, task_id: str) -> None:
        """This timer was accepted."""
        self._expected.add(task_id)

    def count(self, arrival: Arrival) -> None:
        """A callback came in. Lateness is that of a timer's first arrival."""
        task_id = arrival.headers.get("webhook-id", "")
        seen = self._times.get(task_id, 0)
        self._times[task_id] = seen + 1
        late_ms = arrival.late_ms
        if late_ms is not None and seen == 0:
            self.lateness_ms.append(late_ms)
            self.early += late_ms < 0

    @property
    def expected(self) -> int:
        """Timers that were accepted."""
        return len(self._expected)

    @property
    def arrived(self) -> int:
        """Different timers that arrived."""
        return len(self._times)

    @property
    def duplicates(self) -> int:
        """Arrivals beyond each timer's first."""
        return sum(self._times.values()) - len(self._times)

    @property
    def missing(self) -> int:
        """Accepted, and not arrived."""
        return len(self._expected - self._times.keys())

    @property
    def unknown(self) -> int:
        """Arrived, and never accepted."""
        return len(self._times.keys() - self._expected)

    @property
    def is_exact(self) -> bool:
        """Every timer arrived once, none early."""
        return not (self.duplicates or self.missing or self.unknown or self.early)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of them do not exceed; ordered is not empty."""
    rank = math.ceil(percent / 100 * len(ordered))
    return ordered[max(rank, 1) - 1]
