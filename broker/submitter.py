"""
Group commit: submits that arrive together share one database call.

While a call is under way, whatever arrives waits and goes into the next one. So one submit alone
costs one round trip at once, and sixty-four connections cost few: the busier it is, the larger the
groups. An answer is given only after the commit.

    queue   jobs in turns, bounded, beyond that Overloaded: broker/grouping.py
    call    of at most 1,000 rows, all on one shard
    lost    no reply means an unknown outcome: the same rows with the same ids are sent again
            (own id already there = accepted) for RESEND_S_MAX, then DatabaseUnavailable
    bad     a value that Postgres refuses fails the whole call: it is halved, down to the one row
    taken   a biz_id that is taken is answered with the task that holds it; or, where the submit may
            replace that one, handed to the replacer, beside the calls
    near    what is due within the look-ahead is published after the commit, beside the answer;
            the requeue row that came with it is the net where that fails
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Final
from uuid import UUID

from broker.grouping import Grouping, Origin
from broker.near import Deliver, NearPublisher, left_to_nets
from broker.replacer import Replacer
from broker.submission import Accepted, Duplicate, Outcome, Submission
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
    QuotaUsedUp,
    WheelTimerError,
)
from wheel_timer.eventcenter import EventCenter
from wheel_timer.store.submit import Submitted, submit
from wheel_timer.store.task import lookup
from wheel_timer.task import NewTask, Ref
from wheel_timer.wheel import new_task_ids

# Submits that wait to replace an existing task.
REPLACING_MAX: Final = 10_000
REPLACING: Final = frozenset({"replace", "earliest", "latest"})
# Under the 5 s that a client of ours waits in all.
RESEND_S_MAX: Final = 4.0
RESEND_WAIT_S: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
# A key's task can be reaped between "it exists" and our look at it; then the key is free again.
REAPED_TRIES: Final = 3
START_TIME_MS_MAX: Final = 253_402_300_799_999

log = logging.getLogger(__name__)


class Submitter:
    """
    The one way of new tasks from the API to the wheel.

    shards: new tasks are dealt to them call by call. lookahead_ms: the setting LOOKAHEAD.
    max_pending: answers with the biz_types that have one, and what it is now. deliver: takes near
    tasks while the event center is away. Made in the loop that it serves. `stop` at the end.
    """

    def __init__(
        self,
        *,
        db: Database,
        event_center: EventCenter,
        clock: Clock,
        shards: int = 1,
        lookahead_ms: int = 1000,
        max_pending: Callable[[], Mapping[str, int]] = dict,
        deliver: Deliver = left_to_nets,
    ) -> None:
        self._db = db
        self._max_pending = max_pending
        self._clock = clock
        self._lookahead_ms = lookahead_ms
        self._shards = shards
        self._turn = count(random.randrange(shards))
        self._grouping = Grouping(self._call)
        self.is_stopping = False
        self._near = NearPublisher(event_center, deliver)
        self._replacer = Replacer(db=db, clock=clock, near=self._near, lookahead_ms=lookahead_ms)
        self._replacing: set[asyncio.Task[None]] = set()

    async def submit(self, submissions: Sequence[Submission]) -> list[Outcome]:
        """
        Store tasks; the outcomes are in their order, after the commit of each.

        Not atomic: one may fail where the next is stored. Raises Overloaded, with nothing taken,
        where the queue has no room for all of them or the broker is stopping.
        """
        if not submissions:
            return []
        if self.is_stopping:
            raise Overloaded("this broker is stopping")
        size = sum([submission.cost_bytes() for submission in submissions])
        if (self._grouping.rows or self._replacing) and (
            not self._grouping.has_room(len(submissions), size)
            or len(self._replacing) > REPLACING_MAX
        ):
            raise Overloaded("more submits are waiting than the database takes")
        job = self._grouping.add(submissions, size)
        await job.done
        return [outcome for outcome in job.outcomes if outcome is not None]

    def publish_soon(self, near: Sequence[Ref]) -> None:
        """Publish near tasks that somebody else has written; their nets are behind them."""
        self._near.publish_soon(near)

    async def stop(self) -> None:
        """Take nothing new; return when all that was taken is answered and published."""
        self.is_stopping = True
        await self._grouping.drain()
        if self._replacing:
            await asyncio.wait(self._replacing)
        await self._near.drain()

    async def _call(self, origins: list[Origin]) -> None:
        """Store the rows and settle each with its outcome."""
        try:
            for _ in range(REAPED_TRIES):
                origins = await self._write(origins)
                if not origins:
                    return
            _settle_all(origins, _reaped())
        except WheelTimerError as error:
            _settle_all(origins, error)
        except BaseException:
            # Nobody may wait for ever for a call that broke.
            _settle_all(origins, DatabaseUnavailable("the submit broke off"))
            raise

    async def _write(self, origins: list[Origin]) -> list[Origin]:
        """One round: returns the rows whose key's holder vanished meanwhile, to be tried again."""
        shard = next(self._turn) % self._shards
        tasks = await self._new_tasks(origins, shard)
        answers = await self._store(shard, tasks, asyncio.get_running_loop().time())
        signal.reached("submit.committed")
        accepted: Counter[str] = Counter()
        near: list[Ref] = []
        held: list[tuple[Origin, UUID]] = []
        published_ms = int(self._clock.now_ms())
        for origin, task, answer in zip(origins, tasks, answers, strict=True):
            if isinstance(answer, WheelTimerError):
                origin[0].settle(origin[1], answer)
            elif answer.refused:
                origin[0].settle(origin[1], QuotaUsedUp(task.biz_type))
            elif answer.existing is not None:
                if origin[0].submissions[origin[1]].on_duplicate in REPLACING:
                    replacing = asyncio.create_task(self._replace(origin, task, answer.existing))
                    self._replacing.add(replacing)
                    replacing.add_done_callback(self._replacing.discard)
                else:
                    held.append((origin, answer.existing))
            else:
                accepted[task.biz_type] += 1
                if answer.near:
                    start = task.start_time_ms
                    near.append(Ref(task.task_id, start, start, published_ms, task.biz_type))
                origin[0].settle(origin[1], Accepted(task.task_id, task.start_time_ms))
        if near:
            self._near.publish_soon(near)
        for biz_type, rows in accepted.items():
            metrics.tasks_submitted(biz_type, rows)
        return await self._look_at_holders(held)

    async def _replace(self, origin: Origin, task: NewTask, existing: UUID) -> None:
        outcome: Outcome | None = None
        try:
            submission = origin[0].submissions[origin[1]]
            outcome = await self._replacer.replace(submission, task, existing)
        finally:
            # Nobody may wait for ever for one that broke.
            origin[0].settle(origin[1], _reaped() if outcome is None else outcome)

    async def _new_tasks(self, origins: list[Origin], shard: int) -> list[NewTask]:
        """Give each submission its moment and its id. Raises DatabaseUnavailable."""
        now_ms: int | None = None
        submissions = [job.submissions[index] for job, index in origins]
        moments = []
        for wanted in submissions:
            start_time_ms = wanted.start_time_ms
            if start_time_ms is None:
                if now_ms is None:
                    now_ms = await self._now_ms()
                start_time_ms = now_ms + wanted.delay_ms
            if wanted.spread_ms:
                start_time_ms += random.randrange(wanted.spread_ms)
            moments.append(min(start_time_ms, START_TIME_MS_MAX))
        return [
            NewTask(
                task_id,
                start_time_ms,
                wanted.biz_type,
                wanted.biz_id,
                wanted.biz_data,
                wanted.content_type,
                wanted.callback,
                wanted.retry,
                wanted.max_age_ms,
                wanted.traceparent,
            )
            for task_id, start_time_ms, wanted in zip(
                new_task_ids(moments, shard), moments, submissions, strict=True
            )
        ]

    async def _now_ms(self) -> int:
        """The database's clock, rounded up: a delay is never cut short."""
        if self._clock.is_test or not self._clock.is_known():
            await self._clock.measure()
        return math.ceil(self._clock.now_ms())

    async def _store(
        self, shard: int, tasks: list[NewTask], began_s: float
    ) -> Sequence[Submitted | WheelTimerError]:
        """What became of each row; never raises an error of ours."""
        for wait_s in (*RESEND_WAIT_S, *[1.0] * 60):
            try:
                limits = self._max_pending()
                return await submit(
                    self._db, shard, tasks, lookahead_ms=self._lookahead_ms, max_pending=limits
                )
            except DataRejected as error:
                if len(tasks) == 1:
                    log.warning("the database refused a task: %s", error)
                    refused = FieldError("the database refuses a value of this task", "#")
                    return [InvalidTask([refused])]
                half = len(tasks) // 2
                return [
                    *await self._store(shard, tasks[:half], began_s),
                    *await self._store(shard, tasks[half:], began_s),
                ]
            except (DatabaseUnavailable, FenceBusy) as error:
                spent_s = asyncio.get_running_loop().time() - began_s
                if spent_s + wait_s > RESEND_S_MAX:
                    log.warning("gave up on a group of %d submits: %s", len(tasks), error)
                    return [DatabaseUnavailable(str(error))] * len(tasks)
                await asyncio.sleep(wait_s)
            except WheelTimerError as error:
                return [error] * len(tasks)
        raise AssertionError("RESEND_S_MAX ends the loop")

    async def _look_at_holders(self, held: list[tuple[Origin, UUID]]) -> list[Origin]:
        """Settle duplicates with the task that holds the key; returns those where it is gone."""
        if not held:
            return []
        try:
            tasks = await lookup(self._db, [task_id for _, task_id in held])
        except WheelTimerError as error:
            _settle_all([origin for origin, _ in held], error)
            return []
        gone = []
        for origin, task_id in held:
            task = tasks.get(task_id)
            if task is None:
                gone.append(origin)
            else:
                origin[0].settle(origin[1], Duplicate(task))
        return gone


def _reaped() -> Overloaded:
    return Overloaded("the task that held this biz_id is being removed")


def _settle_all(origins: Sequence[Origin], error: WheelTimerError) -> None:
    """Give the error to each row that has no outcome yet."""
    for job, index in origins:
        if job.outcomes[index] is None:
            job.settle(index, error)
