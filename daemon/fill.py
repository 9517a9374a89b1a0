"""
Fills lanes that have room from the line of those that found none.

Once a second: see who stands in line (if this term has put anybody there), how full their lanes are
and how fast they are worked off; pull the first in line in front of the due hand where half of a
lane's window is free. So what stands in line comes as soon as its lane can take it, whatever its
row says: a limit was lifted, the endpoint is faster than it was, Redis is back.
"""

from __future__ import annotations

import time
from typing import Final

from daemon.hand import Tick
from daemon.leader import Leader
from daemon.limits import Limits
from daemon.windows import Windows
from wheel_timer import metrics
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.eventcenter import EventCenter
from wheel_timer.signal import reached
from wheel_timer.store import requeue as store

FILL_EACH_S: Final = 1.0
COUNT_EACH_S: Final = 15.0
COUNTING_SHARD: Final = 0
PAGE_ROWS: Final = 1_000
# For one lane in one tick: 0.1 s of work of Postgres.
ROWS_MAX: Final = 5_000


class FillHand:
    """The lines of one shard for one term."""

    name = "fill"

    def __init__(
        self,
        *,
        db: Database,
        event_center: EventCenter,
        leader: Leader,
        limits: Limits,
        windows: Windows,
        clock: Clock,
    ) -> None:
        self._db = db
        self._clock = clock
        self._counted: set[str] = set()
        self._counted_s = -COUNT_EACH_S
        self._event_center = event_center
        self._leader = leader
        self._limits = limits
        self._windows = windows

    async def tick(self) -> Tick:
        """Measure the lanes that matter; fill those that have room."""
        await self._limits.refresh()
        lines: dict[str, store.Line] = {}
        if self._windows.may_have_lines(time.monotonic()):
            lines = await store.lines(self._db, self._leader.shard)
        self._windows.stand(lines)
        now_ms = self._clock.now_ms()
        oldest_ms = min((line.first_start_ms for line in lines.values()), default=now_ms)
        metrics.oldest_due((now_ms - oldest_ms) / 1000)
        await self._count()
        names = self._windows.watched()
        if not names:
            return Tick(0, FILL_EACH_S)
        try:
            levels = await self._event_center.levels(names)
            if lines:
                await self._event_center.tell_lines(list(lines))
        except EventCenterUnavailable:
            # What stands in line is the brokers' to fetch, as long as there are no lanes.
            return Tick(0, FILL_EACH_S)
        self._windows.looked(levels, time.monotonic(), lines)
        filled = 0
        for name in lines:
            if not self._windows.is_held(name):
                filled += await self._fill(name, min(ROWS_MAX, self._windows.free(name)))
        if filled:
            reached("fill.filled")
        return Tick(filled, FILL_EACH_S)

    async def _count(self) -> None:
        """Of the whole table, so one leader is enough."""
        now_s = time.monotonic()
        if self._leader.shard == COUNTING_SHARD and now_s - self._counted_s >= COUNT_EACH_S:
            self._counted_s = now_s
            counted = await store.requeue_rows(self._db)
            metrics.requeue_rows(dict.fromkeys(self._counted - counted.keys(), 0) | counted)
            self._counted |= counted.keys()

    async def _fill(self, name: str, room: int) -> int:
        filled = 0
        while filled < room and self._leader.is_leader:
            limit = min(PAGE_ROWS, room - filled)
            rows = await store.fill(self._db, self._leader.shard, self._leader.epoch, name, limit)
            filled += rows
            if rows < limit:
                break
        return filled
