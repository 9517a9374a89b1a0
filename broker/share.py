"""
Which part of a lane's max_concurrency is this broker's, and from when on.

Every broker works its part out for itself, from what it knows of the others, and all parts must add
up to no more than the whole although they know of each other at different moments. Two rules:

    Each lane has an order of its own of all brokers, in which the order of any two never changes.
    The part goes by the place in it and by the number of brokers, and only shrinks as either
    grows. So whoever counts one too many (who has died, who has just come) takes less than its
    part, never somebody else's: that another is gone may be acted on at once.

    Nobody may count one too few. A broker that is new, or was away for so long that others took it
    for dead, takes nothing more until each of those alive has counted it.

Pure bookkeeping, no I/O. Nothing here but the pace of calls depends on it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from wheel_timer.consumers import SILENCE_MS, Beat

BEAT_S: Final = 1.0
# Until everybody has counted this broker; whoever sees a new one beats again after the second.
BEAT_NEW_S: Final = 0.2
BEAT_SOON_S: Final = 0.02


class Share(NamedTuple):
    """
    This broker (`me`) among so many, of which `others` are known by name.

    is_settled: whether each of them counts this one. Until then a lane's slots may become fewer,
    never more: what one gains, another has to have given up before.
    """

    brokers: int
    me: str = ""
    others: tuple[str, ...] = ()
    is_settled: bool = True

    def of(self, calls: int, biz_type: str) -> int:
        """This broker's part of so many calls; over all brokers they add up to just that many."""
        if self.brokers == 1:
            return calls
        mine = _place(biz_type, self.me)
        before = sum(_place(biz_type, other) < mine for other in self.others)
        # Every brokers-th of the calls, from the one at this place on.
        return max(0, -((before - calls) // self.brokers))


def _place(biz_type: str, broker: str) -> bytes:
    """Where a broker stands in the order of this lane."""
    return hashlib.blake2b(f"{biz_type} {broker}".encode(), digest_size=8).digest()


ALONE: Final = Share(1)


class Members:
    """
    The brokers alive, as one of them sees them from beat to beat.

    Another has counted this one once it has beaten twice since this one joined: before the second
    it has taken in what the first one told it.
    """

    def __init__(self, me: str) -> None:
        self._me = me
        self._others: dict[str, int] = {}
        self._beaten_ms = 0
        self._joined_ms = 0
        self._is_settled = False
        # The first beat of another since this one joined, and who has beaten again since.
        self._first_ms: dict[str, int] = {}
        self._confirmed: set[str] = set()
        # Who may live although Redis does not say so, and until when.
        self._remembered: dict[str, int] = {}
        self.pause_s = BEAT_NEW_S

    def see(self, beat: Beat, gone: Collection[str] = ()) -> Share:
        """
        What a beat tells; `gone` have ended, whatever it says. pause_s: until the next one.
        """
        now_ms = beat.now_ms
        if not (beat.is_known and 0 <= now_ms - self._beaten_ms <= SILENCE_MS):
            # Others may count without this one; or all were away alike, Redis stood still, its
            # clock was set, its memory is gone. Whoever lived before has time to beat again.
            self._remembered = dict.fromkeys(self._others, now_ms + SILENCE_MS)
            self._joined_ms = now_ms
            self._is_settled = False
            self._first_ms.clear()
            self._confirmed.clear()
        alive = {name: 0 for name, until_ms in self._remembered.items() if until_ms > now_ms}
        alive |= beat.alive
        others = {
            name: beaten_ms
            for name, beaten_ms in alive.items()
            if name != self._me and name not in gone
        }
        if not self._is_settled:
            for name, beaten_ms in others.items():
                if beaten_ms > self._joined_ms and beaten_ms > self._first_ms.setdefault(
                    name, beaten_ms
                ):
                    self._confirmed.add(name)
            self._is_settled = others.keys() <= self._confirmed
        self._pace(now_ms, others)
        self._beaten_ms = now_ms
        self._others = others
        return Share(1 + len(others), self._me, tuple(sorted(others)), self._is_settled)

    def _pace(self, now_ms: int, others: Mapping[str, int]) -> None:
        """When to beat next: those who are new, or wait to be counted, should not wait long."""
        if others.keys() - self._others.keys():
            self.pause_s = BEAT_SOON_S
        elif not self._is_settled:
            self.pause_s = BEAT_NEW_S
        else:
            silent_ms = min(others.values(), default=now_ms) + SILENCE_MS - now_ms
            self.pause_s = min(BEAT_S, max(BEAT_SOON_S, silent_ms / 1000 + BEAT_SOON_S))
