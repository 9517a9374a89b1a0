"""
Tells, once a second, why lanes of this broker hold back what is due. Nothing where none does.

Redis has it for who asks why a task waits now, the metrics count it, and every WRITE_EACH_S the sum
goes to Postgres, where the audit `lateness` reads it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable
from typing import Final

from broker.lane import Lane
from broker.timekeeper import Now
from wheel_timer import metrics
from wheel_timer.database import Database
from wheel_timer.errors import EventCenterUnavailable, WheelTimerError
from wheel_timer.eventcenter import EventCenter
from wheel_timer.store import lanetime
from wheel_timer.waits import LaneReason, LaneWait

WRITE_EACH_S: Final = 60.0

logger: Final = logging.getLogger(__name__)


class LaneWaits:
    """What this broker has told. clock: the database's, as this broker knows it."""

    def __init__(self, *, event_center: EventCenter, db: Database, clock: Now) -> None:
        self._event_center = event_center
        self._db = db
        self._clock = clock
        # Since when a lane has had its reason; and when it was looked at last.
        self._since: dict[str, tuple[LaneReason | str, float]] = {}
        self._looked_ms: float | None = None
        self._telling: asyncio.Task[None] | None = None
        # By biz_type and reason, in ms: not written yet.
        self._held_ms: Counter[tuple[str, str]] = Counter()
        self._written_s = time.monotonic()
        self._writing: asyncio.Task[None] | None = None

    def look(self, lanes: Iterable[Lane]) -> None:
        """See how the lanes stand, count what they have held, and tell it."""
        now_ms = self._clock.now_ms()
        before, self._since = self._since, {}
        waits: dict[str, LaneWait] = {}
        for lane in lanes:
            held = lane.holds_back(now_ms)
            if held is None:
                continue
            reason, until_ms = held
            known, since_ms = before.get(lane.biz_type, ("", now_ms))
            if known == reason and self._looked_ms is not None:
                held_ms = now_ms - self._looked_ms
                metrics.lane_held(lane.biz_type, reason, held_ms / 1000)
                self._held_ms[lane.biz_type, reason] += round(held_ms)
            else:
                since_ms = now_ms
            self._since[lane.biz_type] = (reason, since_ms)
            if reason != "paused":  # which its configuration says to everybody
                until = None if until_ms is None else int(until_ms)
                waits[lane.biz_type] = LaneWait(reason, int(since_ms), until, int(now_ms))
        self._looked_ms = now_ms
        if waits and (self._telling is None or self._telling.done()):
            self._telling = asyncio.create_task(self._tell(waits))
        if time.monotonic() - self._written_s >= WRITE_EACH_S:
            self._written_s = time.monotonic()
            if self._writing is None or self._writing.done():
                self._writing = asyncio.create_task(self._write())

    async def stop(self) -> None:
        """Return when the last of it is told and written."""
        if self._telling is not None:
            await self._telling
        if self._writing is not None:
            await self._writing
        await self._write()

    async def _write(self) -> None:
        written, self._held_ms = self._held_ms, Counter()
        if not written:
            return
        try:
            await lanetime.add(self._db, written)
        except WheelTimerError as error:
            # With an unknown outcome some of it may count twice: it is a report, not an account.
            self._held_ms.update(written)
            logger.debug("how long lanes waited was not written: %s", error)

    async def _tell(self, waits: dict[str, LaneWait]) -> None:
        try:
            await self._event_center.tell_waits(waits)
        except EventCenterUnavailable as error:
            logger.debug("why lanes wait was not told: %s", error)
