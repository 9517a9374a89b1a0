"""
Whether the event center is there, for all in one process that would else each wait for it.

    here   commands are tried; the first that fails, says so (`failed`): away
    away   nobody tries; every PROBE_EACH_S a write of no meaning is, beside the work. It must be a
           write: a Redis that is full, loading, or a replica answers and refuses: here again
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from wheel_timer import metrics
from wheel_timer.errors import EventCenterUnavailable

PROBE_EACH_S: Final = 0.5

log = logging.getLogger(__name__)


class Reach:
    """
    is_away: whether to do without the event center now. probe: a write of no meaning; raises
    EventCenterUnavailable.
    """

    def __init__(self, probe: Callable[[], Awaitable[None]]) -> None:
        self._probe = probe
        self._watching: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[bool], None]] = []
        self.is_away = False

    def on_change(self, listener: Callable[[bool], None]) -> None:
        """Call `listener` with is_away whenever it has changed."""
        self._listeners.append(listener)

    def failed(self, error: EventCenterUnavailable) -> None:
        """A command failed, whoever's it was."""
        if self.is_away:
            return
        log.warning("the event center is away, work goes on without it: %s", error)
        self._be(True)
        self._watching = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        """Watch no longer."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    def _be(self, is_away: bool) -> None:
        self.is_away = is_away
        metrics.event_center_up(not is_away)
        for listener in self._listeners:
            listener(is_away)

    async def _watch(self) -> None:
        while self.is_away:
            await asyncio.sleep(PROBE_EACH_S)
            try:
                await self._probe()
            except EventCenterUnavailable as error:
                log.debug("the event center is still away: %s", error)
            else:
                log.info("the event center is back")
                self._be(False)
