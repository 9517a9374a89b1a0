"""
Reserves references for the workers of pull lanes, in batches, and sorts out what came of them.

What is reserved is the worker's: its stream entry is given up at once, for the requeue row at the
lease's end brings the task back if nothing else does. So does a reply of Postgres that was lost,
and an answer that the worker never read.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from broker.lane import Lane
from broker.occurrences import Occurrences
from broker.outcome import Outcome, before_call
from broker.pull_lane import Dealt, PullLane, Worker
from broker.settler import BACKLOG_MAX, Settler
from broker.timekeeper import Batch
from wheel_timer import metrics, signal
from wheel_timer.backoff import reconnect_delay_s
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.errors import WheelTimerError
from wheel_timer.store.claim import Claimed
from wheel_timer.store.pull import reserve
from wheel_timer.task import Claim, Ref

# A lease is as long as its worker wants it: a claim that it can still do something with.
NO_CALL_MS: Final = -1_000
# As many are reserved as may be: what is given up at another broker is not heard of here.
SATURATED_S: Final = 0.1

logger = logging.getLogger(__name__)


class Reserving:
    """
    settle: what becomes of a task that no worker gets (stopped, expired, its failures used up,
    passed over by its schedule).
    ended: called when a call is over, with the lanes it was for; resumed: when calls are possible
    again after a failure; touched: with a lane that may make reservations again.
    """

    def __init__(
        self,
        *,
        db: Database,
        clock: Clock,
        settler: Settler,
        settle: Callable[[Lane, Claim, Ref, Outcome], None],
        ended: Callable[[Iterable[Lane]], None],
        resumed: Callable[[], None],
        touched: Callable[[Lane], None],
    ) -> None:
        self._db = db
        self._clock = clock
        self._settler = settler
        self._occurrences = Occurrences(db)
        self._settle = settle
        self._ended = ended
        self._resumed = resumed
        self._touched = touched
        self._calls: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._is_held = False
        self._is_stopping = False

    def may_reserve(self) -> bool:
        """Whether Postgres answers, the clock is known, results get away."""
        return (
            not self._is_held
            and self._clock.is_known()
            and not self._settler.is_failing
            and self._settler.backlog < BACKLOG_MAX
        )

    def relieve(self, lane: PullLane) -> None:
        """There may be room for a reservation: one was given up, or it is time to see."""
        if lane.is_saturated:
            lane.is_saturated = False
            self._touched(lane)

    def begin(self, batch: Batch) -> None:
        """Begin a call, for workers of one lane or of several."""
        by_lane: dict[PullLane, list[Ref]] = defaultdict(list)
        for lane, ref in batch.values():
            assert isinstance(lane, PullLane), lane
            by_lane[lane].append(ref)
        dealt = {lane: lane.deal(refs) for lane, refs in by_lane.items()}
        call = asyncio.create_task(self._reserve_all(dealt))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    def stop(self) -> None:
        """Workers are not open again after the calls that are under way."""
        self._is_stopping = True

    async def drain(self) -> None:
        """Return when no call is under way."""
        if self._calls:
            await asyncio.wait(self._calls)

    async def _reserve_all(self, dealt: dict[PullLane, Dealt]) -> None:
        self._clock.busy()
        try:
            await asyncio.gather(*(self._reserve(lane, of) for lane, of in dealt.items()))
        finally:
            self._ended(dealt)

    async def _reserve(self, lane: PullLane, dealt: Dealt) -> None:
        refs = [ref for ref, _ in dealt.values()]
        workers = list(dict.fromkeys(worker for _, worker in dealt.values()))
        try:
            claimed, is_full = await reserve(
                self._db,
                lane.biz_type,
                refs,
                [worker.ttr_ms for _, worker in dealt.values()],
                reserved_max=lane.terms.biz.max_concurrency,
            )
            self._failures = 0
            signal.reached("pull.reserved")
            now_ms = int(self._clock.now_ms())
            judged = await self._occurrences.all_judged(claimed.claims, now_ms)
            claimed = claimed._replace(claims=judged)
            self._sort_out(lane, dealt, claimed)
            if is_full:
                lane.is_saturated = True
                asyncio.get_running_loop().call_later(SATURATED_S, self.relieve, lane)
            if claimed.early:
                await self._measure()
        except WheelTimerError as error:
            self._failed(lane, refs, error)
        except Exception:
            logger.exception("reserving for %s failed", lane.biz_type)
            self._failed(lane, refs, WheelTimerError("a fault of ours"))
        finally:
            lane.claiming -= len(refs)
            lane.see()
            self._answer(lane, workers)

    def _answer(self, lane: PullLane, workers: Sequence[Worker]) -> None:
        """Those who got something go; the others wait on, at their place."""
        for worker in reversed(workers):
            if worker.got or worker.is_leaving or self._is_stopping:
                worker.send_away()
            else:
                lane.join(worker, is_first=True)

    def _sort_out(self, lane: PullLane, dealt: Dealt, claimed: Claimed) -> None:
        """What nothing is said of is settled, gone or a copy: its entry is given up."""
        now_ms = self._clock.now_ms()
        left = dict(dealt)
        done: list[Ref] = []
        for claim in claimed.claims:
            ref, worker = left.pop(claim.task_id)
            policy = lane.terms.of(claim.callback, claim.retry).policy
            outcome = before_call(claim, policy, NO_CALL_MS, now_ms)
            if outcome is not None:
                lane.gate.refund(now_ms)
                self._settle(lane, claim, ref, outcome)
                continue
            if claim.was_lost:
                metrics.repeat("lost")
            if claim.attempt == 1:
                since_ms = max(claim.start_time_ms, claim.create_time_ms)
                metrics.callback_started(lane.biz_type, max(0.0, now_ms - since_ms) / 1000)
            worker.got.append(claim)
            done.append(ref)
        for task_id in (*claimed.early, *claimed.again):
            ref, _ = left.pop(task_id)
            lane.put_back(ref, ref.moment_ms)
            lane.gate.refund(now_ms)
        for ref, _ in left.values():
            lane.gate.refund(now_ms)
            done.append(ref)
        self._settler.acknowledge(done)

    async def _measure(self) -> None:
        """The clock was wrong about something; what was reserved stays so."""
        try:
            await self._clock.measure()
        except WheelTimerError as error:
            logger.warning("the database's clock could not be read: %s", error)

    def _failed(self, lane: PullLane, refs: Sequence[Ref], error: WheelTimerError) -> None:
        """Try again later. What was reserved all the same has its requeue row."""
        logger.warning("%d tasks of %s were not reserved: %s", len(refs), lane.biz_type, error)
        for ref in refs:
            lane.put_back(ref, ref.moment_ms)
        self._failures += 1
        if not self._is_held:
            self._is_held = True
            loop = asyncio.get_running_loop()
            loop.call_later(reconnect_delay_s(self._failures), self._resume)

    def _resume(self) -> None:
        self._is_held = False
        self._resumed()
