"""
What comes into the lanes: references that were read, taken over, fetched, or are near and our own.

A reference far ahead of our clock means that the database's was set meanwhile: it is measured anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from broker.lane import Lane
from wheel_timer.clock import Clock
from wheel_timer.errors import WheelTimerError
from wheel_timer.task import Ref

# Published so far ahead of our clock: the database's was set, and ours does not know it yet. More
# than any look-ahead, because near tasks are published with their moment.
CLOCK_BEHIND_MS: Final = 5_000

log = logging.getLogger(__name__)


class Intake:
    """
    Puts references into their lanes.

    lanes: those of this broker. touched: hears of a lane that got one. held: of one that may not
    call what it got. turned: the clock was measured anew.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        lanes: Mapping[str, Lane],
        touched: Callable[[Lane], None],
        held: Callable[[Lane], None],
        turned: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._lanes = lanes
        self._touched = touched
        self._held = held
        self._turned = turned
        self._measuring: asyncio.Task[None] | None = None

    def near(self, refs: Sequence[Ref]) -> None:
        """Call these near tasks from here, as far as there is room; the others have their nets."""
        now_ms = self._clock.now_ms()
        room = {name: lane.fetchable(now_ms) for name, lane in self._lanes.items()}
        taken: list[Ref] = []
        for ref in refs:
            if room.get(ref.biz_type, 0) > 0:
                room[ref.biz_type] -= 1
                taken.append(ref)
        self.take(taken)

    def take(self, refs: Sequence[Ref], not_before_ms: int = 0) -> None:
        """
        Into their lanes; those of a biz_type that is gone are let fall. not_before_ms: their place
        among the others, where their moments have long passed.
        """
        now_ms = self._clock.now_ms()
        for ref in refs:
            lane = self._lanes.get(ref.biz_type)
            if lane is not None and lane.add(ref, not_before_ms):
                self._touched(lane)
                if lane.gate.is_narrow and lane.gate.hold(now_ms) is not None:
                    self._held(lane)
        is_behind = refs and refs[-1].published_ms - self._clock.now_ms() > CLOCK_BEHIND_MS
        if is_behind and (self._measuring is None or self._measuring.done()):
            self._measuring = asyncio.create_task(self._measure())

    async def _measure(self) -> None:
        try:
            await self._clock.measure()
        except WheelTimerError as error:
            log.warning("the database's clock could not be read: %s", error)
        self._turned()
