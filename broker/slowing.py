"""
How a lane gives way to 429: half its pace at each, not more than once a second; without a further
one a quarter more each second, and free again once it has come to twice where it began. Every
broker does so for its own calls. Pure.
"""

from __future__ import annotations

from typing import Final

from broker.spacing import Spacing

SLOWEST_PER_S: Final = 0.5
STEP_MS: Final = 1_000.0
GROWTH: Final = 1.25


class Slowing(Spacing):
    """A pace that was taken back. pace: calls a second when the first 429 came."""

    def __init__(self, pace: float, now_ms: float) -> None:
        super().__init__(max(pace / 2, SLOWEST_PER_S), now_ms)
        self._free_at = 2 * max(pace, SLOWEST_PER_S)
        self._changed_ms = now_ms

    def refused(self, now_ms: float) -> None:
        """One more 429."""
        if now_ms >= self._changed_ms + STEP_MS:
            self._per_s = max(self._per_s / 2, SLOWEST_PER_S)
            self._changed_ms = now_ms

    def is_over(self, now_ms: float) -> bool:
        """Whether the lane has its pace back."""
        while now_ms >= self._changed_ms + STEP_MS and self._per_s < self._free_at:
            self._changed_ms += STEP_MS
            self._per_s *= GROWTH
        return self._per_s >= self._free_at
