"""
What the counters of /metrics say of the time between two readings: how many a second, how late.

They are those of the processes that answer at the URL: of a machine, not of the service, where
brokers run on several. Pure.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

# Percentiles are those of the last minute.
WINDOW_S: Final = 60.0
_LINE: Final = re.compile(r"wheel_timer_(\w+)(?:\{([^}]*)\})? (\S+)")
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


class Reading(NamedTuple):
    """
    /metrics at read_s, by a clock that never jumps. settled: by status; called: attempts that
    ended, by biz_type, `other` among them; late, published: how many were at most so many seconds
    late, by that bound; violations: of the last audit, by its name, where it found any.
    """

    read_s: float
    submitted: float
    settled: Mapping[str, float]
    called: Mapping[str, float]
    late: Mapping[float, float]
    published: Mapping[float, float]
    violations: Mapping[str, int]

    def goes_on_from(self, before: Reading) -> bool:
        """Whether nothing was counted back: another process answered then, or a new one does."""
        pairs: Sequence[tuple[Mapping[Any, float], Mapping[Any, float]]] = (
            (self.settled, before.settled),
            (self.called, before.called),
            (self.late, before.late),
            (self.published, before.published),
        )
        return self.submitted >= before.submitted and all(
            now.get(name, 0.0) >= count for now, was in pairs for name, count in was.items()
        )


class Rates(NamedTuple):
    """A second. called: by biz_type; one that was not called is missing."""

    submitted: float
    finished: float
    failed: float
    cancelled: float
    called: Mapping[str, float]


class Lateness(NamedTuple):
    """
    Under how many ms so many were late, by the bounds that the server counts by; inf beyond the
    last of them. p50, p99: first calls, after their moment; publish_p99: publishing alone. None:
    there were none.
    """

    p50_ms: float | None
    p99_ms: float | None
    publish_p99_ms: float | None


class Readings:
    """The last minute of readings. `add` each; what is asked is answered from them."""

    def __init__(self) -> None:
        self._kept: deque[Reading] = deque()

    def add(self, reading: Reading) -> None:
        """The newest. One that does not go on from the last makes a new start."""
        if self._kept and not reading.goes_on_from(self._kept[-1]):
            self._kept.clear()
        self._kept.append(reading)
        while len(self._kept) > 2 and reading.read_s - self._kept[1].read_s >= WINDOW_S:
            self._kept.popleft()

    @property
    def violations(self) -> Mapping[str, int]:
        """As Reading has them."""
        return self._kept[-1].violations if self._kept else {}

    def rates(self) -> Rates | None:
        """Between the last two readings; None where there are no two."""
        if len(self._kept) < 2:
            return None
        before, now = self._kept[-2], self._kept[-1]
        seconds = max(now.read_s - before.read_s, 0.001)
        settled = {name: n - before.settled.get(name, 0.0) for name, n in now.settled.items()}
        called = {name: n - before.called.get(name, 0.0) for name, n in now.called.items()}
        return Rates(
            submitted=(now.submitted - before.submitted) / seconds,
            finished=settled.get("finished", 0.0) / seconds,
            failed=settled.get("failed", 0.0) / seconds,
            cancelled=settled.get("cancelled", 0.0) / seconds,
            called={name: count / seconds for name, count in called.items() if count},
        )

    def lateness(self) -> Lateness | None:
        """Over the readings that are kept; None where there are no two."""
        if len(self._kept) < 2:
            return None
        before, now = self._kept[0], self._kept[-1]
        late = _since(before.late, now.late)
        published = _since(before.published, now.published)
        return Lateness(
            p50_ms=quantile_ms(late, 0.5),
            p99_ms=quantile_ms(late, 0.99),
            publish_p99_ms=quantile_ms(published, 0.99),
        )


def read_metrics(text: str, read_s: float) -> Reading:
    """A reading of Prometheus' text format. What is not asked for, or not understood, is passed."""
    sums: dict[str, dict[Any, float]] = {name: defaultdict(float) for name in _WANTED}
    for line in text.splitlines():
        found = _LINE.match(line)
        if found is None or found[1] not in _WANTED:
            continue
        try:
            value = float(found[3])
            key = _WANTED[found[1]](dict(_LABEL.findall(found[2] or "")))
        except (KeyError, ValueError):
            continue
        sums[found[1]][key] += value
    return Reading(
        read_s,
        submitted=sums["tasks_submitted_total"][""],
        settled=sums["tasks_settled_total"],
        called=sums["callbacks_total"],
        late=sums["lateness_seconds_bucket"],
        published=sums["publish_lateness_seconds_bucket"],
        violations={name: int(n) for name, n in sums["audit_violations"].items() if n > 0},
    )


def quantile_ms(buckets: Mapping[float, float], share: float) -> float | None:
    """
    The bound, in ms, that this share of what was counted did not exceed; None where nothing was.

    buckets: how many were at most so many seconds late, by that bound, inf the last.
    """
    bounds: Sequence[float] = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    if total <= 0:
        return None
    return next(bound * 1000 for bound in bounds if buckets[bound] >= share * total)


def _since(before: Mapping[float, float], now: Mapping[float, float]) -> dict[float, float]:
    return {bound: count - before.get(bound, 0.0) for bound, count in now.items()}


def _bound(labels: Mapping[str, str]) -> float:
    return math.inf if labels["le"] == "+Inf" else float(labels["le"])


# What is asked of /metrics, and by which of its labels it is told apart.
_WANTED: Final[Mapping[str, Callable[[Mapping[str, str]], str | float]]] = {
    "tasks_submitted_total": lambda _: "",
    "tasks_settled_total": lambda labels: labels["status"],
    "callbacks_total": lambda labels: labels["biz_type"],
    "lateness_seconds_bucket": _bound,
    "publish_lateness_seconds_bucket": _bound,
    "audit_violations": lambda labels: labels["audit"],
}
