"""
Group commit for changes of mind: cancels, patches, runs and replays that arrive together share one
database call, as submits do in broker/submitter.py.

    queue   bounded in changes and bytes; beyond it Overloaded, and so is who has waited in it for
            too long: broker/patience.py
    call    of at most CALL_ROWS_MAX changes, each task once: who wants the same task again waits
            for the next call, so that changes of one task happen in the order they came. One at a
            time; after a busy one the next waits LINGER_S for those whom it has answered
    lost    no reply means an unknown outcome: the same changes are sent again for RESEND_S_MAX;
            a run or replay only at the revision that its task had before, so that it acts once
    bad     a value that Postgres refuses fails the whole call: it is halved, down to the one
    after   the tasks come along for the answers, up to SHOWN_BYTES_MAX; the others are read once
            more, all in one statement. What became due is published beside the answers, and its
            requeue row is the net where that fails
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from broker import patience
from broker.near import Deliver, NearPublisher, left_to_nets
from broker.submission import ROW_BYTES
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
from wheel_timer.store.change import Change, Changed, Verdict, change
from wheel_timer.store.task import TaskRow, lookup, lookup_keys
from wheel_timer.task import Ref

CALL_ROWS_MAX: Final = 250
CALL_BYTES_MAX: Final = 4 * 1024 * 1024
# What the kernel holds of an answer, so that the fence is not held for a broker that reads no more.
SHOWN_BYTES_MAX: Final = 65_536
QUEUE_ROWS_MAX: Final = 20_000
QUEUE_BYTES_MAX: Final = 64 * 1024 * 1024
# Whom a busy call has answered asks again at once; without those, two half groups take turns.
BUSY_ROWS: Final = 8
LINGER_S: Final = 0.001
# Under the 5 s that a client of ours waits in all.
RESEND_S_MAX: Final = 4.0
RESEND_WAIT_S: Final = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)
START_TIME_MS_MAX: Final = 253_402_300_799_999
NOBODY: Final = UUID(int=0)

log = logging.getLogger(__name__)

Key = tuple[str, str]


class Wish(Struct, gc=False):
    """
    A change as somebody wants it. key: (biz_type, biz_id) of a task whose id is not known; the
    change's own task_id is NOBODY then. delay_ms: its to_time counts from the moment of writing.
    """

    change: Change
    key: Key | None = None
    delay_ms: int | None = None

    def cost_bytes(self) -> int:
        """What it holds in memory, about."""
        data = self.change.biz_data
        return ROW_BYTES + (len(data) if data else 0)


class Granted(Struct, gc=False):
    """What became of a wish, and the task as it stands after that; None where there is none."""

    verdict: Verdict
    task: TaskRow | None


_Answer = asyncio.Future[Granted]


class _Waiting(NamedTuple):
    """A wish in the queue. since_s: by the loop's clock."""

    wish: Wish
    answer: _Answer
    since_s: float


class Changer:
    """
    The one way of changes from the API to the tasks.

    lookahead_ms: the setting LOOKAHEAD. deliver: takes
    near tasks while the event center is away. `stop` at the end.
    """

    def __init__(
        self,
        *,
        db: Database,
        event_center: EventCenter,
        clock: Clock,
        lookahead_ms: int = 1000,
        deliver: Deliver = left_to_nets,
    ) -> None:
        self._db = db
        self._clock = clock
        self._lookahead_ms = lookahead_ms
        self._near = NearPublisher(event_center, deliver)
        self._queue: deque[_Waiting] = deque()
        self._queue_bytes = 0
        self._working: asyncio.Task[None] | None = None
        self._is_stopping = False

    async def change(self, wish: Wish) -> Granted:
        """
        Grant a wish; answered after its commit.

        Raises Overloaded, with nothing taken, where too much waits or the broker is stopping;
        InvalidTask where Postgres refuses a value, DatabaseUnavailable with an unknown outcome.
        """
        if self._is_stopping:
            raise Overloaded("this broker is stopping")
        size = wish.cost_bytes()
        if self._queue and (
            len(self._queue) >= QUEUE_ROWS_MAX or self._queue_bytes + size > QUEUE_BYTES_MAX
        ):
            raise Overloaded("more changes are waiting than the database takes")
        loop = asyncio.get_running_loop()
        answer: _Answer = loop.create_future()
        self._queue.append(_Waiting(wish, answer, loop.time()))
        self._queue_bytes += size
        self._begin()
        return await answer

    async def stop(self) -> None:
        """Take nothing new; return when all that was taken is answered and published."""
        self._is_stopping = True
        while self._working is not None:
            await asyncio.wait([self._working])
        await self._near.drain()

    def _begin(self) -> None:
        if self._queue and self._working is None:
            self._working = asyncio.create_task(self._work())
            self._working.add_done_callback(self._ended)

    def _ended(self, working: asyncio.Task[None]) -> None:
        self._working = None
        if not working.cancelled() and (error := working.exception()) is not None:
            log.error("a group of changes broke", exc_info=error)
        self._begin()

    async def _work(self) -> None:
        """Call after call, until nothing waits."""
        # At the end of this turn of the loop: what came in together goes together.
        await asyncio.sleep(0)
        while self._queue:
            group = self._take()
            await self._grant(group)
            if len(group) >= BUSY_ROWS:
                await asyncio.sleep(LINGER_S)

    def _take(self) -> list[_Waiting]:
        """The wishes of the next call, in their order; a task that is wanted twice waits."""
        group: list[_Waiting] = []
        again: list[_Waiting] = []
        wanted: set[UUID | Key] = set()
        size = 0
        now_s = asyncio.get_running_loop().time()
        while self._queue and len(group) < CALL_ROWS_MAX and size < CALL_BYTES_MAX:
            waiting = self._queue.popleft()
            wish, answer, since_s = waiting
            self._queue_bytes -= wish.cost_bytes()
            target = wish.key or wish.change.task_id
            if answer.done():
                continue  # its client has gone
            if patience.is_over(since_s, now_s):
                answer.set_exception(patience.refusal())
            elif target in wanted:
                again.append(waiting)
            else:
                wanted.add(target)
                size += wish.cost_bytes()
                group.append(waiting)
        self._put_back(again)
        return group

    def _put_back(self, again: Sequence[_Waiting]) -> None:
        """These come first in the next call, in their order."""
        self._queue.extendleft(reversed(again))
        self._queue_bytes += sum(waiting.wish.cost_bytes() for waiting in again)

    async def _grant(self, group: Sequence[_Waiting]) -> None:
        """Grant the wishes of one group; each gets its answer, or an error."""
        try:
            found = await self._resolve(group)
            changes = [change for _, change in found]
            before = await self._revisions(changes)
            began_s = asyncio.get_running_loop().time()
            outcomes = await self._store(changes, before, began_s)
            signal.reached("change.committed")
            tasks = await self._tasks(changes, outcomes)
            self._publish(outcomes, changes, tasks)
            _count(outcomes, changes, tasks)
            for (answer, change), outcome in zip(found, outcomes, strict=True):
                if answer.done():
                    continue
                if isinstance(outcome, WheelTimerError):
                    answer.set_exception(outcome)
                else:
                    answer.set_result(Granted(outcome.verdict, tasks.get(change.task_id)))
        except WheelTimerError as error:
            _fail(group, error)
        except BaseException:
            # Nobody may wait for ever for a call that broke.
            _fail(group, DatabaseUnavailable("the change broke off"))
            raise

    async def _tasks(
        self, changes: Sequence[Change], outcomes: Sequence[Changed | WheelTimerError]
    ) -> dict[UUID, TaskRow]:
        """The tasks as they stand after their changes, as far as there are any."""
        tasks: dict[UUID, TaskRow] = {}
        unseen: list[UUID] = []
        for one, outcome in zip(changes, outcomes, strict=True):
            if isinstance(outcome, WheelTimerError):
                continue
            if outcome.task is not None:
                tasks[one.task_id] = outcome.task
            elif outcome.verdict != "missing":
                unseen.append(one.task_id)
        return tasks | await lookup(self._db, unseen) if unseen else tasks

    async def _resolve(self, group: Sequence[_Waiting]) -> list[tuple[_Answer, Change]]:
        """
        The changes to be made: ids in place of keys, moments in place of delays. Of a key that
        nobody holds the wish is answered here; a task that is wanted by both of its names waits.
        """
        keys = [waiting.wish.key for waiting in group if waiting.wish.key is not None]
        holders = await lookup_keys(self._db, keys) if keys else {}
        found: list[tuple[_Answer, Change]] = []
        wanted: set[UUID] = set()
        twice: list[_Waiting] = []
        for waiting in group:
            wish, answer, _ = waiting
            made = wish.change
            if wish.key is not None:
                holder = holders.get(wish.key)
                if holder is None:
                    if not answer.done():
                        answer.set_result(Granted("missing", None))
                    continue
                made = replace(made, task_id=holder)
            if made.task_id in wanted:
                twice.append(waiting)
                continue
            wanted.add(made.task_id)
            if wish.delay_ms is not None:
                moment_ms = await self._now_ms() + wish.delay_ms
                made = replace(made, to_time_ms=min(moment_ms, START_TIME_MS_MAX))
            found.append((answer, made))
        self._put_back(twice)
        return found

    async def _now_ms(self) -> int:
        """The database's clock, rounded up: a delay is never cut short."""
        if not self._clock.is_known():
            await self._clock.measure()
        return math.ceil(self._clock.now_ms())

    async def _revisions(self, changes: Sequence[Change]) -> dict[UUID, int]:
        """
        What revisions the tasks have that a second run or replay would start once more: it may meet
        one that was delivered after the first.
        """
        ids = [one.task_id for one in changes if one.verb in ("run", "replay")]
        rows = await lookup(self._db, ids) if ids else {}
        return {task_id: row.revision for task_id, row in rows.items()}

    async def _store(
        self,
        changes: Sequence[Change],
        before: Mapping[UUID, int],
        began_s: float,
        *,
        was_lost: bool = False,
    ) -> Sequence[Changed | WheelTimerError]:
        """What became of each; never raises an error of ours. was_lost: they were sent before."""
        if not changes:
            return []
        for wait_s in (*RESEND_WAIT_S, *[1.0] * 60):
            again = changes
            if was_lost and before:
                again = [
                    replace(one, revision=before.get(one.task_id, one.revision)) for one in changes
                ]
            try:
                outcomes = await change(
                    self._db,
                    again,
                    lookahead_ms=self._lookahead_ms,
                    shown_bytes=SHOWN_BYTES_MAX,
                )
                return [
                    _done(outcome) if was_lost and one.task_id in before else outcome
                    for one, outcome in zip(changes, outcomes, strict=True)
                ]
            except DataRejected as error:
                if len(changes) == 1:
                    log.warning("the database refused a change: %s", error)
                    refused = FieldError("the database refuses a value of this change", "#")
                    return [InvalidTask([refused])]
                half = len(changes) // 2
                return [
                    *await self._store(changes[:half], before, began_s, was_lost=was_lost),
                    *await self._store(changes[half:], before, began_s, was_lost=was_lost),
                ]
            except (DatabaseUnavailable, FenceBusy) as error:
                was_lost = was_lost or isinstance(error, DatabaseUnavailable)
                spent_s = asyncio.get_running_loop().time() - began_s
                if spent_s + wait_s > RESEND_S_MAX:
                    log.warning("gave up on a group of %d changes: %s", len(changes), error)
                    return [DatabaseUnavailable(str(error))] * len(changes)
                await asyncio.sleep(wait_s)
            except WheelTimerError as error:
                return [error] * len(changes)
        raise AssertionError("RESEND_S_MAX ends the loop")

    def _publish(
        self,
        outcomes: Sequence[Changed | WheelTimerError],
        changes: Sequence[Change],
        tasks: Mapping[UUID, TaskRow],
    ) -> None:
        """Publish what these changes made due."""
        published_ms = int(self._clock.now_ms())
        near = []
        for one, outcome in zip(changes, outcomes, strict=True):
            task = tasks.get(one.task_id)
            if isinstance(outcome, Changed) and outcome.is_near and task is not None:
                start_ms = task.start_time
                near.append(Ref(task.task_id, start_ms, start_ms, published_ms, task.biz_type))
        if near:
            self._near.publish_soon(near)


def _count(
    outcomes: Sequence[Changed | WheelTimerError],
    changes: Sequence[Change],
    tasks: Mapping[UUID, TaskRow],
) -> None:
    """Count the tasks that were cancelled by this."""
    cancelled = Counter(
        tasks[one.task_id].biz_type
        for one, outcome in zip(changes, outcomes, strict=True)
        if one.verb == "cancel"
        and isinstance(outcome, Changed)
        and outcome.verdict == "done"
        and one.task_id in tasks
    )
    for biz_type, count in cancelled.items():
        metrics.tasks_settled(biz_type, "cancelled", count)


def _done(outcome: Changed) -> Changed:
    """
    Of a change that was sent again at the revision from before: another one now means that the
    first was done, or that somebody else's came after it. Its net publishes what it made due.
    """
    if outcome.verdict != "changed":
        return outcome
    return replace(outcome, verdict="done", is_near=False)


def _fail(group: Sequence[_Waiting], error: WheelTimerError) -> None:
    """Give the error to each wish that has no answer yet."""
    for _, answer, _ in group:
        if not answer.done():
            answer.set_exception(error)
