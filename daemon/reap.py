"""
The reap hand: what has expired goes, partition by partition, with all that belongs to it.

    look      through a partition, some blocks at a time, when something in it may have expired
    delete    bounded batches, each a transaction, of the blocks in which something has
    truncate  the whole partition, where nothing lives in it but a few rows, which are carried over

To empty a partition is far cheaper than to delete its rows, and gives the disk back at once. So
what has expired may wait for the rest of its partition, up to a tenth of its retention; then it is
deleted row by row. Before a partition is emptied, the tasks in it to which more belongs than a row
are deleted: so a task is there whole or gone whole, at every moment and after every crash.

A partition is looked at when its first task will have waited for so long, or its last will have
expired; when its rows were updated since, for then they may have been settled; and once a day. But
not more often than LOOK_EACH_MS, and for no more than a five-hundredth of the time. What was seen
is kept in memory: a new leader looks at everything once.

It works beside the due hand at a third of the time, never under the fence and never in the
partition where the hands stand but by single rows. Each step may be repeated.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator
from typing import Final

from daemon.hand import Tick
from daemon.leader import Leader
from daemon.records import RecordReaper
from wheel_timer import metrics
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.signal import reached
from wheel_timer.store import reap as store
from wheel_timer.store.reap import CARRY_ROWS_MAX, Look, Partition, Reaped, Verdict

log: Final = logging.getLogger(__name__)

# Whose leader reaps, for all shards: a partition holds the tasks of all of them.
REAP_SHARD: Final = 0
REST_SHARE: Final = 2.0
NAP_S: Final = 5.0
# By the database's clock, so that a test's clock brings the next look along.
LOOK_EACH_MS: Final = 60_000
LOOK_ANYHOW_MS: Final = 86_400_000
# What is read pushes other pages out of Postgres' memory: of a partition of 4 GB, once an hour.
LOOK_SHARE: Final = 1 / 500
# 16 MB: 20 ms of reading where it is in memory.
LOOK_BLOCKS: Final = 2048
# Some hundred rows: a batch finds its rows without reading far.
REAP_BLOCKS: Final = 32
# 1 MB of index for no rows: they were deleted one by one, and the index does not shrink by itself.
INDEX_PAGES_MAX: Final = 128
# Rows that live take no page each; what is more is left from others.
SPARE_PAGES: Final = 128
# So often a partition that somebody is at is asked for, before its rows are deleted one by one.
BUSY_MAX: Final = 5


class _Seen:
    """What is known of one partition: when it was looked at, and what came of that."""

    def __init__(self) -> None:
        self.look = Look()
        self.updates = -1
        self.next_ms = 0.0
        self.free_ms = 0.0
        # Refusals: so often busy in a row; too large to be looked through under the lock.
        self.busy = 0
        self.slow_pages = 0


class ReapHand:
    """The reap hand for one term of shard 0's leader. shards: how many there are."""

    name = "reap"

    def __init__(
        self, *, db: Database, clock: Clock, leader: Leader, shards: int, retention_s: float
    ) -> None:
        self._db = db
        self._clock = clock
        self._leader = leader
        self._shards = shards
        self._records = RecordReaper(db, clock, kept_s=retention_s)
        self._seen: dict[int, _Seen] = {}
        self._round: AsyncIterator[int] | None = None
        self._reap_time_ms = 0

    async def tick(self) -> Tick:
        """The next step of the round."""
        began_s = time.monotonic()
        if not self._clock.is_known():
            return Tick(0, NAP_S)
        self._tell_lag()
        if self._round is None:
            self._round = self.round()
        current, self._round = self._round, None
        try:
            rows = await anext(current)
        except StopAsyncIteration:
            self._tell_lag()
            return Tick(0, NAP_S)
        # After a fault the next tick begins a new round.
        self._round = current
        return Tick(rows, (time.monotonic() - began_s) * (1 + REST_SHARE))

    async def round(self) -> AsyncIterator[int]:
        """Everything there is to do now, step by step; yields the rows that each has deleted."""
        for partition in await store.partitions(self._db):
            seen = self._seen.setdefault(partition.slot_lo, _Seen())
            if self._is_wanted(partition, seen):
                async for rows in self._partition(partition, seen):
                    yield rows
        await self._advance()
        async for rows in self._records.round():
            yield rows

    def _is_wanted(self, partition: Partition, seen: _Seen) -> bool:
        """Whether something in a partition may have expired, or its index is larger than it."""
        now_ms = self._clock.now_ms()
        if not partition.pages:
            seen.look = Look()
            return partition.index_pages > INDEX_PAGES_MAX and seen.free_ms <= now_ms
        return seen.free_ms <= now_ms and (
            seen.next_ms <= now_ms or seen.updates != partition.updates
        )

    async def _partition(self, partition: Partition, seen: _Seen) -> AsyncIterator[int]:
        """Look through one partition, and delete or empty it where that is due."""
        began_s = time.monotonic()
        look = Look()
        expired, entwined = [], []
        for block in range(0, partition.pages, LOOK_BLOCKS):
            part = await store.look(self._db, partition.slot_lo, block, block + LOOK_BLOCKS)
            if part.expired:
                expired.append(block)
            if part.entwined:
                entwined.append(block)
            look = look.and_(part)
            yield 0
        reached("reap.looked")
        rest_ms = (time.monotonic() - began_s) * 1000 / LOOK_SHARE
        now_ms = self._clock.now_ms()
        seen.look, seen.updates = look, partition.updates
        seen.free_ms = now_ms + max(LOOK_EACH_MS, rest_ms)
        seen.next_ms = min(_next_ms(look), now_ms + LOOK_ANYHOW_MS)
        self._tell_lag()
        if self._can_empty(partition, seen):
            async for rows in self._delete(partition, entwined, is_whole=False):
                yield rows
            verdict, tasks = await self._truncate(partition, seen)
            yield tasks
            if verdict == "done" or (verdict == "busy" and seen.busy < BUSY_MAX):
                return
        if look.overdue_ms is not None and look.overdue_ms <= now_ms:
            async for rows in self._delete(partition, expired, is_whole=True):
                yield rows
            # What is left is what had not expired yet; when the first of it does is not known.
            seen.look = look._replace(expired=0, earliest_ms=None, overdue_ms=None)
            seen.next_ms = 0.0
            seen.busy = seen.slow_pages = 0

    def _can_empty(self, partition: Partition, seen: _Seen) -> bool:
        """Whether to empty it: what stays is little, and less than what goes, rows or space."""
        staying = seen.look.lasting + seen.look.open
        return (
            staying <= min(CARRY_ROWS_MAX, max(seen.look.expired, partition.pages - SPARE_PAGES))
            and not partition.is_under_hands
            and (not seen.slow_pages or partition.pages < seen.slow_pages)
        )

    async def _delete(
        self, partition: Partition, blocks: list[int], *, is_whole: bool
    ) -> AsyncIterator[int]:
        for first in blocks:
            for block in range(first, min(first + LOOK_BLOCKS, partition.pages), REAP_BLOCKS):
                for shard in range(self._shards):
                    is_more = True
                    while is_more:
                        is_more, reaped = await store.reap(
                            self._db, self._leader.epoch, shard, partition.slot_lo,
                            block, block + REAP_BLOCKS, is_whole=is_whole,
                        )  # fmt: skip
                        self._count(reaped)
                        reached("reap.deleted")
                        yield reaped.tasks

    async def _truncate(self, partition: Partition, seen: _Seen) -> tuple[Verdict, int]:
        verdict, carried, reaped = await store.truncate(
            self._db, self._leader.epoch, partition.slot_lo
        )
        reached("reap.truncated")
        seen.busy = seen.busy + 1 if verdict == "busy" else 0
        if verdict == "slow":
            seen.slow_pages = partition.pages
        if verdict != "done":
            log.info("the partition of slot %d is not emptied: %s", partition.slot_lo, verdict)
            return verdict, 0
        self._count(reaped)
        metrics.partition_emptied()
        log.info(
            "the partition of slot %d was emptied: %d tasks, and %d rows carried over",
            partition.slot_lo,
            reaped.tasks,
            carried,
        )
        seen.look = Look()
        # What was carried over is looked at with the next round.
        seen.next_ms = 0.0
        seen.slow_pages = 0
        return verdict, reaped.tasks

    def _count(self, reaped: Reaped) -> None:
        for status, tasks in zip(Reaped._fields, reaped, strict=True):
            if tasks:
                metrics.reaped(status, tasks)

    def _tell_lag(self) -> None:
        """How long the oldest is overdue: at every step, for a round may take hours."""
        now_ms = self._clock.now_ms()
        moments = [seen.look.overdue_ms for seen in self._seen.values()]
        oldest_ms = min([ms for ms in moments if ms is not None], default=now_ms)
        metrics.hand_lag(self._leader.shard, self.name, max(0.0, now_ms - oldest_ms) / 1000)

    async def _advance(self) -> None:
        """Where the hand stands: what expired before that is gone."""
        now_ms = int(self._clock.now_ms())
        looks = [seen.look for seen in self._seen.values()]
        left = [look.earliest_ms - 1 for look in looks if look.earliest_ms is not None]
        reap_time_ms = min([now_ms, *left])
        # Once a minute is fine enough for what is kept for days.
        if reap_time_ms - self._reap_time_ms >= LOOK_EACH_MS:
            self._reap_time_ms = reap_time_ms
            await store.advance(self._db, self._leader.epoch, reap_time_ms)


def _next_ms(look: Look) -> float:
    """When a partition that nobody writes to is worth another look."""
    moments: list[float] = []
    if look.overdue_ms is not None:
        moments.append(look.overdue_ms)
    if look.latest_ms is not None and look.open <= CARRY_ROWS_MAX:
        moments.append(look.latest_ms)
    return min(moments, default=float("inf"))
