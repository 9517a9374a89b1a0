"""
Whether a jump of the database's clock is to be followed. Pure.

A jump forward would have everything up to there called at once, too early if the clock is wrong.
So it is followed only where somebody has said that it is right: `accept-jump` counts up a number
that every pulse carries. A process that starts has only its machine's clock to compare with; there
it also follows a disagreement like the one that was accepted last, else each new process would ask
again. A jump back makes nothing early and is followed always.

A clock that was set back and is put right jumps forward, and asks nobody where two witnesses say
that it is right now: it goes no further forward than it was set back before this process' eyes, a
day ago at most, and where it arrives the machine's clock agrees with it, or differs as it did at
the last consent.
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
# Who puts a clock right does so within a day. Steps back that were meant, such as the small ones of
# a time service, would else add up to leave for a jump.
BACK_KEPT_S: Final = 86_400.0


class _Back(NamedTuple):
    """The clock was set back, at at_s, by by_ms more than it was put forward since."""

    at_s: float
    by_ms: float


class JumpGuard:
    """
    One process' judgement. max_ms: CLOCK_JUMP_MAX. ahead_ms: how far the clock has jumped, None
    while it is followed.
    """

    def __init__(self, max_ms: float) -> None:
        self._max_ms = max_ms
        self._jumps: int | None = None  # of jumps accepted when the clock was last followed
        self.ahead_ms: float | None = None
        self._backs: list[_Back] = []

    def set_back(self, by_ms: float, at_s: float) -> None:
        """The clock that was followed has been set back by so much at least. at_s: monotonic_s."""
        self._forget(at_s)
        self._backs.append(_Back(at_s, by_ms))

    def follows(
        self,
        ahead_ms: float,
        accepted: Accepted,
        *,
        is_first: bool,
        off_machine_ms: float,
        at_s: float,
    ) -> bool:
        """
        Whether to believe an answer that is ahead_ms ahead of what was to be expected. is_first: of
        the machine's clock, else of what the answers before it had led to. off_machine_ms: how far
        it is ahead of the machine's clock. at_s: when it came (monotonic_s).
        """
        self._forget(at_s)
        is_put_right = (
            not is_first
            and ahead_ms <= sum(back.by_ms for back in self._backs) + self._max_ms
            and min(abs(off_machine_ms), abs(off_machine_ms - accepted.ahead_ms)) <= self._max_ms
        )
        is_accepted = (self._jumps is not None and accepted.jumps > self._jumps) or (
            is_first and abs(ahead_ms - accepted.ahead_ms) <= self._max_ms
        )
        if ahead_ms > self._max_ms and not is_accepted and not is_put_right:
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
        self._put_forward(ahead_ms)
        return True

    def _forget(self, at_s: float) -> None:
        self._backs = [back for back in self._backs if at_s - back.at_s < BACK_KEPT_S]

    def _put_forward(self, by_ms: float) -> None:
        """What was set back last is put right first."""
        while self._backs and by_ms > 0:
            last = self._backs.pop()
            if last.by_ms > by_ms:
                self._backs.append(last._replace(by_ms=last.by_ms - by_ms))
            by_ms -= last.by_ms
