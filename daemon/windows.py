"""
How much each lane takes, and when what it did not take comes again. Pure bookkeeping.

A lane is worked off at its rate limit, or more slowly: what its brokers acknowledged lately, while
it was never empty, is its measured drain. From that follow its window (wheel_timer/window.py), how
long a reference waits in it, and the line of those that found no room: they are spaced by the same
pace, from the end of the line; one that stood in line already and finds no room again lines up
near its head. Who fills a lane that has room sooner is daemon/fill.py.

Within a tick the first to come leave a tenth of a lane's room to retries and replays.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from wheel_timer.biz import BizType
from wheel_timer.publishing import Level, Room
from wheel_timer.store.requeue import Line
from wheel_timer.window import window

# A lane of fewer entries is as good as empty: how fast it is worked off says nothing.
DEEP: Final = 500
# Between two looks; a shorter time says little.
MEASURE_S: Final = 2.0
# Where nobody knows: brokers make so many calls a second easily.
PACE_UNKNOWN: Final = 1_000.0
PACE_MIN: Final = 0.01
# Longer than a page takes from where its rows are counted out to its commit.
LINED_S: Final = 60.0


@dataclass(slots=True)
class _Lane:
    """drain: entries a second, or None. looked: the last look that counts: (s, entries done)."""

    drain: float | None = None
    depth: int = 0
    looked: tuple[float, int] | None = None
    head_ms: float = 0.0
    tail_ms: float = 0.0


class Windows:
    """
    The lanes as one shard's leader sees them. biz_types: by name, as configured now; shards: how
    many share each lane's pace.
    """

    def __init__(
        self, *, biz_types: Mapping[str, BizType], visibility_s: float, shards: int
    ) -> None:
        self._biz_types = biz_types
        self._visibility_s = visibility_s
        self._shards = shards
        self._lanes: dict[str, _Lane] = {}
        self._tops: dict[str, int] = {}
        # When anything was put in line, by time.monotonic; and whether anything was when looked at.
        self._lined_s = -math.inf
        self._has_lines = True

    def new_tick(self) -> None:
        """Room is shared out anew."""
        self._tops.clear()

    def pace(self, name: str) -> float | None:
        """Entries a second that a lane is worked off at, as far as anybody knows."""
        biz, lane = self._biz_types.get(name), self._lanes.get(name)
        paces = (biz.rate_limit if biz else None, lane.drain if lane else None)
        known = [pace for pace in paces if pace is not None]
        return max(PACE_MIN, min(known)) if known else None

    def room(self, name: str, *, is_again: bool) -> Room:
        """Up to where a page may fill a lane. is_again: retries, releases, runs and replays."""
        if is_again:
            return Room(self._window(name), False)
        top = self._tops.get(name)
        return Room(self._window(name), True) if top is None else Room(top, False)

    def _window(self, name: str) -> int:
        return window(self.pace(name), self._visibility_s)

    def published(self, before: Mapping[str, int], *, is_again: bool) -> None:
        """What lanes held before a page was put into them."""
        for name, depth in before.items():
            if not is_again and name not in self._tops:
                room = max(0, self._window(name) - depth)
                self._tops[name] = depth + room - room // 10
            if depth >= DEEP or name in self._lanes:
                self._lane(name).depth = depth

    def line_up(self, name: str, now_ms: float, *, stood_in_line: bool) -> int:
        """When a task that found no room comes again (ms)."""
        pace = self.pace(name) or PACE_UNKNOWN
        lane = self._lane(name)
        # In half the time that its window lasts, half of it is free.
        soon_ms = now_ms + 500 * self._window(name) / pace
        step_ms = 1000 * self._shards / pace
        if stood_in_line:
            at_ms = lane.head_ms = max(lane.head_ms, soon_ms) + step_ms
            lane.tail_ms = max(lane.tail_ms, at_ms)
        else:
            at_ms = lane.tail_ms = max(lane.tail_ms, soon_ms) + step_ms
        return int(at_ms)

    def lines_up(self) -> None:
        """Something is about to stand in line."""
        self._lined_s = time.monotonic()

    def may_have_lines(self, now_s: float) -> bool:
        """Whether it is worth asking who stands in line."""
        return self._has_lines or now_s < self._lined_s + LINED_S

    def stand(self, lines: Mapping[str, Line]) -> None:
        """Who stands in line, in Postgres."""
        self._has_lines = bool(lines)
        for name, line in lines.items():
            lane = self._lane(name)
            lane.tail_ms = max(lane.tail_ms, line.last_due_ms)

    def watched(self) -> list[str]:
        """The lanes that are worth a look."""
        return list(self._lanes)

    def looked(self, levels: Mapping[str, Level], now_s: float, in_line: Iterable[str]) -> None:
        """Take in a look at lanes; forget those that hold little and for which nobody waits."""
        waiting = set(in_line)
        for name, level in levels.items():
            lane = self._lane(name)
            lane.depth = level.depth
            if level.depth < DEEP:
                # It may have been empty in between: its brokers are not at their limit.
                lane.looked = None
                if name not in waiting:
                    del self._lanes[name]
                continue
            if lane.looked is None:
                lane.looked = (now_s, level.done)
            elif now_s - lane.looked[0] >= MEASURE_S:
                drain = max(0, level.done - lane.looked[1]) / (now_s - lane.looked[0])
                lane.drain = drain if lane.drain is None else (lane.drain + drain) / 2
                lane.looked = (now_s, level.done)

    def free(self, name: str) -> int:
        """How many more a lane takes, once half of it is free; else 0."""
        lane, size = self._lane(name), self._window(name)
        return size - lane.depth if lane.depth < size // 2 else 0

    def is_held(self, name: str) -> bool:
        """Whether brokers would only put back what they get."""
        biz = self._biz_types.get(name)
        return biz is not None and biz.paused

    def waits_ms(self) -> dict[str, int]:
        """Lanes in which a reference waits for longer than the visibility time, and how long."""
        waits = {name: self._wait_ms(name) for name in self._lanes}
        return {name: wait for name, wait in waits.items() if wait > 1000 * self._visibility_s}

    def _wait_ms(self, name: str) -> int:
        pace = self.pace(name)
        return 0 if pace is None else int(1000 * self._lane(name).depth / pace)

    def again_ms(self, name: str, now_ms: float) -> int:
        """When a published requeue row is looked at again."""
        again_ms = 1000 * self._visibility_s
        wait_ms = self._wait_ms(name) if name in self._lanes else 0
        return int(now_ms + (2 * wait_ms if wait_ms > again_ms else again_ms))

    def _lane(self, name: str) -> _Lane:
        return self._lanes.setdefault(name, _Lane())
