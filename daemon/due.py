"""
The due hand: closes moments one look-ahead in front of the clock, publishes what is due in them,
moves current_time.

A fenced tick:    close -> barrier -> publish what is due in (published, closed_to]: requeue rows,
                  but for retries and replays; tasks on the wheel; retries and replays. Re-arm the
                  rows, line up what its lane did not take -> current_time = closed_to
An unfenced tick: close -> barrier not passed -> publish what lies beyond the last unfenced tick.
                  It moves and re-arms nothing: a writer still inside the fence may commit a row
                  into the range, and the next fenced tick must read it again.

A window longer than PAGES_AT_ONCE leaves a rest (daemon/rests.py): it is read on beside the next
ticks, in the time they leave, so that a million tasks of one second delay nobody else's; of that
second itself, what is not of a lane that is full, or of which much is due, comes first.
current_time stays before the first rest, though what lies behind it is published already.

A crash between any two steps repeats the range; claims make that harmless. Idle, there is one look
a second at what is due within two look-aheads, and one close a minute.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from daemon.barrier import Barrier
from daemon.hand import Tick
from daemon.leader import Leader
from daemon.publisher import Publisher
from daemon.rests import Kind, Rest, Rests, split
from daemon.windows import Windows
from wheel_timer import metrics
from wheel_timer.clock import PULSE_TEST_S, Clock
from wheel_timer.database import Database
from wheel_timer.errors import LeadershipLost
from wheel_timer.eventcenter import EventCenter
from wheel_timer.signal import reached
from wheel_timer.store import due as store
from wheel_timer.store.due import PAGE_ROWS, Key, Window
from wheel_timer.store.requeue import rescue

log: Final = logging.getLogger(__name__)

LOOK_EACH_S: Final = 1.0
CLOSE_EACH_S: Final = 60.0
# A longer range is published, and current_time moved, in pieces of this; twice as long after each
# that held less than a page, since every piece costs a handful of statements.
STRIDE_MS: Final = 60_000
STRIDE_MS_MAX: Final = 300_000
# 10,000 rows: a tenth of a second of reading and publishing.
PAGES_AT_ONCE: Final = 10


class DueHand:
    """
    The due hand of one shard for one term.

    current_ms: where the hand stands; everything up to there was published. lookahead_ms: how far
    it runs ahead. visibility_ms: when a published requeue row is looked at again. moved: called
    with current_ms whenever it has moved (the sweep follows where it stood). found_operations,
    found_deltas: called where a look has found that there are some.
    """

    name = "due"

    def __init__(
        self,
        *,
        db: Database,
        event_center: EventCenter,
        clock: Clock,
        leader: Leader,
        windows: Windows,
        current_ms: int,
        lookahead_ms: int,
        visibility_ms: int,
        moved: Callable[[int], None],
        found_operations: Callable[[], None] = lambda: None,
        found_deltas: Callable[[], None] = lambda: None,
    ) -> None:
        self._db = db
        self._clock = clock
        self._leader = leader
        self._barrier = Barrier(db, leader.shard)
        self._publisher = Publisher(
            db=db,
            event_center=event_center,
            clock=clock,
            leader=leader,
            windows=windows,
            visibility_ms=visibility_ms,
        )
        self._lookahead_ms = lookahead_ms
        self._moved = moved
        self._found_operations = found_operations
        self._found_deltas = found_deltas
        self.current_ms = current_ms
        # Published by fenced ticks, but for the rests; and by unfenced ones.
        self._published_ms = current_ms
        self._unfenced_ms = current_ms
        self._rests = Rests()
        self._closed_s: float | None = None
        self._rescued_s = time.monotonic()

    @property
    def _look_each_s(self) -> float:
        """A look sees two look-aheads, and must come before the first of them is over."""
        if self._clock.is_test:
            return PULSE_TEST_S
        return min(LOOK_EACH_S, self._lookahead_ms / 1000)

    @property
    def _serve_each_s(self) -> float:
        return PULSE_TEST_S if self._clock.is_test else self._lookahead_ms / 4000

    async def tick(self) -> Tick:
        """Look; if anything is due soon, or a minute has passed, close a moment and serve it."""
        began_s = time.monotonic()
        is_due, has_operations, has_deltas = await store.look(
            self._db,
            self._clock,
            self._leader.shard,
            self._published_ms,
            self._horizon(2 * self._lookahead_ms),
        )
        if has_operations:
            self._found_operations()
        if has_deltas:
            self._found_deltas()
        if not self._clock.is_known():
            return Tick(0, self._look_each_s)
        # A new leader closes before anything else.
        is_time = self._closed_s is None or began_s - self._closed_s >= CLOSE_EACH_S
        if not (is_due or is_time or self._rests):
            # An idle hand stands still, up to a minute behind the clock, and nothing waits for it.
            metrics.hand_lag(self._leader.shard, self.name, 0.0)
            return Tick(0, self._look_each_s)
        before = self._publisher.published
        await self.serve()
        next_s = self._serve_each_s if is_due or self._rests else self._look_each_s
        await self._read_on_until(began_s + next_s)
        lag_s = max(0.0, self._clock.now_ms() - self.current_ms) / 1000
        metrics.hand_lag(self._leader.shard, self.name, lag_s)
        if began_s - self._rescued_s >= CLOSE_EACH_S:
            self._rescued_s = began_s
            await self._rescue()
        return Tick(self._publisher.published - before, next_s)

    def _horizon(self, ahead_ms: int) -> int:
        return int(max(self._clock.now_ms(), self.current_ms)) + ahead_ms

    async def serve(self) -> None:
        """Close up to one look-ahead ahead, and publish what that has closed."""
        leader = self._leader
        closed_ms, before_ms = await store.close(
            self._db,
            leader.shard,
            leader.epoch,
            self._horizon(self._lookahead_ms),
            self._lookahead_ms,
        )
        if before_ms < self._published_ms:
            # A crash of the database has undone closes that this hand stands on: since then a
            # writer may have come in behind it. A new term begins where the database is.
            log.warning("shard %d: the database forgot what it had closed", leader.shard)
            raise LeadershipLost(leader.shard, leader.epoch)
        reached("due.closed")
        self._closed_s = time.monotonic()
        await self._publisher.announce()
        if not await self._barrier.passed():
            reached("due.unfenced")
            after_ms = max(self._published_ms, self._unfenced_ms)
            await self._publish(Window(after_ms, closed_ms), fenced=False)
            self._unfenced_ms = max(self._unfenced_ms, closed_ms)
            return
        reached("due.fenced")
        stride_ms = STRIDE_MS
        while self._published_ms < closed_ms:
            before = self._publisher.published
            to_ms = await self._next_stop(closed_ms, stride_ms)
            rests = await self._publish(Window(self._published_ms, to_ms), fenced=True)
            self._published_ms = to_ms
            self._rests.add(rests, time.monotonic())
            await self._advance()
            is_thin = self._publisher.published - before < PAGE_ROWS
            stride_ms = min(2 * stride_ms, STRIDE_MS_MAX) if is_thin else STRIDE_MS

    async def _next_stop(self, closed_ms: int, stride_ms: int) -> int:
        """The end of the next stride; after downtime, that of the first one that holds anything,
        so that days of empty slots are one step."""
        if closed_ms - self._published_ms <= 2 * STRIDE_MS:
            return min(closed_ms, self._published_ms + stride_ms)
        async for window in store.windows(self._db, self._published_ms, closed_ms):
            return min(closed_ms, window.after_ms + stride_ms)
        return closed_ms

    async def _publish(self, span: Window, *, fenced: bool) -> list[Rest]:
        """Publish what is due in a span, on the wheel and as requeue rows; the rests it leaves.
        An unfenced tick's are of no use: the next fenced one reads the span again."""
        windows = [one async for one in store.windows(self._db, span.after_ms, span.to_ms)]
        todo = [Rest(Kind.FIRST, span, Key.before(span))]
        todo += [Rest(Kind.FRESH, window, Key.before(window)) for window in windows]
        todo.append(Rest(Kind.AGAIN, span, Key.before(span)))
        is_behind = span.to_ms <= self._clock.now_ms()
        rests: list[Rest] = []
        for rest in todo:
            rests += await self._pages(rest, is_behind=is_behind, fenced=fenced)
        return rests

    async def _pages(self, rest: Rest, *, is_behind: bool, fenced: bool) -> list[Rest]:
        """
        So many pages of a window at once, or until a lane is full; what is more is a rest. Behind
        the clock (catch-up goes in order) only what is of full lanes is: it has to wait anyhow.
        """
        pages = 0
        key: Key | None = rest.key
        while key is not None:
            if pages:
                rest = rest._replace(key=key)
                is_long = pages >= PAGES_AT_ONCE and not is_behind
                heavy = self._publisher.heavy if is_long else ()
                others, of_full = split(rest, self._publisher.full, heavy)
                if of_full and is_behind:
                    for other in reversed(others):
                        of_full += await self._pages(other, is_behind=True, fenced=fenced)
                    return of_full
                if of_full or is_long:
                    return others + of_full
            key = await self._page(rest, fenced=fenced)
            pages += 1
        return []

    async def _page(self, rest: Rest, *, fenced: bool) -> Key | None:
        if not self._leader.is_leader:
            raise LeadershipLost(self._leader.shard, self._leader.epoch)
        if rest.kind is Kind.FRESH:
            return await self._publisher.tasks(rest.window, rest.key, rest.part, fenced=fenced)
        is_again = rest.kind is Kind.AGAIN
        return await self._publisher.requeued(
            rest.window, rest.key, is_again=is_again, fenced=fenced
        )

    async def _read_on_until(self, end_s: float) -> None:
        """Read on in the time that a tick leaves (monotonic)."""
        while self._rests and self._leader.is_leader:
            wait_s = self._rests.wait_s(now_s := time.monotonic())
            if now_s + wait_s >= end_s:
                return
            await asyncio.sleep(wait_s)
            await self.read_on()

    async def read_on(self) -> None:
        """
        One page of the first rest. Its window was closed and fenced when it was first read, and
        nothing is written into such a one.
        """
        rest = self._rests.next
        began_s, lined_up = time.monotonic(), self._publisher.lined_up
        key = await self._page(rest, fenced=True)
        now_s = time.monotonic()
        self._rests.was_read(key, self._publisher.full, self._publisher.heavy, now_s)
        if rest.is_of_full and self._publisher.lined_up > lined_up:
            self._rests.pause(now_s - began_s, now_s)
        await self._advance()

    async def _advance(self) -> None:
        """Everything before the first rest was published."""
        from_ms = self._rests.from_ms
        current_ms = min(self._published_ms, self._published_ms if from_ms is None else from_ms - 1)
        if current_ms <= self.current_ms:
            return
        await store.advance(self._db, self._leader.shard, self._leader.epoch, current_ms)
        reached("due.advanced")
        self.current_ms = current_ms
        self._unfenced_ms = max(self._unfenced_ms, self._published_ms)
        self._moved(current_ms)

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
