"""
Passing the barrier of a closed moment, and what to do about a writer who will not leave the fence.

A waiting exclusive lock makes every new writer wait behind it. So a barrier that was not passed
within 50 ms makes the tick an unfenced one, and then only looks (try-lock), with one waiting
attempt a second; after FENCE_HELD_MS the holder's backend is ended: a client frozen with an unread
reply can be got rid of in no other way.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from wheel_timer.database import Database
from wheel_timer.store import due as store

log: Final = logging.getLogger(__name__)

WAIT_EACH_S: Final = 1.0
FENCE_HELD_MS: Final = 5000


class Barrier:
    """The barrier of one shard, as its leader meets it."""

    def __init__(self, db: Database, shard: int) -> None:
        self._db = db
        self._shard = shard
        self._busy_since_s: float | None = None
        self._waited_s = 0.0

    async def passed(self) -> bool:
        """Whether the moment that was closed last can be relied on now."""
        now_s = time.monotonic()
        wait = self._busy_since_s is None or now_s - self._waited_s >= WAIT_EACH_S
        if wait:
            self._waited_s = now_s
        if await store.pass_barrier(self._db, self._shard, wait=wait):
            self._busy_since_s = None
            return True
        if self._busy_since_s is None:
            self._busy_since_s = now_s
            log.warning("shard %d: a writer stays in the fence; ticks are unfenced", self._shard)
        elif (now_s - self._busy_since_s) * 1000 > FENCE_HELD_MS:
            ended = await store.break_fence(self._db, self._shard, FENCE_HELD_MS)
            log.error("shard %d: ended %d backends that held the fence", self._shard, ended)
        return False
