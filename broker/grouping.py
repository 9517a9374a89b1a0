"""
Which submits go together into a call of the group commit, and when it begins.

    queue   jobs in turns: each gives a slice to a call, so a batch of 10,000 delays nobody by more
            than a slice; bounded in rows and bytes. One that has waited for too long before its
            first slice is refused: broker/patience.py
    call    of at most 1,000 rows and CALL_BYTES_MAX. One at a time; a second beside it only for
            SECOND_ROWS_MIN waiting rows, or when the first takes SLOW_S. After a busy one the next
            waits LINGER_S for those whom it has answered
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from broker import patience
from broker.submission import Outcome, Submission
from wheel_timer.store.submit import BATCH_ROWS_MAX

CALLS_MAX: Final = 2
# Two calls of half the size cost more than one, so a second one is for large groups only; a batch
# fills two calls by itself.
SECOND_ROWS_MIN: Final = 250
SLOW_S: Final = 0.05
# Whom a busy call has answered submits again at once. Going without those makes two half groups
# take turns: at 64 connections 12-20 rows a call, 40-55 with them, and a third less of all CPU.
BUSY_ROWS: Final = 8
LINGER_S: Final = 0.001
CALL_BYTES_MAX: Final = 4 * 1024 * 1024
SLICE_ROWS: Final = 250
QUEUE_ROWS_MAX: Final = 50_000
QUEUE_BYTES_MAX: Final = 64 * 1024 * 1024

log = logging.getLogger(__name__)


class Job:
    """
    The submissions of one request on their way; done when each has its outcome. size: their bytes.
    since_s: when they came, by the loop's clock.
    """

    __slots__ = ("done", "open", "outcomes", "since_s", "size", "submissions", "taken")

    def __init__(
        self, submissions: Sequence[Submission], size: int, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.submissions = submissions
        self.size = size
        self.since_s = loop.time()
        self.outcomes: list[Outcome | None] = [None] * len(submissions)
        self.taken = 0
        self.open = len(submissions)
        self.done: asyncio.Future[None] = loop.create_future()

    def settle(self, index: int, outcome: Outcome) -> None:
        self.outcomes[index] = outcome
        self.open -= 1
        if self.open == 0 and not self.done.done():
            self.done.set_result(None)


# Where a row of a call came from: its job and its place there.
Origin = tuple[Job, int]


class Grouping:
    """
    The queue before the calls. commit: one call, with its rows; it settles each of them.

    rows: how many wait. Made in the loop that it serves.
    """

    def __init__(self, commit: Callable[[list[Origin]], Coroutine[Any, Any, None]]) -> None:
        self._commit = commit
        self._queue: deque[Job] = deque()
        self.rows = 0
        self._bytes = 0
        self._calls: set[asyncio.Task[None]] = set()
        self._group_rows = 0
        self._pump_now: asyncio.Handle | None = None
        self._pump_later: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._idle.set()

    def has_room(self, rows: int, size: int) -> bool:
        """Whether so many rows, of so many bytes, may wait beside those that do."""
        return self.rows + rows <= QUEUE_ROWS_MAX and self._bytes + size <= QUEUE_BYTES_MAX

    def add(self, submissions: Sequence[Submission], size: int) -> Job:
        """Queue what one request brought; its job is done when each has its outcome."""
        job = Job(submissions, size, asyncio.get_running_loop())
        self._refuse_old(job.since_s)
        self._queue.append(job)
        self.rows += len(submissions)
        self._bytes += size
        self._idle.clear()
        self._pump_soon()
        return job

    async def drain(self) -> None:
        """Return when nothing waits and no call is under way."""
        await self._idle.wait()

    def _pump_soon(self) -> None:
        loop = asyncio.get_running_loop()
        room_for_second = len(self._calls) < CALLS_MAX and self.rows >= SECOND_ROWS_MIN
        if not self._calls or room_for_second:
            if self._pump_now is None:
                # At the end of this turn of the loop: what came in together goes together.
                self._pump_now = loop.call_soon(self._pump)
        elif self._pump_later is None and len(self._calls) < CALLS_MAX:
            self._pump_later = loop.call_later(SLOW_S, self._pump)

    def _pump(self) -> None:
        """Begin a call with what waits; there is room for it."""
        self._pump_now = None
        self._cancel_later()
        if self._queue and len(self._calls) < CALLS_MAX and (origins := self._take()):
            self._group_rows = len(origins)
            call = asyncio.create_task(self._commit(origins))
            self._calls.add(call)
            call.add_done_callback(self._ended)
        if self._queue:
            self._pump_soon()
        elif not self._calls:
            self._idle.set()

    def _cancel_later(self) -> None:
        if self._pump_later is not None:
            self._pump_later.cancel()
            self._pump_later = None

    def _ended(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        if not call.cancelled() and (error := call.exception()) is not None:
            log.error("a group commit broke", exc_info=error)
        if self._queue:
            if self._calls or self._group_rows < BUSY_ROWS or self.rows >= SECOND_ROWS_MIN:
                self._pump_soon()
            elif self._pump_now is None:
                self._pump_now = asyncio.get_running_loop().call_later(LINGER_S, self._pump)
        elif not self._calls:
            self._cancel_later()
            self._idle.set()

    def _refuse_old(self, now_s: float) -> None:
        """Those at the head that have waited for too long, and of which nothing is taken yet."""
        while self._queue:
            job = self._queue[0]
            if job.taken or not patience.is_over(job.since_s, now_s):
                return
            self._queue.popleft()
            self.rows -= len(job.submissions)
            self._bytes -= job.size
            for index in range(len(job.submissions)):
                job.settle(index, patience.refusal())

    def _take(self) -> list[Origin]:
        """The rows of the next call: a slice of each job in turn."""
        self._refuse_old(asyncio.get_running_loop().time())
        origins: list[Origin] = []
        size = 0
        while self._queue and len(origins) < BATCH_ROWS_MAX:
            job = self._queue[0]
            first = job.taken
            room = min(SLICE_ROWS, BATCH_ROWS_MAX - len(origins))
            for index in range(first, min(first + room, len(job.submissions))):
                cost = job.submissions[index].cost_bytes()
                if origins and size + cost > CALL_BYTES_MAX:
                    break
                size += cost
                origins.append((job, index))
                job.taken += 1
            if job.taken == len(job.submissions):
                self._queue.popleft()
            elif job.taken == first:
                break
            else:
                self._queue.rotate(-1)
        self.rows -= len(origins)
        self._bytes -= size
        return origins
