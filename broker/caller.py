"""
From a claim whose moment has come to its result: the pre-check, the call, the outcome, the record.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import assert_never

from broker.attempt import HELD_UP, attempt
from broker.deadlines import Deadlines
from broker.lane import Lane
from broker.notice import is_notice, notice_of
from broker.outcome import (
    Answer,
    Cancelled,
    Dead,
    Finished,
    Outcome,
    Release,
    Retry,
    Unstarted,
    before_call,
    decide,
    is_at_work,
)
from broker.report import Report
from broker.settler import Settler
from broker.terms import Terms
from broker.transport import CallbackTransport
from wheel_timer import metrics, signal
from wheel_timer.biz import BizType
from wheel_timer.clock import Clock
from wheel_timer.monotonic import monotonic_s
from wheel_timer.store.settle import FINAL
from wheel_timer.task import Claim, Ref, Result

logger = logging.getLogger(__name__)

NO_ANSWER = Answer(None)


class Caller:
    """
    slot_free: called with a lane when a slot of it has come free. answered: with a lane, whether
    its biz_type's endpoint showed that it works (None: it said 429), and when the call began and
    ended.
    is_known: whether there is a biz_type by this name.
    """

    def __init__(
        self,
        *,
        transport: CallbackTransport,
        clock: Clock,
        settler: Settler,
        report: Report,
        broker_name: str,
        slot_free: Callable[[Lane], None],
        answered: Callable[[Lane, bool | None, float, float], None],
        is_known: Callable[[str], bool],
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._settler = settler
        self._report = report
        self._broker_name = broker_name
        self._slot_free = slot_free
        self._answered = answered
        self._is_known = is_known
        self._deadlines = Deadlines()
        # The calls in flight, and how long each may take (ms).
        self._attempts: dict[asyncio.Task[None] | None, int] = {}
        self._gives_back = False

    def start(self, lane: Lane, claim: Claim, ref: Ref) -> None:
        """Call, or settle what is not to be called; the lane's slot is taken already."""
        now_ms, now_s = self._clock.now_ms(), monotonic_s()
        try:
            terms = lane.terms.of(claim.callback, claim.retry)
        except Exception as error:
            # One task's row must not stop the turn that starts everybody else's.
            logger.exception("the terms of task %s cannot be read", claim.task_id)
            terms = lane.terms.of(None, None)
            answer = Answer(None, f"error in the broker: {type(error).__name__}", "connect")
            self.settle(lane, claim, ref, decide(answer, claim, terms.policy, now_ms), answer)
            self._slot_free(lane)
            return
        outcome = before_call(claim, terms.policy, terms.target.timeout_ms, now_ms)
        if outcome is None:
            self._count_repeat(claim, ref)
            call = self._attempt(lane, claim, ref, terms, now_ms, now_s)
            self._attempts[asyncio.create_task(call)] = terms.target.timeout_ms
        else:
            lane.gate.refund(now_ms)
            self.settle(lane, claim, ref, outcome)
            self._slot_free(lane)

    def _count_repeat(self, claim: Claim, ref: Ref) -> None:
        """The receiver may have been called for this life already, and nobody here knows."""
        if claim.was_lost:
            metrics.repeat("lost")
        elif max(ref.moment_ms, claim.create_time_ms) <= self._clock.restored_ms:
            metrics.repeat("restored")

    def longest_call_s(self) -> float:
        """What the call in flight with the longest timeout may take."""
        return max(self._attempts.values(), default=0) / 1000

    async def drain(self, drain_s: float, at_once: asyncio.Event) -> None:
        """
        Let the calls in flight end; those that last longer count as failed, and come again.

        Once at_once is set nobody waits: what is in flight is given back without a failure, and is
        called again by whoever claims it next, though it may have been heard already.
        """
        calls = [call for call in self._attempts if call is not None]
        if not calls:
            return
        ended = asyncio.ensure_future(asyncio.wait(calls))
        hurry = asyncio.create_task(at_once.wait())
        await asyncio.wait({ended, hurry}, timeout=drain_s, return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        self._gives_back = at_once.is_set()
        for call in calls:
            call.cancel()
        await ended

    async def _attempt(
        self, lane: Lane, claim: Claim, ref: Ref, terms: Terms, started_ms: float, started_s: float
    ) -> None:
        try:
            signal.reached("delivery.starting")
            signed_ms = self._clock.signing_ms(started_ms)
            answer = await attempt(
                self._transport, self._deadlines, claim, terms, signed_ms, started_s
            )
        except asyncio.CancelledError:
            # `drain` alone cancels; the receiver may have heard the call.
            answer = Answer(None, "the broker stopped before an answer came", "lost")
        except Exception as error:
            logger.exception("the attempt at task %s failed in the broker itself", claim.task_id)
            answer = Answer(None, f"error in the broker: {type(error).__name__}", "connect")
        signal.reached("delivery.called")
        ended_ms = self._clock.now_ms()
        if answer is HELD_UP:
            # No failure of the task's, and none of its endpoint's.
            lane.gate.refund(ended_ms)
            self.settle(lane, claim, ref, Unstarted())
        else:
            self._ended(lane, claim, ref, terms, answer, started_ms, ended_ms)
        self._slot_free(lane)
        self._attempts.pop(asyncio.current_task(), None)

    def _ended(
        self,
        lane: Lane,
        claim: Claim,
        ref: Ref,
        terms: Terms,
        answer: Answer,
        started_ms: float,
        ended_ms: float,
    ) -> None:
        """A call was made, or may have been."""
        outcome: Outcome = decide(answer, claim, terms.policy, ended_ms)
        if answer.error_class == "lost" and self._gives_back:
            outcome = Release(0, answer.error)
        self.settle(lane, claim, ref, outcome, answer, started_ms, ended_ms)
        if answer.is_dropped:
            lane.gate.dropped(ended_ms)
        # A task's own URL says nothing of the endpoint that all others go to.
        if answer.error_class != "lost" and claim.callback is None:
            self._answered(lane, is_at_work(answer, terms.policy), started_ms, ended_ms)

    def settle(
        self,
        lane: Lane,
        claim: Claim,
        ref: Ref,
        outcome: Outcome,
        answer: Answer = NO_ANSWER,
        started_ms: float | None = None,
        ended_ms: float = 0.0,
    ) -> None:
        """Hand a result to the settler. started_ms: None where no call was made."""
        biz = lane.terms.biz
        result = Result(
            task_id=claim.task_id,
            start_time_ms=claim.start_time_ms,
            biz_type=claim.biz_type,
            attempt=claim.attempt,
            revision=claim.revision,
            outcome="",
            http_status=answer.status,
            response_excerpt=answer.excerpt,
            error_class=answer.error_class,
            due_ms=ref.moment_ms,
            published_ms=ref.published_ms,
            remote_address=answer.remote_address,
            broker=self._broker_name,
            config_version=biz.version,
            # What is stopped meanwhile is cancelled, whatever it was to become.
            retention_ms=biz.retention_ms("cancelled"),
            life=claim.life,
        )
        if started_ms is not None:
            result.started_ms = int(started_ms)
            result.duration_ms = round(ended_ms - started_ms)
        match outcome:
            case Finished():
                result.outcome = "finished"
                result.retention_ms = biz.retention_ms("finished")
            case Retry(delay_ms, reason):
                result.outcome = "retry"
                result.delay_ms, result.error = delay_ms, reason
            case Release(delay_ms, reason):
                result.outcome = "released"
                result.delay_ms, result.error = delay_ms, reason
            case Dead(reason, error_class):
                result.outcome = "failed"
                result.retention_ms = biz.retention_ms("failed")
                result.error, result.error_class = reason, error_class
            case Cancelled():
                result.outcome = "cancelled"
            case Unstarted():
                result.outcome = "unstarted"
            case _:
                assert_never(outcome)
        if result.outcome in FINAL:
            self._note(claim, result, biz)
        if result.error is not None and result.error_class is None and answer.status is not None:
            result.error_class = "status"
        self._settler.add(result, ref)
        due_ms = max(ref.moment_ms, claim.create_time_ms)
        self._report.ended(result, (started_ms or due_ms) - due_ms)

    def _note(self, claim: Claim, result: Result, biz: BizType) -> None:
        """What else the end of a task brings."""
        result.erase = biz.erase_data and claim.biz_data is not None
        if result.outcome != "failed" or biz.on_failed is None or is_notice(claim):
            return
        if self._is_known(biz.on_failed):
            result.notice = notice_of(claim, result, biz.on_failed, self._clock.now_ms())
        else:
            logger.warning("%s: nobody hears of failures: there is no %s", biz, biz.on_failed)
