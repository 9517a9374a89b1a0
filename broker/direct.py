"""
Fetches references straight from Postgres, while there is no event center to read them from.

What the due hand could not publish stands in line as `overflow` rows, each due a visibility time
after its moment. A fetch takes the first in line of the lanes that have room and makes them
`published`, due after a visibility time: the same as what a publish and a read do together. So from
here on they go the way of any reference, through gate and claim; if this broker dies with them,
they come round by themselves. Several brokers pass over each other's rows.

A broker that reads lanes looks now and then whether their leaders have been at Redis lately, and
if not, who stands in line: perhaps it is the due hand alone that does not reach Redis. None does
while the database's clock has jumped and nobody has said that it is right: what is fetched then
could not be called, and its row would be put off by the wrong clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from broker.lane import Lane
from wheel_timer import signal
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.errors import EventCenterUnavailable, WheelTimerError
from wheel_timer.eventcenter import EventCenter
from wheel_timer.store.fetch import PAGE_ROWS, fetch
from wheel_timer.store.requeue import lines
from wheel_timer.task import Ref

# A fetch that found nothing costs 0.2 ms.
FETCH_EACH_S: Final = 0.05
LOOK_EACH_S: Final = 2.0
FAULT_PAUSE_S: Final = 0.5

logger = logging.getLogger(__name__)


class Direct:
    """lanes: all there are. deliver: takes what was fetched."""

    def __init__(
        self,
        *,
        db: Database,
        clock: Clock,
        event_center: EventCenter,
        shards: int,
        visibility_ms: int,
        lookahead_ms: int,
        lanes: Callable[[], dict[str, Lane]],
        deliver: Callable[[Sequence[Ref]], None],
    ) -> None:
        self._db = db
        self._clock = clock
        self._event_center = event_center
        self._shards = shards
        self._visibility_ms = visibility_ms
        self._lookahead_ms = lookahead_ms
        self._lanes = lanes
        self._deliver = deliver
        self._called = asyncio.Event()
        self._is_stopped = False
        event_center.reach.on_change(lambda _: self._called.set())

    def stop(self) -> None:
        """Fetch nothing more; `run` returns after the fetch under way."""
        self._is_stopped = True
        self._called.set()

    async def run(self) -> None:
        """Fetch until stopped."""
        while not self._is_stopped:
            self._called.clear()
            pause_s = FAULT_PAUSE_S
            try:
                found = 0 if not self._lanes() or await self._are_fed() else await self.fetch()
                pause_s = FETCH_EACH_S if found or self._event_center.reach.is_away else LOOK_EACH_S
            except WheelTimerError as error:
                logger.warning("what is due could not be fetched: %s", error)
            except Exception:
                logger.exception("fetching broke")
            try:
                async with asyncio.timeout(pause_s):
                    await self._called.wait()
            except TimeoutError:
                continue

    async def _are_fed(self) -> bool:
        if self._event_center.reach.is_away:
            return False
        try:
            return await self._event_center.are_fed(self._shards)
        except EventCenterUnavailable:
            return False

    async def fetch(self) -> int:
        """The first in line of all lanes that have room; how many. Raises DatabaseUnavailable."""
        if self._clock.jump_ms is not None:
            return 0
        found = 0
        for shard in range(self._shards):
            limits = await self._limits(shard)
            if limits and not self._is_stopped:
                refs = await fetch(
                    self._db,
                    shard,
                    limits,
                    visibility_ms=self._visibility_ms,
                    lookahead_ms=self._lookahead_ms,
                )
                found += len(refs)
                signal.reached("delivery.fetched")
                self._deliver(refs)
        return found

    async def _limits(self, shard: int) -> dict[str, int]:
        """How many to fetch of whom."""
        now_ms = self._clock.now_ms()
        if not any(lane.fetchable(now_ms) for lane in self._lanes().values()):
            return {}
        names = await lines(self._db, shard)
        lanes, now_ms = self._lanes(), self._clock.now_ms()
        return {
            name: limit
            for name in names
            if name in lanes and (limit := min(PAGE_ROWS, lanes[name].fetchable(now_ms)))
        }
