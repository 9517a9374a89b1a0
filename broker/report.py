"""
What a broker tells of its attempts: metrics, and warnings that a failing endpoint cannot flood.

Never biz_data, header values, or what stands behind a URL's host.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from typing import Final

from broker.lane import Lane
from wheel_timer import metrics
from wheel_timer.task import Result

WARNING_EVERY_S: Final = 1.0
SETTLED: Final = frozenset({"finished", "failed", "cancelled"})

logger = logging.getLogger(__name__)


class Report:
    """One broker's report."""

    def __init__(self) -> None:
        self._next_warning_s: dict[str, float] = {}
        self._unreported: dict[str, int] = {}
        self._inflight: dict[str, int] = {}

    def started(self, biz_type: str, attempt: int, lateness_ms: float) -> None:
        """A call begins, so long after its moment."""
        if attempt == 1:
            metrics.callback_started(biz_type, lateness_ms / 1000)

    def ended(self, result: Result) -> None:
        """An attempt ended, or a claim came to its end without a call."""
        if result.duration_ms is not None:
            metrics.callback_ended(result.biz_type, result.outcome, result.duration_ms / 1000)
        if result.outcome in SETTLED:
            metrics.tasks_settled(result.biz_type, result.outcome, 1)
        if result.error is not None:
            self._warn(result)
        logger.debug("task %s attempt %d: %s", result.task_id, result.attempt, result.outcome)

    def lanes(self, lanes: Iterable[Lane]) -> None:
        """The lanes as they stand; tells only what changed."""
        for lane in lanes:
            if self._inflight.get(lane.biz_type, 0) != lane.in_flight:
                self._inflight[lane.biz_type] = lane.in_flight
                metrics.lane_inflight(lane.biz_type, lane.in_flight)

    def _warn(self, result: Result) -> None:
        """At most one warning a second for each biz_type, with a count of the rest."""
        biz_type, now_s = result.biz_type, time.monotonic()
        if now_s < self._next_warning_s.get(biz_type, 0.0):
            self._unreported[biz_type] = self._unreported.get(biz_type, 0) + 1
            return
        self._next_warning_s[biz_type] = now_s + WARNING_EVERY_S
        logger.warning(
            "%s: task %s, attempt %d, %s: %s (and %d more since the last such line)",
            biz_type,
            result.task_id,
            result.attempt,
            result.outcome,
            result.error,
            self._unreported.pop(biz_type, 0),
        )
