"""
Passing the barrier of a closed moment, and what to do about writers who do not leave the fence.

A waiting exclusive lock makes every new writer wait behind it. So a barrier that was not passed
within WAIT_MS makes the tick an unfenced one; after that the hand only looks (try-lock), with one
waiting attempt a second. Each of those waits twice as long as the one before, up to WAIT_MS_MAX:
where every commit is slow (a standby across an ocean), somebody is always inside, and a barrier
that never waited long enough would never be passed. A backend that has held the fence for
FENCE_HELD_MS is ended: a client frozen with an unread reply can be got rid of in no other way.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from wheel_timer.database import Database
from wheel_timer.store import due as store

log: Final = logging.getLogger(__name__)

WAIT_MS: Final = 50
WAIT_MS_MAX: Final = 1000
WAIT_EACH_S: Final = 1.0
FENCE_HELD_MS: Final = 5000


class Barrier:
    """The barrier of one shard, as its leader meets it."""

    def __init__(self, db: Database, shard: int) -> None:
        self._db = db
        self._shard = shard
        self._busy_since_s: float | None = None
        self._waited_s = 0.0
        self._wait_ms = WAIT_MS

    async def passed(self) -> bool:
        """Whether the moment that was closed last can be relied on now."""
        now_s = time.monotonic()
        wait_ms = 0
        if self._busy_since_s is None or now_s - self._waited_s >= WAIT_EACH_S:
            wait_ms = self._wait_ms
            self._waited_s = now_s
        if await store.pass_barrier(self._db, self._shard, wait_ms):
            self._busy_since_s = None
            self._wait_ms = WAIT_MS
            return True
        if wait_ms:
            self._wait_ms = min(2 * wait_ms, WAIT_MS_MAX)
        if self._busy_since_s is None:
            self._busy_since_s = now_s
            log.warning("shard %d: a writer stays in the fence; ticks are unfenced", self._shard)
        elif (now_s - self._busy_since_s) * 1000 > FENCE_HELD_MS:
            ended = await store.break_fence(self._db, self._shard, FENCE_HELD_MS)
            if ended:
                log.error("shard %d: ended %d backends that held the fence", self._shard, ended)
        return False
