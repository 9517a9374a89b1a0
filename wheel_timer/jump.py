"""
Whether a jump of the database's clock is to be followed. Pure.

A jump forward would have everything up to there called at once, too early if the clock is wrong.
So it is followed only where somebody has said that it is right: `accept-jump` counts up a number
that every pulse carries. A process that starts has only its machine's clock to compare with; there
it also follows a disagreement like the one that was accepted last, else each new process would ask
again. A jump back makes nothing early and is followed always.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

log: Final = logging.getLogger(__name__)


class Accepted(NamedTuple):
    """
    What operators have said of jumps: how many they have accepted in all, and how far the
    database's clock was ahead of the machine's at the last one, in ms.
    """

    jumps: int
    ahead_ms: int


NONE_ACCEPTED: Final = Accepted(0, 0)


class JumpGuard:
    """
    One process' judgement. max_ms: CLOCK_JUMP_MAX. ahead_ms: how far the clock has jumped, None
    while it is followed.
    """

    def __init__(self, max_ms: float) -> None:
        self._max_ms = max_ms
        self._jumps: int | None = None  # of jumps accepted when the clock was last followed
        self.ahead_ms: float | None = None

    def follows(self, ahead_ms: float, accepted: Accepted, *, is_first: bool) -> bool:
        """
        Whether to believe an answer that is ahead_ms ahead of what was to be expected. is_first: of
        the machine's clock, else of what the answers before it had led to.
        """
        is_accepted = (self._jumps is not None and accepted.jumps > self._jumps) or (
            is_first and abs(ahead_ms - accepted.ahead_ms) <= self._max_ms
        )
        if ahead_ms > self._max_ms and not is_accepted:
            if self.ahead_ms is None:
                log.error(
                    "the database's clock is ahead by %.1f s: nothing is closed or called until it"
                    " comes back, or POST /v1/wheel/accept-jump says that it is right",
                    ahead_ms / 1000,
                )
            self.ahead_ms = ahead_ms
            if self._jumps is None:
                self._jumps = accepted.jumps
            return False
        if self.ahead_ms is not None:
            log.info("the database's clock is %s", "accepted" if is_accepted else "back")
        self.ahead_ms = None
        self._jumps = accepted.jumps
        return True
