"""
An endpoint works again: the broker whose breaker closes tells it, those whose breaker is open hear
of it within a second, and probe at once instead of when their own wait is over.

Without that, each broker would find out by itself, up to five minutes apart, and what the late ones
read meanwhile would be held again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Final

from broker.lane import Lane
from broker.timekeeper import Now
from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.eventcenter import EventCenter

logger: Final = logging.getLogger(__name__)


class Recovery:
    """half_open: called with a lane whose breaker lets a probe go by what was heard."""

    def __init__(
        self, *, event_center: EventCenter, clock: Now, half_open: Callable[[Lane], None]
    ) -> None:
        self._event_center = event_center
        self._clock = clock
        self._half_open = half_open
        self._telling: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Task[None] | None = None

    def tell(self, lane: Lane) -> None:
        """This broker's breaker has closed."""
        telling = asyncio.create_task(self._tell(lane.biz_type))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)

    def look(self, lanes: Iterable[Lane]) -> None:
        """Once a second: hear of the lanes that wait for their endpoint; nothing is asked else."""
        now_ms = self._clock.now_ms()
        waiting = [lane for lane in lanes if lane.gate.breaker.is_open(now_ms)]
        if waiting and (self._listening is None or self._listening.done()):
            self._listening = asyncio.create_task(self._listen(waiting))

    async def stop(self) -> None:
        """Return when all is told."""
        tasks = {*self._telling, *([self._listening] if self._listening else [])}
        if tasks:
            await asyncio.wait(tasks)

    async def _tell(self, biz_type: str) -> None:
        try:
            await self._event_center.tell_works(biz_type, self._clock.now_ms())
        except EventCenterUnavailable as error:
            logger.debug("that an endpoint works again was not told: %s", error)

    async def _listen(self, lanes: list[Lane]) -> None:
        try:
            told = await self._event_center.works([lane.biz_type for lane in lanes])
        except EventCenterUnavailable as error:
            logger.debug("which endpoints work again was not heard: %s", error)
            return
        now_ms = self._clock.now_ms()
        for lane in lanes:
            worked_ms = told.get(lane.biz_type)
            if worked_ms is not None and lane.gate.breaker.heard(worked_ms, now_ms):
                logger.info("%s: its endpoint works for another broker", lane.biz_type)
                self._half_open(lane)
