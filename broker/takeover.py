"""
Once a second: say that this broker lives, learn how many do, and take over what the dead ones held.

A broker whose heartbeat is 3 s old is taken for dead; its pending entries come here as references
marked `taken_over`. What its leases still cover waits in the lane until they end. A broker that was
only frozen loses nothing by it: the claims decide, not the entries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.eventcenter import EventCenter
from wheel_timer.task import Ref

BEAT_S: Final = 1.0
# Acknowledging deletes; what a crash between its two halves left behind is dropped now and then.
TRIM_EVERY_BEATS: Final = 30
# Entries idle for longer than any lease although their consumer beats: lost in a broken reply.
IDLE_EVERY_BEATS: Final = 60

logger = logging.getLogger(__name__)


class TakeOver:
    """
    lanes: all lanes there are. deliver: takes what was taken over. brokers_alive: told how many
    brokers share the work, this one included.
    """

    def __init__(
        self,
        *,
        event_center: EventCenter,
        lanes: Callable[[], Sequence[str]],
        deliver: Callable[[Sequence[Ref]], None],
        brokers_alive: Callable[[int], None],
    ) -> None:
        self._event_center = event_center
        self._lanes = lanes
        self._deliver = deliver
        self._brokers_alive = brokers_alive
        self._beats = 0
        self._is_leaving = False
        self._stopped = asyncio.Event()

    def leave(self) -> None:
        """Take over nothing more, but go on living: callbacks are still in flight."""
        self._is_leaving = True

    def stop(self) -> None:
        """`run` returns after the beat under way."""
        self._stopped.set()

    async def run(self) -> None:
        """Beat until stopped."""
        is_reachable = True
        while not self._stopped.is_set():
            try:
                await self.beat()
                is_reachable = True
            except EventCenterUnavailable as error:
                if is_reachable:
                    logger.warning("no heartbeat to the event center: %s", error)
                is_reachable = False
            except Exception:
                logger.exception("a heartbeat failed")
            try:
                async with asyncio.timeout(BEAT_S):
                    await self._stopped.wait()
            except TimeoutError:
                continue

    async def beat(self) -> None:
        """One heartbeat, and what comes with it. Raises EventCenterUnavailable."""
        alive, dead = await self._event_center.heartbeat()
        if self._is_leaving:
            return
        self._brokers_alive(max(1, alive))
        self._beats += 1
        lanes = self._lanes()
        taken: list[Ref] = []
        if dead:
            taken += await self._event_center.take_over(lanes, dead)
        if self._beats % IDLE_EVERY_BEATS == 0:
            taken += await self._event_center.claim_idle(lanes)
        if taken:
            logger.info("%d references were taken over from brokers that are gone", len(taken))
            self._deliver(taken)
        if self._beats % TRIM_EVERY_BEATS == 0:
            await self._event_center.trim(lanes)
