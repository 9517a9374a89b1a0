"""
Once a second: say that this broker lives, learn how many do, and take over what the dead ones held.

A broker whose heartbeat is 3 s old is taken for dead; its pending entries come here as references
marked `taken_over`. What its leases still cover waits in the lane until they end. A broker that was
only frozen loses nothing by it: the claims decide, not the entries.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

from broker.lane import Share
from wheel_timer.consumers import SILENCE_MS
from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.eventcenter import EventCenter
from wheel_timer.task import Ref

BEAT_S: Final = 1.0
# Within one beat every other broker has seen a change.
BEATS_TO_GROW: Final = 2
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

    A broker that comes into more than it had (it is new, or another has gone) waits for
    BEATS_TO_GROW beats without a change, until the others know and have given up their part.
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
        self._place = (0, 0)
        self._beats_in_place = 0
        self._beat_s = 0.0
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
                if self._lives():
                    await self.beat()
                    is_reachable = True
            except EventCenterUnavailable as error:
                if is_reachable:
                    logger.warning("no heartbeat to the event center: %s", error)
                is_reachable = False
                self._event_center.reach.failed(error)
                if not self._beat_s:
                    # It was away when this broker began: nobody has a place, each takes an equal
                    # part, rounded up. Who had one keeps it.
                    self._shared(Share(max(1, self._alive()), 0, True))
            except Exception:
                logger.exception("a heartbeat failed")
            try:
                async with asyncio.timeout(BEAT_S):
                    await self._stopped.wait()
            except TimeoutError:
                continue

    async def beat(self) -> None:
        """One heartbeat, and what comes with it. Raises EventCenterUnavailable."""
        alive, rank, dead = await self._event_center.heartbeat()
        self._see(alive, rank)
        if self._is_leaving:
            return
        self._beats += 1
        lanes = self._lanes_with_slots()
        taken: list[Ref] = []
        if dead:
            taken += await self._event_center.take_over(lanes, dead, self._lanes())
        if self._beats % IDLE_EVERY_BEATS == 0:
            taken += await self._event_center.claim_idle(lanes)
        if taken:
            logger.info("%d references were taken over from brokers that are gone", len(taken))
            self._deliver(taken)
        if self._beats % TRIM_EVERY_BEATS == 0:
            await self._event_center.trim(self._lanes())

    def _see(self, alive: int, rank: int) -> None:
        """Which share this place means, and whether the others know of it."""
        now_s = time.monotonic()
        was_silent = now_s - self._beat_s > SILENCE_MS / 1000
        if (alive, rank) != self._place or was_silent:
            self._place = (alive, rank)
            self._beats_in_place = 0
        self._beat_s = now_s
        self._beats_in_place += 1
        is_settled = alive == 1 or self._beats_in_place > BEATS_TO_GROW
        self._shared(Share(alive, rank, is_settled))
