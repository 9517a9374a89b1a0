"""
Puts what is due into the lanes, a page at a time, under the leader's epoch.

Three kinds of page, in this order: requeue rows that are to go first, tasks on the wheel, requeue
rows of those that were tried before. A requeue row is published if its task is pending and free;
re-armed to the end of its task's lease or wait if not; dropped if its task is settled. What its
lane does not take stands in line: an `overflow` row, from where the line ends. What cannot be
published because Redis is away gets one that brokers read, at its moment plus visibility. All of it
is a transaction of its own a page, after the publish: a crash in between repeats the page.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final
from uuid import UUID

from daemon.leader import Leader
from daemon.windows import Windows
from wheel_timer import metrics
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.eventcenter import EventCenter
from wheel_timer.signal import reached
from wheel_timer.store.due import PAGE_ROWS, Due, Key, Part, Window, due_page, due_part
from wheel_timer.store.requeue import Again, Requeued, lines, overflow, rearm, requeue_page
from wheel_timer.task import Ref, Status

log: Final = logging.getLogger(__name__)

# A near task's net is due this long after the moment at which its broker was to publish it.
NEAR_NET_MS: Final = 2_000
# Of the wheel in one tick; asked only where a tick was longer than ten pages.
HEAVY_ROWS: Final = PAGE_ROWS // 2


class Publisher:
    """
    The pages of one shard for one term. visibility_ms: when what Redis was not there for comes
    again. published: rows dealt with so far; lined_up: tasks of the wheel that were put in line
    instead. full: lanes that had no room in this tick. taken: tasks of the wheel in this tick, by
    biz_type.
    """

    def __init__(
        self,
        *,
        db: Database,
        event_center: EventCenter,
        clock: Clock,
        leader: Leader,
        windows: Windows,
        visibility_ms: int,
    ) -> None:
        self._db = db
        self._event_center = event_center
        self._windows = windows
        self._clock = clock
        self._leader = leader
        self._visibility_ms = visibility_ms
        self.published = 0
        self.lined_up = 0
        self.full: set[str] = set()
        self.taken: Counter[str] = Counter()
        self._announced_epoch = 0
        self._knows_lines = False

    async def announce(self) -> None:
        """
        Make our epoch known to the whole event center, once: a predecessor that was frozen in the
        middle of a publish is refused then, in lanes that we have nothing for, too.
        """
        leader = self._leader
        self._windows.new_tick()
        self.full.clear()
        self.taken.clear()
        if not self._knows_lines:
            self._windows.stand(await lines(self._db, leader.shard))
            self._knows_lines = True
        if self._announced_epoch == leader.epoch or self._event_center.reach.is_away:
            return
        try:
            announced = await self._event_center.announce(leader.shard, leader.epoch)
            if announced.refused_by is not None:
                await leader.outbid(announced.refused_by)
                announced = await self._event_center.announce(leader.shard, leader.epoch)
        except EventCenterUnavailable as error:
            self._event_center.reach.failed(error)
            return
        if announced.missing:
            log.info("the event center did not know shard %d; it is new, or was lost", leader.shard)
        self._announced_epoch = leader.epoch

    async def tasks(
        self, window: Window, key: Key, part: Part | None, *, fenced: bool
    ) -> Key | None:
        """
        Publish one page of pending tasks of a window; the next page's key, None at its end.

        part: of some biz_types only.
        """
        if part is None:
            page = await due_page(self._db, self._leader.shard, window, key)
            full = len(page) == PAGE_ROWS
            after = Key(page[-1].start_time_ms, page[-1].task_id) if full else None
        else:
            page, after = await due_part(self._db, self._leader.shard, window, key, part)
        for first in range(0, len(page), PAGE_ROWS):
            await self._fresh(page[first : first + PAGE_ROWS], fenced=fenced)
        return after

    async def _fresh(self, page: Sequence[Due], *, fenced: bool) -> None:
        now_ms = int(self._clock.now_ms())
        refs = [Ref(id_, start_ms, start_ms, now_ms, biz) for id_, start_ms, biz in page]
        self.taken.update(ref.biz_type for ref in refs)
        left = await self._send(refs, is_again=False)
        if left and fenced:
            leader = self._leader
            await overflow(
                self._db,
                leader.shard,
                leader.epoch,
                [(ref.start_time_ms, ref.task_id) for ref in left],
                [self._comes_again_ms(ref, now_ms, stood_in_line=False) for ref in left],
            )
            self.lined_up += len(left)
            reached("due.overflowed")

    @property
    def heavy(self) -> frozenset[str]:
        """Of whom much is due in this tick."""
        return frozenset(name for name, tasks in self.taken.items() if tasks > HEAVY_ROWS)

    async def requeued(
        self, window: Window, key: Key, *, is_again: bool, fenced: bool
    ) -> Key | None:
        """
        Deal with one page of requeue rows due in a window. Unfenced, it only publishes.

        is_again: those of tasks that were tried before, or are run or replayed; else all others.
        """
        leader = self._leader
        rows = await requeue_page(self._db, leader.shard, window, key, is_again=is_again)
        now_ms = int(self._clock.now_ms())
        in_line: set[UUID] = set()
        refs: list[Ref] = []
        agains: list[Again] = []
        wanted_ms: dict[UUID, int] = {}
        for row in rows:
            if row.status != Status.PENDING:
                agains.append(Again(row.task_id, None))
                continue
            moment_ms = max(row.start_time_ms, row.next_at_ms or 0)
            lease_ms = row.lease_until_ms or 0
            if moment_ms > window.to_ms or lease_ms > now_ms:
                # Published now it would only be refused: the claim gives no leased task away.
                agains.append(Again(row.task_id, max(moment_ms, lease_ms)))
                continue
            if row.reason == "overflow":
                in_line.add(row.task_id)
            refs.append(Ref(row.task_id, row.start_time_ms, moment_ms, now_ms, row.biz_type))
            wanted_ms[row.task_id] = _wanted_ms(row, moment_ms)
        if refs:
            sent = await self._send(refs, is_again=is_again, wanted_ms=wanted_ms)
            left = {ref.task_id for ref in sent}
            for ref in refs:
                if ref.task_id in left:
                    stood = ref.task_id in in_line
                    at_ms = self._comes_again_ms(ref, now_ms, stood_in_line=stood)
                    agains.append(Again(ref.task_id, at_ms, "overflow"))
                else:
                    at_ms = self._windows.again_ms(ref.biz_type, now_ms)
                    agains.append(Again(ref.task_id, at_ms, "published"))
        if agains and fenced:
            await rearm(self._db, leader.shard, leader.epoch, window.to_ms, agains)
            reached("due.rearmed")
        if len(rows) < PAGE_ROWS:
            return None
        return Key(rows[-1].due_at_ms, rows[-1].task_id)

    def _comes_again_ms(self, ref: Ref, now_ms: int, *, stood_in_line: bool) -> int:
        """When the row of a task is due that was not published, and stands in line from now on."""
        self._windows.lines_up()
        if self._event_center.reach.is_away:
            # In the order of their moments, which is the order in which brokers fetch them.
            return max(now_ms, ref.moment_ms) + self._visibility_ms
        return self._windows.line_up(ref.biz_type, now_ms, stood_in_line=stood_in_line)

    async def _send(
        self,
        refs: list[Ref],
        *,
        is_again: bool,
        wanted_ms: Mapping[UUID, int] = MappingProxyType({}),
    ) -> Sequence[Ref]:
        """
        Publish a page; what of it is in no lane now, for want of room or of Redis. wanted_ms: when
        it was to be published, where that is not its moment.
        """
        if self._event_center.reach.is_away:
            return refs
        leader = self._leader
        room_of = partial(self._windows.room, is_again=is_again)
        try:
            published = await self._event_center.publish(leader.shard, leader.epoch, refs, room_of)
            if published.refused_by is not None:
                await leader.outbid(published.refused_by)
                published = await self._event_center.publish(
                    leader.shard, leader.epoch, refs, room_of
                )
                if published.refused_by is not None:
                    raise EventCenterUnavailable("another database publishes under the same prefix")
        except EventCenterUnavailable as error:
            self._event_center.reach.failed(error)
            return refs
        if published.missing:
            self._announced_epoch = 0
        # A key of the wrong kind where a lane should be is that lane's trouble alone.
        if published.error and not published.error.startswith("WRONGTYPE"):
            self._event_center.reach.failed(EventCenterUnavailable(published.error))
        self._windows.published(published.before, is_again=is_again)
        reached("due.published")
        self.full.update(ref.biz_type for ref in published.full)
        left = [*published.full, *published.failed]
        self.published += len(refs) - len(left)
        unsent = {ref.task_id for ref in left}
        now_ms = self._clock.now_ms()
        metrics.published(
            leader.shard,
            (
                (now_ms - wanted_ms.get(ref.task_id, ref.moment_ms)) / 1000
                for ref in refs
                if ref.task_id not in unsent
            ),
        )
        return left


def _wanted_ms(row: Requeued, moment_ms: int) -> int:
    """
    When a requeue row's task was to be published: what its lane, its endpoint or a pause held back
    until then is no lateness of ours. What the sweep had to find is, from its moment on.
    """
    match row.reason:
        case "sweep":
            return moment_ms
        case "near":
            return row.due_at_ms - NEAR_NET_MS
        case _:
            return row.due_at_ms
