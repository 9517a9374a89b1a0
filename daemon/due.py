"""
The due hand: closes moments one look-ahead in front of the clock, publishes what is due in them,
moves current_time.

A fenced tick:    close -> barrier -> read (current_time, closed_to] and publish -> the same for
                  requeue rows, and re-arm them -> current_time = closed_to
An unfenced tick: close -> barrier not passed -> publish what lies beyond the last unfenced tick.
                  It moves and re-arms nothing: a writer still inside the fence may commit a row
                  into the range, and the next fenced tick must read it again.

A crash between any two steps repeats the range; claims make that harmless. Idle, there is one look
a second at what is due within two look-aheads, and one close a minute.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from daemon.barrier import Barrier
from daemon.hand import Tick
from daemon.leader import Leader
from wheel_timer import metrics
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.eventcenter import EventCenter
from wheel_timer.signal import reached
from wheel_timer.store import due as store
from wheel_timer.store.due import Window
from wheel_timer.store.requeue import Again, Requeued, rearm, requeued, rescue
from wheel_timer.task import Ref, Status

log: Final = logging.getLogger(__name__)

LOOK_EACH_S: Final = 1.0
CLOSE_EACH_S: Final = 60.0
# A range longer than this is published, and current_time moved, in pieces of it.
STRIDE_MS: Final = 60_000


class DueHand:
    """
    The due hand of one shard for one term.

    current_ms: where the hand stands; everything up to there was published. lookahead_ms: how far
    it runs ahead. visibility_ms: when a published requeue row is looked at again. moved: called
    with current_ms whenever it has moved (the sweep follows where it stood).
    """

    name = "due"

    def __init__(
        self,
        *,
        db: Database,
        event_center: EventCenter,
        clock: Clock,
        leader: Leader,
        current_ms: int,
        lookahead_ms: int,
        visibility_ms: int,
        moved: Callable[[int], None],
    ) -> None:
        self._db = db
        self._event_center = event_center
        self._clock = clock
        self._leader = leader
        self._barrier = Barrier(db, leader.shard)
        self._lookahead_ms = lookahead_ms
        self._visibility_ms = visibility_ms
        self._moved = moved
        self.current_ms = current_ms
        self._unfenced_ms = current_ms
        self._closed_s: float | None = None
        self._rescued_s = time.monotonic()

    async def tick(self) -> Tick:
        """Look; if anything is due soon, or a minute has passed, close a moment and serve it."""
        shard = self._leader.shard
        is_due = await store.look(
            self._db, self._clock, shard, self.current_ms, self._horizon(2 * self._lookahead_ms)
        )
        metrics.hand_lag(shard, self.name, (self._clock.now_ms() - self.current_ms) / 1000)
        if not self._clock.is_known():
            return Tick(0, LOOK_EACH_S)
        now_s = time.monotonic()
        # A new leader closes before anything else.
        if not (is_due or self._closed_s is None or now_s - self._closed_s >= CLOSE_EACH_S):
            return Tick(0, LOOK_EACH_S)
        work = await self.serve()
        if now_s - self._rescued_s >= CLOSE_EACH_S:
            self._rescued_s = now_s
            await self._rescue()
        return Tick(work, self._lookahead_ms / 4000 if is_due else LOOK_EACH_S)

    def _horizon(self, ahead_ms: int) -> int:
        return int(max(self._clock.now_ms(), self.current_ms)) + ahead_ms

    async def serve(self) -> int:
        """Close up to one look-ahead ahead, and publish what that has closed. Returns the rows."""
        leader = self._leader
        closed_ms = await store.close(
            self._db, leader.shard, leader.epoch, self._horizon(self._lookahead_ms),
            self._lookahead_ms,
        )  # fmt: skip
        reached("due.closed")
        self._closed_s = time.monotonic()
        if not await self._barrier.passed():
            reached("due.unfenced")
            after_ms = max(self.current_ms, self._unfenced_ms)
            work = await self._publish(Window(after_ms, closed_ms), fenced=False)
            self._unfenced_ms = max(self._unfenced_ms, closed_ms)
            return work
        reached("due.fenced")
        work = 0
        while self.current_ms < closed_ms:
            to_ms = min(closed_ms, self.current_ms + STRIDE_MS)
            if closed_ms - self.current_ms > 2 * STRIDE_MS:
                to_ms = await self._next_stop(closed_ms)
            work += await self._publish(Window(self.current_ms, to_ms), fenced=True)
            await store.advance(self._db, leader.shard, leader.epoch, to_ms)
            reached("due.advanced")
            self.current_ms = to_ms
            self._unfenced_ms = max(self._unfenced_ms, to_ms)
            self._moved(to_ms)
        return work

    async def _next_stop(self, closed_ms: int) -> int:
        """After downtime: the end of the first stretch that holds anything, so that days of empty
        slots are one step."""
        async for window in store.windows(self._db, self.current_ms, closed_ms):
            return min(closed_ms, window.after_ms + STRIDE_MS)
        return closed_ms

    async def _publish(self, span: Window, *, fenced: bool) -> int:
        """Publish what is due in a span; if fenced, also re-arm its requeue rows."""
        work = 0
        async for window in store.windows(self._db, span.after_ms, span.to_ms):
            async for page in store.due(self._db, self._leader.shard, window):
                now_ms = int(self._clock.now_ms())
                await self._send(
                    [Ref(d.task_id, d.start_time_ms, d.start_time_ms, now_ms, d.biz_type)
                     for d in page]
                )  # fmt: skip
                work += len(page)
        async for rows in requeued(self._db, self._leader.shard, span):
            work += len(rows)
            await self._look_again(rows, span.to_ms, fenced=fenced)
        return work

    async def _look_again(self, rows: list[Requeued], to_ms: int, *, fenced: bool) -> None:
        """One page of requeue rows: publish what is ready; re-arm or drop each (only if fenced)."""
        now_ms = int(self._clock.now_ms())
        refs: list[Ref] = []
        agains: list[Again] = []
        for row in rows:
            if row.status != Status.PENDING:
                agains.append(Again(row.task_id, None, False))
                continue
            moment_ms = max(row.start_time_ms, row.next_at_ms or 0)
            waits_ms = max(moment_ms, row.lease_until_ms or 0)
            if waits_ms > to_ms:
                agains.append(Again(row.task_id, waits_ms, False))
                continue
            refs.append(Ref(row.task_id, row.start_time_ms, moment_ms, now_ms, row.biz_type))
            agains.append(Again(row.task_id, now_ms + self._visibility_ms, True))
        if refs:
            await self._send(refs)
        if fenced:
            leader = self._leader
            await rearm(self._db, leader.shard, leader.epoch, to_ms, agains)
            reached("due.rearmed")

    async def _send(self, refs: list[Ref]) -> None:
        """Publish one page under our epoch."""
        leader = self._leader
        published = await self._event_center.publish(leader.shard, leader.epoch, refs)
        if published.refused_by is not None:
            await leader.outbid(published.refused_by)
            published = await self._event_center.publish(leader.shard, leader.epoch, refs)
            if published.refused_by is not None:
                raise EventCenterUnavailable("another database publishes under the same prefix")
        if published.missing:
            log.info("the event center did not know shard %d; it is new, or was lost", leader.shard)
        reached("due.published")
        late_ms = self._clock.now_ms() - min(ref.moment_ms for ref in refs)
        metrics.published(leader.shard, late_ms / 1000, len(refs))

    async def _rescue(self) -> None:
        """Requeue rows behind the hand: there are none, and one found is an alarm."""
        found = await rescue(self._db, self._leader.shard, self._leader.epoch)
        if found:
            log.error(
                "shard %d: %d requeue rows lay behind the due hand; they are ahead of it again",
                self._leader.shard,
                found,
            )
            metrics.swept("behind_the_hand", found)
