"""How much of a lane may lie in the event center. Pure."""

from __future__ import annotations

from typing import Final

# So much at least: a lane that is worked off slowly must not wait for its next page.
WINDOW_MIN: Final = 1_000
# Where nobody knows how fast the lane is worked off: 5 MB of Redis' memory.
WINDOW_UNMEASURED: Final = 50_000
# Beyond this a lane is bounded by memory, not by time: 25 MB.
WINDOW_MAX: Final = 250_000


def window(per_s: float | None, visibility_s: float) -> int:
    """
    Entries that a lane may hold which is worked off at per_s (None: not known).

    What it holds is worked off in half a visibility time, so that the sweep, which looks after a
    whole one, finds nothing of a healthy lane.
    """
    if per_s is None:
        return WINDOW_UNMEASURED
    return max(WINDOW_MIN, min(WINDOW_MAX, int(per_s * visibility_s / 2)))
