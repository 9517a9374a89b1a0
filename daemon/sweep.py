"""
The sweep hand: finds what was published and never settled.

It follows where current_time stood one visibility time ago, and gives every task that is pending
there, and has no requeue row, one. Whatever was lost on its way (a stream trimmed, a broker that
died) comes back through the due hand. In healthy running it finds nothing.

Once a second it looks whether Redis is still the one that this shard had filled. If it is not, the
hand goes up to current_time at once, and what a publish had re-armed comes again now: whatever was
in the lanes is there again in a second or two. The note in Redis is renewed after that, so a leader
that dies in the middle leaves the rest to its heir.

Each page is a transaction under the fence. sweep_time goes to the last complete millisecond; within
one that is longer than a page, the key is kept in memory.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import Final

from daemon.hand import Tick
from daemon.leader import Leader
from daemon.windows import Windows
from wheel_timer import metrics
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.eventcenter import EventCenter
from wheel_timer.signal import reached
from wheel_timer.store import due as store
from wheel_timer.store.due import NIL, Key
from wheel_timer.store.requeue import pull
from wheel_timer.store.sweep import PAGE_ROWS, sweep

log: Final = logging.getLogger(__name__)

SWEEP_EACH_S: Final = 1.0


class SweepHand:
    """
    The sweep hand of one shard for one term. swept_ms: where it stands; current_ms: where the due
    hand does.
    """

    name = "sweep"

    def __init__(
        self,
        *,
        db: Database,
        event_center: EventCenter,
        windows: Windows,
        clock: Clock,
        leader: Leader,
        swept_ms: int,
        current_ms: int,
        visibility_s: float,
    ) -> None:
        self._db = db
        self._event_center = event_center
        self._windows = windows
        self._clock = clock
        self._leader = leader
        self._visibility_s = visibility_s
        self.swept_ms = swept_ms
        self._current_ms = current_ms
        # (monotonic s, current_time ms) of the due hand, oldest first. It begins with the term:
        # a new leader knows nothing of before, and waits one visibility time.
        self._stood: deque[tuple[float, int]] = deque()

    def follow(self, current_ms: int) -> None:
        """The due hand has moved to current_ms."""
        self._current_ms = current_ms
        now_s = time.monotonic()
        # One note a second is fine enough for something that is minutes behind.
        if len(self._stood) > 1 and now_s - self._stood[-2][0] < 1.0:
            self._stood[-1] = (now_s, current_ms)
        else:
            self._stood.append((now_s, current_ms))

    async def tick(self) -> Tick:
        """Sweep up to where the due hand stood one visibility time ago, or stands, after a loss."""
        await self._look_for_losses()
        edge_s = time.monotonic() - self._visibility_s
        target_ms = self.swept_ms
        while self._stood and self._stood[0][0] <= edge_s:
            target_ms = max(target_ms, self._stood.popleft()[1])
        work = await self.sweep_to(target_ms)
        lag_s = (self._clock.now_ms() - self.swept_ms) / 1000 - self._visibility_s
        metrics.hand_lag(self._leader.shard, self.name, max(0.0, lag_s))
        return Tick(work, SWEEP_EACH_S)

    async def _look_for_losses(self) -> None:
        if not self._event_center.reach.is_away:
            try:
                seen = await self._event_center.see(self._leader.shard)
                metrics.event_center_up(True)
                if not seen.is_known:
                    await self.recover()
                    await self._event_center.note(self._leader.shard, seen.run_id)
            except EventCenterUnavailable as error:
                self._event_center.reach.failed(error)
        if self._event_center.reach.is_away:
            # What lay in a lane, unread, is out of reach; what brokers had read they call.
            await self.sweep_to(self._current_ms, reason="event_center_away")

    async def recover(self) -> None:
        """What had been published, and is not settled, comes again now."""
        shard, epoch = self._leader.shard, self._leader.epoch
        swept = await self.sweep_to(self._current_ms, reason="event_center_lost")
        key, pulled = Key(self._current_ms, NIL), 0
        while True:
            page = await pull(self._db, shard, epoch, key)
            pulled += page.pulled
            if page.seen < PAGE_ROWS:
                break
            assert page.last_due_ms is not None
            assert page.last_id is not None
            key = Key(page.last_due_ms, page.last_id)
        reached("sweep.recovered")
        log.info(
            "shard %d: the event center is new, or was lost: %d tasks are published again",
            shard,
            swept + pulled,
        )

    async def sweep_to(self, target_ms: int, *, reason: str = "undelivered") -> int:
        """Sweep (swept_ms, target_ms]; the target must lie at or before the persisted
        current_time. Returns the rows that nothing had covered."""
        if target_ms <= self.swept_ms:
            return 0
        added = 0
        # What waits in its lane for long is not lost; if the lane is, nothing waits.
        waits_ms = self._windows.waits_ms() if reason == "undelivered" else {}
        async for window in store.windows(self._db, self.swept_ms, target_ms):
            key_ms, key_id = window.after_ms, NIL
            while True:
                page = await sweep(
                    self._db, self._leader.shard, self._leader.epoch,
                    window.after_ms, window.to_ms, key_ms, key_id, waits_ms,
                )  # fmt: skip
                reached("sweep.page")
                added += page.added
                if page.seen < PAGE_ROWS:
                    break
                assert page.last_time_ms is not None
                assert page.last_id is not None
                key_ms, key_id = page.last_time_ms, page.last_id
        # The stretch of empty slots behind the last window: nothing to read, only to pass.
        await sweep(
            self._db, self._leader.shard, self._leader.epoch,
            target_ms, target_ms, target_ms, NIL, waits_ms,
        )  # fmt: skip
        self.swept_ms = target_ms
        reached("sweep.done")
        if added:
            log.warning(
                "shard %d: the sweep found %d tasks published and not delivered",
                self._leader.shard,
                added,
            )
            metrics.swept(reason, added)
        return added
