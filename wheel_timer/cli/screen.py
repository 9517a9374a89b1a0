"""What whoever looks at `top` has chosen, and what a key makes of it. Pure."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

PAGE_LANES: Final = 10
_STEPS: Final = {
    "down": 1,
    "j": 1,
    "up": -1,
    "k": -1,
    "page down": PAGE_LANES,
    "page up": -PAGE_LANES,
}


class Sort(StrEnum):
    """By what lanes are sorted, the most first."""

    LATE = "late"
    DEPTH = "depth"
    PENDING = "pending"
    DEAD = "dead"
    RATE = "rate"
    NAME = "name"


class Screen(NamedTuple):
    """
    What whoever looks has chosen, and what he has to be told beside the picture. lines: None for as
    many as it takes. keys: whether there are any to be named.
    """

    columns: int
    lines: int | None = None
    sort: Sort = Sort.LATE
    first_lane: int = 0
    interval_s: float = 2.0
    is_paused: bool = False
    keys: bool = False
    failure: str | None = None
    failed_since: datetime | None = None

    def pressed(self, key: str, lanes: int) -> Screen:
        """The screen after a key, with so many lanes to show."""
        if key in _STEPS:
            first = max(0, min(lanes - 1, self.first_lane + _STEPS[key]))
            return self._replace(first_lane=first)
        if key in ("s", "S"):
            sorts = list(Sort)
            sort = sorts[(sorts.index(self.sort) + 1) % len(sorts)]
            return self._replace(sort=sort, first_lane=0)
        if key in ("p", "P", " "):
            return self._replace(is_paused=not self.is_paused)
        return self._replace(first_lane=0) if key == "home" else self
