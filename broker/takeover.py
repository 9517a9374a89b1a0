"""
Once a second: say that this broker lives, learn who does, and take over what the dead ones held.

A broker whose heartbeat is 3 s old is taken for dead, and one of this machine whose process is no
more at once. Its pending entries come here as references marked `taken_over`. What its leases still
cover waits in the lane until they end. A broker that was only frozen loses nothing by it: the
claims decide, not the entries.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from broker.share import BEAT_S, Members, Share
from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.eventcenter import EventCenter
from wheel_timer.identity import is_gone
from wheel_timer.task import Ref

# Acknowledging deletes; what a crash between its two halves left behind is dropped now and then.
TRIM_EVERY_BEATS: Final = 30
# Entries idle for longer than any lease although their consumer beats: lost in a broken reply.
IDLE_EVERY_BEATS: Final = 60

logger = logging.getLogger(__name__)


class TakeOver:
    """
    lanes: all lanes there are; lanes_with_slots: those to take over for. deliver: takes what was
    taken over. shared: told, at every beat, which part of the work is this broker's. alive: how
    many brokers there are as far as Postgres knows. lives: whether this one knows the time; else it
    is silent, and so taken for dead.
    """

    def __init__(
        self,
        *,
        event_center: EventCenter,
        lanes: Callable[[], Sequence[str]],
        lanes_with_slots: Callable[[], Sequence[str]],
        deliver: Callable[[Sequence[Ref]], None],
        shared: Callable[[Share], None],
        alive: Callable[[], int],
        lives: Callable[[], bool],
    ) -> None:
        self._event_center = event_center
        self._lanes = lanes
        self._deliver = deliver
        self._lanes_with_slots = lanes_with_slots
        self._shared = shared
        self._alive = alive
        self._lives = lives
        self._members = Members(event_center.consumer)
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
            pause_s = BEAT_S
            try:
                if self._lives():
                    await self.beat()
                    is_reachable = True
                    pause_s = self._members.pause_s
            except EventCenterUnavailable as error:
                if is_reachable:
                    logger.warning("no heartbeat to the event center: %s", error)
                is_reachable = False
                self._event_center.reach.failed(error)
                if not self._beats:
                    # It was away when this broker began: nobody has a place, each takes an equal
                    # part, rounded up. Who had one keeps it.
                    self._shared(Share(max(1, self._alive())))
            except Exception:
                logger.exception("a heartbeat failed")
            try:
                async with asyncio.timeout(pause_s):
                    await self._stopped.wait()
            except TimeoutError:
                continue

    async def beat(self) -> None:
        """One heartbeat, and what comes with it. Raises EventCenterUnavailable."""
        beat = await self._event_center.heartbeat()
        gone = {name for name in (*beat.alive, *beat.dead) if is_gone(name)}
        self._beats += 1
        self._shared(self._members.see(beat, gone))
        if buried := gone & beat.alive.keys():
            await self._event_center.bury(list(buried))
        if self._is_leaving:
            return
        dead = [*beat.dead, *buried]
        lanes = self._lanes_with_slots()
        taken: list[Ref] = []
        if dead:
            taken += await self._event_center.take_over(lanes, dead, self._lanes(), gone)
        if self._beats % IDLE_EVERY_BEATS == 0:
            taken += await self._event_center.claim_idle(lanes)
        if taken:
            logger.info("%d references were taken over from brokers that are gone", len(taken))
            self._deliver(taken)
        if self._beats % TRIM_EVERY_BEATS == 0:
            await self._event_center.trim(self._lanes())
