"""Tells, once a second, why lanes of this broker hold back what is due. Nothing where none does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from broker.lane import Lane
from broker.timekeeper import Now
from wheel_timer import metrics
from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.eventcenter import EventCenter
from wheel_timer.waits import LaneReason, LaneWait

logger: Final = logging.getLogger(__name__)


class LaneWaits:
    """What this broker has told. clock: the database's, as this broker knows it."""

    def __init__(self, *, event_center: EventCenter, clock: Now) -> None:
        self._event_center = event_center
        self._clock = clock
        # Since when a lane has had its reason; and when it was looked at last.
        self._since: dict[str, tuple[LaneReason | str, float]] = {}
        self._looked_ms: float | None = None
        self._telling: asyncio.Task[None] | None = None

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
                metrics.lane_held(lane.biz_type, reason, (now_ms - self._looked_ms) / 1000)
            else:
                since_ms = now_ms
            self._since[lane.biz_type] = (reason, since_ms)
            if reason != "paused":  # which its configuration says to everybody
                until = None if until_ms is None else int(until_ms)
                waits[lane.biz_type] = LaneWait(reason, int(since_ms), until, int(now_ms))
        self._looked_ms = now_ms
        if waits and (self._telling is None or self._telling.done()):
            self._telling = asyncio.create_task(self._tell(waits))

    async def stop(self) -> None:
        """Return when the last of it is told."""
        if self._telling is not None:
            await self._telling

    async def _tell(self, waits: dict[str, LaneWait]) -> None:
        try:
            await self._event_center.tell_waits(waits)
        except EventCenterUnavailable as error:
            logger.debug("why lanes wait was not told: %s", error)
