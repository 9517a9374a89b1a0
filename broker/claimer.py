"""
Claims batches of references, and sorts out what came of them: into the lane's claims, back into
its heap, or away. An error is never taken for "not claimed".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from broker.lane import CLAIM_REACH_MS, Lane
from broker.occurrences import Occurrences
from broker.settler import BACKLOG_MAX, Settler
from broker.timekeeper import Batch
from wheel_timer import signal
from wheel_timer.backoff import reconnect_delay_s
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.errors import WheelTimerError
from wheel_timer.store.claim import Claimed, claim
from wheel_timer.task import Claim

logger = logging.getLogger(__name__)


class Claimer:
    """
    ended: called when a claim call is over, with the lanes it was for; resumed: when claims are
    possible again after a failure.
    """

    def __init__(
        self,
        *,
        db: Database,
        clock: Clock,
        settler: Settler,
        ended: Callable[[Iterable[Lane]], None],
        resumed: Callable[[], None],
    ) -> None:
        self._db = db
        self._clock = clock
        self._settler = settler
        self._ended = ended
        self._resumed = resumed
        self._occurrences = Occurrences(db)
        self._calls: set[asyncio.Task[None]] = set()
        self._failures = 0
        self.is_held = False

    def may_claim(self) -> bool:
        """Whether claims are possible: Postgres answers, the clock is known, results get away."""
        return (
            not self.is_held
            and self._clock.is_known()
            and not self._settler.is_failing
            and self._settler.backlog < BACKLOG_MAX
        )

    def begin(self, batch: Batch) -> None:
        """Begin a claim call."""
        call = asyncio.create_task(self._claim(batch))
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)

    async def drain(self) -> None:
        """Return when no claim call is under way."""
        if self._calls:
            await asyncio.wait(self._calls)

    async def _claim(self, batch: Batch) -> None:
        self._clock.busy()
        wanted = list(batch.values())
        refs = [ref for _, ref in wanted]
        timeouts_ms = [lane.terms.biz.timeout_ms for lane, _ in wanted]
        try:
            claimed = await claim(self._db, refs, timeouts_ms)
            self._failures = 0
            signal.reached("delivery.claimed")
            occurrences = [one for one in claimed.claims if Occurrences.are_asked_for(one)]
            if occurrences:
                others = [one for one in claimed.claims if not Occurrences.are_asked_for(one)]
                self._take(batch, others)
                now_ms = int(self._clock.now_ms())
                judged = await self._occurrences.judged(occurrences, now_ms)
                claimed = claimed._replace(claims=judged)
            self._sort_out(batch, claimed)
            if claimed.early:
                await self._measure()
        except WheelTimerError as error:
            self._failed(batch, error)
        finally:
            for lane, _ in wanted:
                lane.claiming -= 1
            self._ended({lane for lane, _ in wanted})

    async def _measure(self) -> None:
        """The clock was wrong about something; what was granted is ours all the same."""
        try:
            await self._clock.measure()
        except WheelTimerError as error:
            logger.warning("the database's clock could not be read: %s", error)

    def _take(self, batch: Batch, claims: Iterable[Claim]) -> None:
        """Hand each to its lane."""
        now_ms = self._clock.now_ms()
        for one in claims:
            lane, ref = batch.pop(one.task_id)
            lane.claimed(one, ref, now_ms)

    def _sort_out(self, batch: Batch, claimed: Claimed) -> None:
        """What nothing is said of is settled, gone or a copy: its entry is given up."""
        self._take(batch, claimed.claims)
        now_ms = self._clock.now_ms()
        for task_id in (*claimed.early, *claimed.again):
            lane, ref = batch.pop(task_id)
            lane.put_back(ref, ref.moment_ms)
            lane.gate.refund(now_ms)
        for task_id, until_ms in claimed.leased:
            lane, ref = batch[task_id]
            if ref.taken_over:
                del batch[task_id]
                lane.put_back(ref, until_ms + CLAIM_REACH_MS)
                lane.gate.refund(now_ms)
        for lane, _ in batch.values():
            lane.gate.refund(now_ms)
        self._settler.acknowledge([ref for _, ref in batch.values()])

    def _failed(self, batch: Batch, error: WheelTimerError) -> None:
        """
        Try again later. Some of it may have been claimed all the same, so from now on a reference
        counts as taken over: it outlasts the lease that it may find, which is our own.
        """
        logger.warning("claims of %d tasks failed: %s", len(batch), error)
        for lane, ref in batch.values():
            lane.put_back(ref._replace(taken_over=True), ref.moment_ms)
        self._failures += 1
        self.is_held = True
        loop = asyncio.get_running_loop()
        loop.call_later(reconnect_delay_s(self._failures), self._resume)

    def _resume(self) -> None:
        self.is_held = False
        self._resumed()
