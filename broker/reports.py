"""
Group commit for what workers report: finish, release, bury, touch. Reports that arrive together
share one database call, as changes of mind do in broker/changer.py.

    queue   bounded; who has waited in it for too long is refused: broker/patience.py
    call    of at most CALL_ROWS_MAX reports, each task once, so that a worker's reports of one task
            are acted on in the order they came. One call at a time; after a busy one the next waits
            LINGER_S for those whom it has answered
    lost    no reply means an unknown outcome: the same reports are sent again, and what had been
            done is `repeated` then
    bad     a value that Postgres refuses fails the whole call: its reports go one by one
    after   each task is read for the answers, all in one statement. What is due again is published
            beside the answers, and its requeue row is the net where that fails
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from broker import patience
from broker.near import Deliver, NearPublisher, left_to_nets
from broker.notice import is_notice, notice_of
from broker.registry import Registry
from wheel_timer import metrics, signal
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.errors import (
    DatabaseUnavailable,
    DataRejected,
    FenceBusy,
    FieldError,
    InvalidTask,
    Overloaded,
    WheelTimerError,
)
from wheel_timer.eventcenter import EventCenter
from wheel_timer.store.pull import BATCH_ROWS_MAX, Report, Verdict, report
from wheel_timer.store.task import TaskRow, lookup
from wheel_timer.task import Claim, NewTask, Result, Status
from wheel_timer.wheel import home_of

CALL_ROWS_MAX: Final = BATCH_ROWS_MAX
QUEUE_ROWS_MAX: Final = 20_000
BUSY_ROWS: Final = 8
LINGER_S: Final = 0.001
RESEND_WAIT_S: Final = (0.05, 0.2, 0.8)
SETTLED: Final = {Status.FINISHED: "finished", Status.FAILED: "failed"}

log = logging.getLogger(__name__)


class Heard(NamedTuple):
    """What became of it, and the task as it stands after that; None where there is none to see."""

    verdict: Verdict
    task: TaskRow | None


class _Waiting(NamedTuple):
    """A report in the queue. since_s: by the loop's clock."""

    said: Report
    answer: asyncio.Future[Heard]
    since_s: float


class Reports:
    """
    The one way of workers' reports to the tasks. reported: hears of a biz_type of which a
    reservation was given up. deliver: takes near tasks while the event center is away.
    """

    def __init__(
        self,
        *,
        db: Database,
        event_center: EventCenter,
        clock: Clock,
        registry: Registry,
        broker_name: str,
        lookahead_ms: int = 1000,
        deliver: Deliver = left_to_nets,
        reported: Callable[[str], None] = lambda _biz_type: None,
    ) -> None:
        self._db = db
        self._clock = clock
        self._registry = registry
        self._broker_name = broker_name
        self._lookahead_ms = lookahead_ms
        self._reported = reported
        self._near = NearPublisher(event_center, deliver)
        self._queue: deque[_Waiting] = deque()
        self._working: asyncio.Task[None] | None = None

    async def report(self, said: Report) -> Heard:
        """
        Do what a worker says, and what its biz_type adds to that; answered after its commit.

        Raises Overloaded, with nothing done, where too much waits or it waits for too long
        (broker/patience.py), InvalidTask where Postgres refuses a value,
        DatabaseUnavailable with an unknown outcome: the same report may be made again.
        """
        if len(self._queue) >= QUEUE_ROWS_MAX:
            raise Overloaded("more reports are waiting than the database takes")
        loop = asyncio.get_running_loop()
        heard: asyncio.Future[Heard] = loop.create_future()
        self._queue.append(_Waiting(said, heard, loop.time()))
        if self._working is None:
            self._working = asyncio.create_task(self._work())
        return await heard

    async def stop(self) -> None:
        """Return when all that was taken is answered and published."""
        while self._working is not None:
            await asyncio.wait([self._working])
        await self._near.drain()

    async def _work(self) -> None:
        # At the end of this turn of the loop: what came in together goes together.
        await asyncio.sleep(0)
        while self._queue:
            group = self._take()
            try:
                await self._hear(group)
            except Exception as error:
                if not isinstance(error, WheelTimerError):
                    log.exception("%d reports were not acted on", len(group))
                for _, answer, _ in group:
                    if not answer.done():
                        answer.set_exception(error)
            if len(group) >= BUSY_ROWS:
                await asyncio.sleep(LINGER_S)
        self._working = None

    def _take(self) -> list[_Waiting]:
        group: dict[UUID, _Waiting] = {}
        later: list[_Waiting] = []
        now_s = asyncio.get_running_loop().time()
        while self._queue and len(group) < CALL_ROWS_MAX:
            waiting = self._queue.popleft()
            if patience.is_over(waiting.since_s, now_s):
                if not waiting.answer.done():
                    waiting.answer.set_exception(patience.refusal())
            elif waiting.said.task_id in group:
                later.append(waiting)
            else:
                group[waiting.said.task_id] = waiting
        self._queue.extendleft(reversed(later))
        return list(group.values())

    async def _hear(self, group: Sequence[_Waiting]) -> None:
        """Act on one group and answer it. Raises what all that is not answered is to hear."""
        by_shard: dict[int, list[_Waiting]] = defaultdict(list)
        for waiting in group:
            by_shard[home_of(waiting.said.task_id)[1]].append(waiting)
        await self._add_notices([said for said, _, _ in group])
        verdicts: dict[UUID, Verdict] = {}
        for shard, of_shard in by_shard.items():
            try:
                verdicts |= await self._act(shard, [said for said, _, _ in of_shard])
            except DataRejected:
                for said, answer, _ in of_shard:
                    verdicts |= await self._act_alone(shard, said, answer)
        signal.reached("pull.reported")
        now = await lookup(self._db, verdicts)
        for said, answer, _ in group:
            if said.task_id not in verdicts:
                continue
            verdict, row = verdicts[said.task_id], now.get(said.task_id)
            if verdict == "done" and said.verb != "touch":
                self._reported(said.biz_type)
                if row is not None and row.status in SETTLED:
                    metrics.tasks_settled(said.biz_type, SETTLED[row.status], 1)
            if row is not None and row.biz_type != said.biz_type:
                row = None  # no claim of ours says so
            if not answer.done():
                answer.set_result(Heard(verdict, row))

    async def _act_alone(
        self, shard: int, one: Report, answer: asyncio.Future[Heard]
    ) -> dict[UUID, Verdict]:
        try:
            return await self._act(shard, [one])
        except DataRejected:
            if not answer.done():
                detail = "Postgres does not take this text"
                answer.set_exception(InvalidTask([FieldError(detail, "#/reason")]))
            return {}

    async def _act(self, shard: int, rows: Sequence[Report]) -> dict[UUID, Verdict]:
        """One call, sent again while its outcome is unknown."""
        for wait_s in (*RESEND_WAIT_S, None):
            try:
                reported = await report(
                    self._db,
                    shard,
                    rows,
                    broker=self._broker_name,
                    lookahead_ms=self._lookahead_ms,
                    latest_ms=self._clock.latest_ms(),
                )
            except (DatabaseUnavailable, FenceBusy):
                if wait_s is None:
                    raise
                await asyncio.sleep(wait_s)
            else:
                break
        if reported.near:
            self._near.publish_soon(reported.near)
        return reported.verdicts

    async def _add_notices(self, group: Sequence[Report]) -> None:
        """What the end of a task brings beside it, as its biz_type says now."""
        told: list[tuple[Report, str]] = []
        if any(self._registry.get(said.biz_type) is None for said in group):
            await self._registry.refresh()
        for said in group:
            biz = self._registry.get(said.biz_type)
            if biz is None:
                # Deleted; what it had is purged, so this one may be.
                continue
            said.config_version = biz.version
            status = {"finish": "finished", "bury": "failed"}.get(said.verb, "cancelled")
            said.retention_ms = 1000 * getattr(biz.retention, status)
            said.erase = biz.erase_data
            if said.verb == "bury" and biz.on_failed is not None:
                told.append((said, biz.on_failed))
        if not told:
            return
        rows = await lookup(self._db, [said.task_id for said, _ in told])
        for said, biz_type in told:
            row = rows.get(said.task_id)
            if row is not None and self._registry.get(biz_type) is not None:
                said.notice = self._notice(said, row, biz_type)

    def _notice(self, said: Report, row: TaskRow, biz_type: str) -> NewTask | None:
        claim = _claim_of(row)
        if is_notice(claim):
            return None
        result = Result(
            row.task_id,
            row.start_time,
            row.biz_type,
            row.attempts,
            row.revision,
            "failed",
            error=said.reason,
            started_ms=row.started,
            erase=said.erase,
        )
        return notice_of(claim, result, biz_type, self._clock.now_ms())


def _claim_of(row: TaskRow) -> Claim:
    """The claim by which a task is held."""
    return Claim(
        row.task_id,
        row.start_time,
        row.biz_type,
        row.biz_id,
        row.attempts,
        row.failures,
        row.revision,
        row.life,
        row.stop,
        row.lease_until or 0,
        max(row.create_time, row.renew_time or 0),
        row.first_attempt_time or 0,
        row.biz_data,
        row.content_type,
        row.callback,
        row.retry,
        row.max_age,
        row.schedule_id,
        row.traceparent,
        was_lost=False,
    )
