"""
How late this broker's first calls were: counted in memory, added to Redis every few seconds.

Beside the calls: a call costs an addition here. What Redis does not take is forgotten; nothing but
the console's picture of the last hour hangs on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Final

from broker.timekeeper import Now
from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.eventcenter import EventCenter
from wheel_timer.lateness import class_of
from wheel_timer.monotonic import monotonic_s

TOLD_EACH_S: Final = 5.0

logger: Final = logging.getLogger(__name__)


class LatenessTold:
    """One broker's counts. `look` once a second, `stop` at the end."""

    def __init__(self, *, event_center: EventCenter, clock: Now) -> None:
        self._event_center = event_center
        self._clock = clock
        self._counts: Counter[tuple[str, int]] = Counter()
        self._told_s = monotonic_s()
        self._telling: asyncio.Task[None] | None = None

    def add(self, biz_type: str, lateness_ms: float) -> None:
        """A first call began so long after its moment."""
        self._counts[biz_type, class_of(lateness_ms)] += 1

    def look(self) -> None:
        """Tell what was counted, if there is any and it is time."""
        now_s = monotonic_s()
        is_busy = self._telling is not None and not self._telling.done()
        if self._counts and not is_busy and now_s - self._told_s >= TOLD_EACH_S:
            self._told_s = now_s
            self._telling = asyncio.create_task(self._tell())

    async def stop(self) -> None:
        """Tell the rest."""
        if self._telling is not None:
            await asyncio.wait([self._telling])
        if self._counts:
            await self._tell()

    async def _tell(self) -> None:
        counts, self._counts = self._counts, Counter()
        if self._event_center.reach.is_away:
            return
        try:
            await self._event_center.add_lateness(counts, self._clock.now_ms())
        except EventCenterUnavailable as error:
            logger.debug("how late calls were was not told: %s", error)
