"""
What goes back beside acknowledgements: references for other brokers, to the event center or, where
they did not come from there, to the due hand; the lanes of deleted biz_types, this broker's place
in the group.

None of it is owed: what does not reach Redis is taken over by others once our heartbeat is old,
what does not reach Postgres comes after its visibility time, and a lane that nobody reads is some
bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any
from uuid import UUID

from wheel_timer.database import Database
from wheel_timer.errors import EventCenterUnavailable, WheelTimerError
from wheel_timer.eventcenter import EventCenter
from wheel_timer.store.fetch import PAGE_ROWS, unfetch
from wheel_timer.task import Ref
from wheel_timer.wheel import home_of

log = logging.getLogger(__name__)


class HandBack:
    """let_go: hears of references that are no longer ours. `stop` waits for what runs beside."""

    def __init__(
        self,
        *,
        db: Database,
        event_center: EventCenter,
        let_go: Callable[[Sequence[Ref]], None],
    ) -> None:
        self._db = db
        self._event_center = event_center
        self._let_go = let_go
        # Errands that nobody waits for; kept here, or the loop might drop them half-way.
        self._errands: set[asyncio.Task[None]] = set()

    def refs_soon(self, refs: Sequence[Ref]) -> None:
        """Hand references back, beside what goes on."""
        self._send(self.refs(refs))

    def lanes_soon(self, names: Callable[[], Sequence[str]]) -> None:
        """Remove the lanes of these biz_types, beside what goes on. names: asked at that moment."""
        self._send(self._remove(names))

    async def refs(self, refs: Sequence[Ref]) -> None:
        """Hand references back to their lanes, and those that no lane had brought to the hand."""
        await self._unfetch(refs)
        try:
            await self._event_center.hand_back(refs)
        except EventCenterUnavailable as error:
            # Whoever is alive takes them over once our heartbeat is old.
            log.warning("%d references were not handed back: %s", len(refs), error)
        self._let_go(refs)

    async def leave(self) -> None:
        """This broker reads nothing more."""
        try:
            await self._event_center.leave()
        except EventCenterUnavailable as error:
            log.warning("the others will take this broker for dead: %s", error)

    async def stop(self) -> None:
        """Return when nothing runs beside any more."""
        if self._errands:
            await asyncio.wait(self._errands)

    async def _unfetch(self, refs: Sequence[Ref]) -> None:
        by_shard: dict[int, list[UUID]] = defaultdict(list)
        for ref in refs:
            if not ref.entry_id:
                by_shard[home_of(ref.task_id)[1]].append(ref.task_id)
        try:
            for shard, ids in by_shard.items():
                for first in range(0, len(ids), PAGE_ROWS):
                    await unfetch(self._db, shard, ids[first : first + PAGE_ROWS])
        except WheelTimerError as error:
            log.warning("what was fetched comes after its visibility time: %s", error)

    def _send(self, errand: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(errand)
        self._errands.add(task)
        task.add_done_callback(self._errands.discard)

    async def _remove(self, names: Callable[[], Sequence[str]]) -> None:
        try:
            await self._event_center.remove(names())
        except EventCenterUnavailable as error:
            # A lane that nobody reads: some bytes, until the biz_type is there again.
            log.warning("the lanes of deleted biz_types stay: %s", error)
