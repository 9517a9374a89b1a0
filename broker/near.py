"""
Publishing what is due within the look-ahead, by the broker that wrote it.

Beside the answers and in groups: while one publish is under way, what comes waits for the next. A
failure is no error to anybody: the requeue row that was written with the task is the net. While the
event center is away this broker calls them itself, if it makes calls, and as far as its lanes have
room.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from wheel_timer import metrics
from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.eventcenter import EventCenter
from wheel_timer.task import Ref

PUBLISH_REFS_MAX: Final = 1000
WAITING_REFS_MAX: Final = 100_000

log = logging.getLogger(__name__)

Deliver = Callable[[Sequence[Ref]], None]


def left_to_nets(refs: Sequence[Ref]) -> None:
    """What a broker does with them that makes no calls."""


class NearPublisher:
    """Publishes references one group after the other. deliver: takes them where Redis does not."""

    def __init__(self, event_center: EventCenter, deliver: Deliver) -> None:
        self._event_center = event_center
        self._deliver = deliver
        self._waiting: deque[Ref] = deque()
        self._publishing: asyncio.Task[None] | None = None

    def publish_soon(self, refs: Sequence[Ref]) -> None:
        """Publish these next. Where Redis does not keep up, they are left to the net."""
        if len(self._waiting) + len(refs) > WAITING_REFS_MAX:
            metrics.near_unpublished(len(refs))
            return
        self._waiting.extend(refs)
        if self._publishing is None:
            self._publishing = asyncio.create_task(self._publish())
            self._publishing.add_done_callback(self._ended)

    async def drain(self) -> None:
        """Return when nothing waits."""
        while self._publishing is not None:
            await asyncio.wait([self._publishing])

    async def _publish(self) -> None:
        while self._waiting:
            size = min(len(self._waiting), PUBLISH_REFS_MAX)
            await self.publish([self._waiting.popleft() for _ in range(size)])

    async def publish(self, refs: Sequence[Ref]) -> None:
        """Publish these, or deliver them here. Raises nothing."""
        reach = self._event_center.reach
        if not reach.is_away:
            try:
                metrics.near_unpublished(await self._event_center.publish_direct(refs))
                return
            except EventCenterUnavailable as error:
                reach.failed(error)
        metrics.near_unpublished(len(refs))
        self._deliver(refs)

    def _ended(self, publishing: asyncio.Task[None]) -> None:
        self._publishing = None
        if not publishing.cancelled() and (error := publishing.exception()) is not None:
            log.error("publishing near tasks broke", exc_info=error)
