"""Calls at an even pace. Pure."""

from __future__ import annotations

from typing import Final

# So much of the pace at once, one call at least: a claim for each call alone would cost more than
# the call.
AT_ONCE_S: Final = 0.1
# A moment in ms has a grain: what is missing less than this part is there, or who comes just when
# he was told to would be told again, at once, for as long as a clock stands still.
GRAIN: Final = 1e-5


class Spacing:
    """per_s: the pace."""

    def __init__(self, per_s: float, now_ms: float) -> None:
        self._per_s = per_s
        self._at_ms = now_ms
        self._room = 0.0

    def room(self, now_ms: float) -> int:
        """How many calls may go now."""
        gained = max(0.0, now_ms - self._at_ms) / 1000 * self._per_s
        self._room = min(self._at_once, self._room + gained)
        self._at_ms = max(now_ms, self._at_ms)
        room = self._room + self._at_once * GRAIN
        return int(room) if room >= self._at_once else 0

    def spend(self, calls: int) -> None:
        """So many are about to go."""
        self._room -= calls

    def next_ms(self, now_ms: float) -> float:
        """When there is room for calls."""
        return now_ms + max(0.0, self._at_once - self._room) / self._per_s * 1000

    @property
    def _at_once(self) -> float:
        return max(1.0, self._per_s * AT_ONCE_S)
