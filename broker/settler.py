"""
Settles attempts in batches, then acknowledges their stream entries: first Postgres, then Redis.

A batch waits LINGER_S for company, because a statement costs as much as thirty rows, and nobody
waits for it: the callback's slot is free already. A broker that dies meanwhile makes these calls
again, as it does those in flight.

Whatever breaks off is done again with the same rows until it is done; the fences (status, revision,
attempt) make that safe. A batch refused for its data is halved, the last row settled with its texts
replaced. An acknowledgement that fails is not repeated: the reader reads its own pending entries
again, and what is settled then drops out at the claim.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace
from tenacity import AsyncRetrying, before_sleep_log, retry_if_exception, wait_random_exponential

from broker.near import Deliver, NearPublisher, left_to_nets
from wheel_timer import signal
from wheel_timer.database import Database
from wheel_timer.errors import DataRejected, EventCenterUnavailable, WheelTimerError
from wheel_timer.eventcenter import EventCenter
from wheel_timer.log import fields_of
from wheel_timer.store.settle import AGAIN, BATCH_ROWS_MAX, settle_again, settle_final, settle_noted
from wheel_timer.task import Ref, Result
from wheel_timer.wheel import home_of

LINGER_S: Final = 0.02
# Below this a batch tells of a quiet broker, and the next acknowledgement goes out at once.
BUSY_ROWS: Final = 8
FULL_ROWS: Final = 200
# Results waiting beyond which no more tasks are claimed.
BACKLOG_MAX: Final = 5_000
TEXT_REFUSED: Final = "the attempt's texts could not be stored"

logger = logging.getLogger(__name__)


class Queue(NamedTuple):
    """Results that are written by one call. shard: 0 where they may be of any."""

    kind: Literal["final", "noted", "again"]
    shard: int = 0


FINAL: Final = Queue("final")


def _queue_of(result: Result) -> Queue:
    if result.outcome in AGAIN:
        return Queue("again", home_of(result.task_id)[1])
    return Queue("noted", home_of(result.task_id)[1]) if result.is_noted else FINAL


class Settler:
    """
    acknowledged: called with the references whose entries are given up. reread: called when an
    acknowledgement failed, so that the pending entries are read again. deliver: takes what is to be
    called again soon, where the event center does not. latest_ms: Clock.latest_ms.
    """

    def __init__(
        self,
        *,
        db: Database,
        event_center: EventCenter,
        lookahead_ms: int,
        acknowledged: Callable[[Sequence[Ref]], None],
        reread: Callable[[], None],
        deliver: Deliver = left_to_nets,
        latest_ms: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._db = db
        self._latest_ms = latest_ms
        self._event_center = event_center
        self._lookahead_ms = lookahead_ms
        self._acknowledged = acknowledged
        self._reread = reread
        self._near = NearPublisher(event_center, deliver)
        self._queues: dict[Queue, deque[tuple[Result, Ref]]] = {}
        self._writers: dict[Queue, asyncio.Task[None]] = {}
        self._done: list[Ref] = []
        self._acknowledging: asyncio.Task[None] | None = None
        self._failing: set[Queue] = set()
        self.backlog = 0

    @property
    def is_failing(self) -> bool:
        """
        Whether results wait for Postgres to come back. A claim now could win against them: a call
        that was answered would be made again.
        """
        return bool(self._failing)

    def add(self, result: Result, ref: Ref) -> None:
        """Take over a result and the entry that it answers."""
        queue = _queue_of(result)
        waiting = self._queues.setdefault(queue, deque())
        waiting.append((result, ref))
        self.backlog += 1
        if queue not in self._writers:
            self._writers[queue] = asyncio.create_task(self._write(queue, waiting))

    def acknowledge(self, refs: Sequence[Ref]) -> None:
        """Give up entries that need no settling: copies, settled and cancelled tasks."""
        self._done.extend(refs)
        if self._done and self._acknowledging is None:
            self._acknowledging = asyncio.create_task(self._acknowledge())

    async def drain(self) -> None:
        """Return when everything taken over is settled and acknowledged."""
        while self._writers or self._acknowledging is not None:
            running = [*self._writers.values()]
            if self._acknowledging is not None:
                running.append(self._acknowledging)
            await asyncio.wait(running)

    async def _write(self, queue: Queue, waiting: deque[tuple[Result, Ref]]) -> None:
        while waiting:
            if len(waiting) < FULL_ROWS:
                await asyncio.sleep(LINGER_S)
            results, refs = _batch(waiting)
            try:
                await self._settle(queue, results)
            except Exception:
                # One batch must not end the writer; its leases end, and the sweep finds its tasks.
                logger.exception("%d results were not settled", len(results))
            self.backlog -= len(refs)
            signal.reached("delivery.settled")
            self.acknowledge(refs)
        del self._writers[queue]

    async def _settle(self, queue: Queue, results: list[Result]) -> None:
        """Settle one batch, halving it where Postgres refuses a value."""
        try:
            async for attempt in _until_done():
                with attempt:
                    await self._settle_once(queue, results)
        except DataRejected as error:
            if len(results) > 1:
                half = len(results) // 2
                await self._settle(queue, results[:half])
                await self._settle(queue, results[half:])
                return
            (result,) = results
            if result.error == TEXT_REFUSED:
                # Nothing of it is text any more; its lease ends and the sweep finds it again.
                logger.error("a task cannot be settled: %s", error, extra=fields_of(result))
                return
            logger.warning(
                "a task is settled without its texts: %s", error, extra=fields_of(result)
            )
            await self._settle(queue, [_without_texts(result)])

    async def _settle_once(self, queue: Queue, results: list[Result]) -> None:
        near: list[Ref] = []
        try:
            match queue.kind:
                case "final":
                    await settle_final(self._db, results)
                case "noted":
                    near = await settle_noted(
                        self._db, queue.shard, results, lookahead_ms=self._lookahead_ms
                    )
                case "again":
                    near = await settle_again(
                        self._db,
                        queue.shard,
                        results,
                        lookahead_ms=self._lookahead_ms,
                        latest_ms=self._latest_ms(),
                    )
        except DataRejected:
            raise
        except WheelTimerError:
            self._failing.add(queue)
            raise
        self._failing.discard(queue)
        if near:
            await self._near.publish(near)

    async def _acknowledge(self) -> None:
        rows_before = 0
        while self._done:
            if rows_before >= BUSY_ROWS and len(self._done) < FULL_ROWS:
                await asyncio.sleep(LINGER_S)
            refs, self._done = self._done, []
            rows_before = len(refs)
            try:
                await self._event_center.ack([ref for ref in refs if ref.entry_id])
                signal.reached("delivery.acknowledged")
            except EventCenterUnavailable as error:
                logger.debug("%d entries were not acknowledged: %s", len(refs), error)
                self._event_center.reach.failed(error)
                self._reread()
            self._acknowledged(refs)
        self._acknowledging = None


def _batch(waiting: deque[tuple[Result, Ref]]) -> tuple[list[Result], list[Ref]]:
    """
    The next rows to write, one a task: a success wins over any other result, of two others the
    later attempt's; the ones passed over are answered by it. A result of another revision waits
    for the next batch: it answers for another call.
    """
    results: dict[object, Result] = {}
    refs: list[Ref] = []
    while waiting and len(results) < BATCH_ROWS_MAX:
        result, ref = waiting[0]
        other = results.get(result.task_id)
        if other is not None and other.revision != result.revision:
            break
        waiting.popleft()
        refs.append(ref)
        if other is None or _wins(result, other):
            results[result.task_id] = result
    return list(results.values()), refs


def _wins(result: Result, other: Result) -> bool:
    if (result.outcome == "finished") != (other.outcome == "finished"):
        return result.outcome == "finished"
    return result.attempt > other.attempt


def _without_texts(result: Result) -> Result:
    return replace(result, error=TEXT_REFUSED, response_excerpt=None, remote_address=None)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, WheelTimerError) and not isinstance(error, DataRejected)


def _until_done() -> AsyncRetrying:
    """Again and again, up to 2 s apart: the rows must not be lost while Postgres is away."""
    return AsyncRetrying(
        retry=retry_if_exception(_may_pass),
        wait=wait_random_exponential(multiplier=0.05, max=2),
        before_sleep=before_sleep_log(logger, logging.WARNING),
    )
