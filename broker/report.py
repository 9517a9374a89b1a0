"""
What a broker tells of its attempts: metrics, and warnings that a failing endpoint cannot flood.

Never biz_data, header values, or what stands behind a URL's host.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from broker.lane import Lane
from wheel_timer import metrics
from wheel_timer.log import fields_of
from wheel_timer.task import Result

WARNING_EVERY_S: Final = 1.0
# Attempts are counted so many at once: one by one they cost twice as much, in the callbacks' way.
COUNTED_AT_ONCE: Final = 100
RESTING: Final = (0, 0, False)
SETTLED: Final = frozenset({"finished", "failed", "cancelled"})

logger = logging.getLogger(__name__)


class _Ended(NamedTuple):
    """One attempt or claim that ended. lateness_ms: of first calls; duration_ms: of any call."""

    biz_type: str
    outcome: str
    lateness_ms: float | None
    duration_ms: int | None


class Report:
    """One broker's report. late: hears of each first call of a biz_type how many ms late it was."""

    def __init__(self, late: Callable[[str, float], None] | None = None) -> None:
        self._late = late
        self._ended: list[_Ended] = []
        self._next_warning_s: dict[str, float] = {}
        self._unreported: dict[str, int] = {}
        self._state: dict[str, tuple[int, int, bool]] = {}

    def ended(self, result: Result, lateness_ms: float) -> None:
        """An attempt ended, or a claim came to its end without a call."""
        is_first_call = result.attempt == 1 and result.duration_ms is not None
        self._ended.append(
            _Ended(
                result.biz_type,
                result.outcome,
                lateness_ms if is_first_call else None,
                result.duration_ms,
            )
        )
        if len(self._ended) >= COUNTED_AT_ONCE:
            self.count()
        if result.error is not None:
            self._warn(result)
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("attempt ended: %s", result.outcome, extra=fields_of(result))

    def state(self, lanes: Iterable[Lane], now_ms: float) -> None:
        """The lanes as they stand, and what was not counted yet; once a second, and at the end."""
        self.count()
        oldest_ms = now_ms
        gone = set(self._state)
        for lane in lanes:
            oldest_ms = min(oldest_ms, lane.first_ms(now_ms))
            gone.discard(lane.biz_type)
            self._stands(
                lane.biz_type, (lane.in_flight, lane.depth, not lane.gate.breaker.is_closed)
            )
        for biz_type in gone:
            self._stands(biz_type, RESTING)
        metrics.oldest_due((now_ms - oldest_ms) / 1000)

    def _stands(self, biz_type: str, state: tuple[int, int, bool]) -> None:
        before = self._state.pop(biz_type, RESTING)
        if state != RESTING:
            self._state[biz_type] = state
        if state != before:
            metrics.lane_state(biz_type, before, state)

    def count(self) -> None:
        """Count what was not counted yet; now and then, and at the end."""
        ended, self._ended = self._ended, []
        settled: Counter[tuple[str, str]] = Counter()
        for biz_type, outcome, lateness_ms, duration_ms in ended:
            if lateness_ms is not None:
                metrics.callback_started(biz_type, lateness_ms / 1000)
                if self._late is not None:
                    self._late(biz_type, lateness_ms)
            if duration_ms is not None:
                metrics.callback_ended(biz_type, outcome, duration_ms / 1000)
            if outcome in SETTLED:
                settled[biz_type, outcome] += 1
        for (biz_type, outcome), tasks in settled.items():
            metrics.tasks_settled(biz_type, outcome, tasks)

    def _warn(self, result: Result) -> None:
        """At most one warning a second for each biz_type, with a count of the rest."""
        biz_type, now_s = result.biz_type, time.monotonic()
        if now_s < self._next_warning_s.get(biz_type, 0.0):
            self._unreported[biz_type] = self._unreported.get(biz_type, 0) + 1
            return
        self._next_warning_s[biz_type] = now_s + WARNING_EVERY_S
        logger.warning(
            "attempt failed: %s (and %d more since the last such line)",
            result.error,
            self._unreported.pop(biz_type, 0),
            extra={**fields_of(result), "outcome": result.outcome},
        )
