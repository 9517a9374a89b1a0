"""
Puts what is due into the lanes, a page at a time, under the leader's epoch.

Two kinds of page: tasks on the wheel, and requeue rows. A requeue row is published if its task is
pending and free; re-armed to the end of its task's lease or wait if not; dropped if its task is
settled. Re-arming is a transaction of its own a page, after the publish: a crash in between repeats
the page.
"""

from __future__ import annotations

import logging
from typing import Final

from daemon.leader import Leader
from wheel_timer import metrics
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.eventcenter import EventCenter
from wheel_timer.signal import reached
from wheel_timer.store.due import PAGE_ROWS, Key, Window, due_page
from wheel_timer.store.requeue import Again, rearm, requeue_page
from wheel_timer.task import Ref, Status

log: Final = logging.getLogger(__name__)


class Publisher:
    """
    The pages of one shard for one term. visibility_ms: when a published requeue row is looked at
    again. published: rows dealt with so far.
    """

    def __init__(
        self,
        *,
        db: Database,
        event_center: EventCenter,
        clock: Clock,
        leader: Leader,
        visibility_ms: int,
    ) -> None:
        self._db = db
        self._event_center = event_center
        self._clock = clock
        self._leader = leader
        self._visibility_ms = visibility_ms
        self.published = 0
        self._announced_epoch = 0

    async def announce(self) -> None:
        """
        Make our epoch known to the whole event center, once: a predecessor that was frozen in the
        middle of a publish is refused then, in lanes that we have nothing for, too.
        """
        leader = self._leader
        if self._announced_epoch == leader.epoch:
            return
        try:
            announced = await self._event_center.announce(leader.shard, leader.epoch)
            if announced.refused_by is not None:
                await leader.outbid(announced.refused_by)
                announced = await self._event_center.announce(leader.shard, leader.epoch)
        except EventCenterUnavailable as error:
            log.warning("shard %d: its epoch is not known to Redis: %s", leader.shard, error)
            return
        if announced.missing:
            log.info("the event center did not know shard %d; it is new, or was lost", leader.shard)
        self._announced_epoch = leader.epoch

    async def tasks(self, window: Window, key: Key) -> Key | None:
        """Publish one page of pending tasks of a window; the next page's key, None at its end."""
        page = await due_page(self._db, self._leader.shard, window, key)
        if page:
            now_ms = int(self._clock.now_ms())
            await self._send(
                [Ref(id_, start_ms, start_ms, now_ms, biz) for id_, start_ms, biz in page]
            )
        if len(page) < PAGE_ROWS:
            return None
        return Key(page[-1].start_time_ms, page[-1].task_id)

    async def requeued(self, window: Window, key: Key, *, fenced: bool) -> Key | None:
        """Deal with one page of requeue rows due in a window. Unfenced, it only publishes."""
        rows = await requeue_page(self._db, self._leader.shard, window, key)
        now_ms = int(self._clock.now_ms())
        refs: list[Ref] = []
        agains: list[Again] = []
        for row in rows:
            if row.status != Status.PENDING:
                agains.append(Again(row.task_id, None, False))
                continue
            moment_ms = max(row.start_time_ms, row.next_at_ms or 0)
            lease_ms = row.lease_until_ms or 0
            if moment_ms > window.to_ms or lease_ms > now_ms:
                # Published now it would only be refused: the claim gives no leased task away.
                agains.append(Again(row.task_id, max(moment_ms, lease_ms), False))
                continue
            refs.append(Ref(row.task_id, row.start_time_ms, moment_ms, now_ms, row.biz_type))
            agains.append(Again(row.task_id, now_ms + self._visibility_ms, True))
        if refs:
            await self._send(refs)
        if agains and fenced:
            leader = self._leader
            await rearm(self._db, leader.shard, leader.epoch, window.to_ms, agains)
            reached("due.rearmed")
        if len(rows) < PAGE_ROWS:
            return None
        return Key(rows[-1].due_at_ms, rows[-1].task_id)

    async def _send(self, refs: list[Ref]) -> None:
        leader = self._leader
        published = await self._event_center.publish(leader.shard, leader.epoch, refs)
        if published.refused_by is not None:
            await leader.outbid(published.refused_by)
            published = await self._event_center.publish(leader.shard, leader.epoch, refs)
            if published.refused_by is not None:
                raise EventCenterUnavailable("another database publishes under the same prefix")
        if published.missing:
            self._announced_epoch = 0
        reached("due.published")
        self.published += len(refs)
        late_ms = self._clock.now_ms() - min(ref.moment_ms for ref in refs)
        metrics.published(leader.shard, late_ms / 1000, len(refs))
