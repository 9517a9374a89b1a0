"""
What a long second leaves: pages still to come of closed windows, read beside the next ticks.

A lane of which much is due comes after the others, though it may have room: at one millisecond
100,000 tasks of it take a second to read, and whoever else is due then, or within the same tick,
would be late by that.

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
        return self.part is not None and self.part.is_full

    @property
    def is_of_heavy(self) -> bool:
        """Whether it is of lanes alone of which much is due, and that may have room."""
        return self.part is not None and self.part.is_only and not self.part.is_full


def split(
    rest: Rest, full: Collection[str], heavy: Collection[str]
) -> tuple[list[Rest], list[Rest]]:
    """
    What is not of a lane that is full, and what is; nothing of the latter where none is.

    Of what is not, the lanes of which much is due (heavy) come last. The others come from behind
    the millisecond at which the page before ended, then from within it: a million tasks at one
    moment have to be looked through one by one for the others of that moment, and whoever is due
    after it need not wait for that.
    """
    named = rest.part.biz_types if rest.part else frozenset[str]()
    if rest.is_of_heavy:
        parts = _of_these(rest, named - frozenset(full), is_full=False)
        return parts, _of_these(rest, named & frozenset(full), is_full=True)
    new_full = frozenset(full) - named
    new_heavy = frozenset(heavy) - named - new_full
    if rest.kind is not Kind.FRESH or rest.is_of_full or not (new_full or new_heavy):
        return [rest], []
    others = Part(named | new_full | new_heavy, is_only=False)
    later = Window(rest.key.time_ms, rest.window.to_ms)
    within = Window(rest.window.after_ms, rest.key.time_ms)
    parts = [rest._replace(window=within, part=others)]
    if later.after_ms < later.to_ms:
        parts.insert(0, Rest(rest.kind, later, Key.before(later), others))
    parts += _of_these(rest, new_heavy, is_full=False)
    return parts, _of_these(rest, new_full, is_full=True)


def _of_these(rest: Rest, names: frozenset[str], *, is_full: bool) -> list[Rest]:
    return [rest._replace(part=Part(names, is_only=True, is_full=is_full))] if names else []


class Rests:
    """The rests of one shard for one term, each read to its end before the next one of its sort."""

    def __init__(self) -> None:
        self._first: deque[Rest] = deque()
        self._of_heavy: deque[Rest] = deque()
        self._of_full: deque[Rest] = deque()
        self._of_full_since_s = 0.0
        self._paused_until_s = 0.0

    def __bool__(self) -> bool:
        return bool(self._first or self._of_heavy or self._of_full)

    @property
    def from_ms(self) -> int | None:
        """Everything before this moment was read; None: there are no rests."""
        rests = (*self._first, *self._of_heavy, *self._of_full)
        return min((rest.key.time_ms for rest in rests), default=None)

    def add(self, rests: Iterable[Rest], now_s: float) -> None:
        """Read these after those that are there. now_s: monotonic, here and below."""
        for rest in rests:
            if rest.is_of_full and not self._of_full:
                self._of_full_since_s = now_s
            self._queue_of(rest).append(rest)

    def wait_s(self, now_s: float) -> float:
        """How long the next page has to wait."""
        has_room = self._first or self._of_heavy
        return 0.0 if has_room else max(0.0, self._paused_until_s - now_s)

    @property
    def next(self) -> Rest:
        """The one to read a page of; there must be one."""
        return (self._first or self._of_heavy or self._of_full)[0]

    def was_read(
        self, key: Key | None, full: Collection[str], heavy: Collection[str], now_s: float
    ) -> None:
        """A page of `next` was read. key: where to go on; None: that was all. full: lanes that
        have no room; heavy: those of which much is due."""
        rest = self.next
        queue = self._queue_of(rest)
        queue.popleft()
        if key is not None:
            parts, of_full = split(rest._replace(key=key), full, heavy)
            queue.extendleft(part for part in reversed(parts) if self._queue_of(part) is queue)
            self.add([part for part in parts if self._queue_of(part) is not queue], now_s)
            self.add(of_full, now_s)

    def _queue_of(self, rest: Rest) -> deque[Rest]:
        if rest.is_of_full:
            return self._of_full
        return self._of_heavy if rest.is_of_heavy else self._first

    def pause(self, took_s: float, now_s: float) -> None:
        """A page that took so long was put in line: give the others room."""
        age = min(1.0, (now_s - self._of_full_since_s) / OLD_S)
        self._paused_until_s = now_s + took_s * PAUSES * (1.0 - age)
