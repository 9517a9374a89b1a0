"""
What a long second leaves: pages still to come of closed windows, read beside the next ticks.

What is of lanes that are full comes last, and slowly. It has to wait in any case, and each of its
pages is 0.5 MB of WAL a thousand rows that everybody's commits have to wait behind: without rests
in between, a million of them made the calls of all other lanes late by up to 90 ms, for a minute.
So after each page the hand leaves it alone for PAUSES times as long as the page took. The longer
the line has been worked at, the shorter these pauses get, down to none after OLD_S: what becomes
due faster than that, all the time, must not hold current_time back for good.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from enum import Enum
from typing import Final, NamedTuple

from wheel_timer.store.due import Key, Part, Window

PAUSES: Final = 4.0
OLD_S: Final = 600.0


class Kind(Enum):
    """What a page is of, in the order of a tick."""

    FIRST = "requeue rows but for the last kind"
    FRESH = "tasks on the wheel"
    AGAIN = "retries, releases, runs and replays"


class Rest(NamedTuple):
    """Pages still to come of a closed window; part: of some biz_types only."""

    kind: Kind
    window: Window
    key: Key
    part: Part | None = None

    @property
    def is_of_full(self) -> bool:
        """Whether it is of lanes alone that had no room."""
        return self.part is not None and self.part.is_only


def split(rest: Rest, full: Collection[str]) -> tuple[list[Rest], list[Rest]]:
    """
    What is not of a lane that is full, and what is; nothing of the latter where none is.

    What is not comes from behind the millisecond at which the page before ended, then from within
    it: a million tasks at one moment have to be looked through one by one for the others of that
    moment, and whoever is due after it need not wait for that.
    """
    left_out = rest.part.biz_types if rest.part else frozenset[str]()
    news = frozenset(full) - left_out
    if rest.kind is not Kind.FRESH or rest.is_of_full or not news:
        return [rest], []
    others = Part(left_out | news, is_only=False)
    later = Window(rest.key.time_ms, rest.window.to_ms)
    within = Window(rest.window.after_ms, rest.key.time_ms)
    parts = [rest._replace(window=within, part=others)]
    if later.after_ms < later.to_ms:
        parts.insert(0, Rest(rest.kind, later, Key.before(later), others))
    return parts, [rest._replace(part=Part(news, is_only=True))]


class Rests:
    """The rests of one shard for one term, each read to its end before the next one of its sort."""

    def __init__(self) -> None:
        self._first: deque[Rest] = deque()
        self._of_full: deque[Rest] = deque()
        self._of_full_since_s = 0.0
        self._paused_until_s = 0.0

    def __bool__(self) -> bool:
        return bool(self._first or self._of_full)

    @property
    def from_ms(self) -> int | None:
        """Everything before this moment was read; None: there are no rests."""
        return min((r.key.time_ms for r in (*self._first, *self._of_full)), default=None)

    def add(self, rests: Iterable[Rest], now_s: float) -> None:
        """Read these after those that are there. now_s: monotonic, here and below."""
        for rest in rests:
            if rest.is_of_full and not self._of_full:
                self._of_full_since_s = now_s
            (self._of_full if rest.is_of_full else self._first).append(rest)

    def wait_s(self, now_s: float) -> float:
        """How long the next page has to wait."""
        return 0.0 if self._first else max(0.0, self._paused_until_s - now_s)

    @property
    def next(self) -> Rest:
        """The one to read a page of; there must be one."""
        return (self._first or self._of_full)[0]

    def was_read(self, key: Key | None, full: Collection[str], now_s: float) -> None:
        """A page of `next` was read. key: where to go on; None: that was all. full: lanes that
        have no room."""
        rest = self.next
        rests = self._of_full if rest.is_of_full else self._first
        rests.popleft()
        if key is not None:
            others, of_full = split(rest._replace(key=key), full)
            rests.extendleft(reversed(others))
            self.add(of_full, now_s)

    def pause(self, took_s: float, now_s: float) -> None:
        """A page that took so long was put in line: give the others room."""
        age = min(1.0, (now_s - self._of_full_since_s) / OLD_S)
        self._paused_until_s = now_s + took_s * PAUSES * (1.0 - age)
