"""
How a lane gives way to 429: half its pace at each, not more than once a second; without a further
one a quarter more each second, and free again once it has come to twice where it began. Every
broker does so for its own calls. Pure.
"""

from __future__ import annotations

from typing import Final

SLOWEST_PER_S: Final = 0.5
STEP_MS: Final = 1_000.0
GROWTH: Final = 1.25
# What comes while a turn is late: a tenth of a second of the pace, one at least.
HELD_S: Final = 0.1


class Slowing:
    """A pace that was taken back. pace: calls a second when the first 429 came."""

    def __init__(self, pace: float, now_ms: float) -> None:
        self._free_at = 2 * max(pace, SLOWEST_PER_S)
        self._per_s = max(pace / 2, SLOWEST_PER_S)
        self._changed_ms = self._at_ms = now_ms
        self._room = 0.0

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

    def room(self, now_ms: float) -> int:
        """How many calls may go now."""
        gained = max(0.0, now_ms - self._at_ms) / 1000 * self._per_s
        self._room = min(max(1.0, self._per_s * HELD_S), self._room + gained)
        self._at_ms = max(now_ms, self._at_ms)
        return int(self._room + 1e-9)

    def spend(self, calls: int) -> None:
        """So many are about to go."""
        self._room -= calls

    def next_ms(self, now_ms: float) -> float:
        """When there is room for a call."""
        return now_ms + max(0.0, 1 - self._room) / self._per_s * 1000
