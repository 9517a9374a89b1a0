"""
From a claim whose moment has come to its result: the pre-check, the call, the outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker import tracing
from broker.attempt import HELD_UP, attempt
from broker.deadlines import Deadlines
from broker.lane import Lane
from broker.outcome import Answer, Outcome, Release, Unstarted, before_call, decide, is_at_work
from broker.results import Results
from broker.terms import Terms
from broker.transport import CallbackTransport
from wheel_timer import metrics, signal
from wheel_timer.clock import Clock
from wheel_timer.log import fields_of
from wheel_timer.monotonic import monotonic_s
from wheel_timer.task import Claim, Ref

logger = logging.getLogger(__name__)


class Caller:
    """
    slot_free: called with a lane when a slot of it has come free. answered: with a lane, whether
    its biz_type's endpoint showed that it works (None: it said 429), and when the call began and
    ended.
    """

    def __init__(
        self,
        *,
        transport: CallbackTransport,
        clock: Clock,
        results: Results,
        slot_free: Callable[[Lane], None],
        answered: Callable[[Lane, bool | None, float, float], None],
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._settle = results.settle
        self._slot_free = slot_free
        self._answered = answered
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
            logger.exception("the terms of a task cannot be read", extra=fields_of(claim))
            terms = lane.terms.of(None, None)
            answer = Answer(None, f"error in the broker: {type(error).__name__}", "connect")
            self._settle(lane, claim, ref, decide(answer, claim, terms.policy, now_ms), answer)
            self._slot_free(lane)
            return
        outcome = before_call(claim, terms.policy, terms.target.timeout_ms, now_ms)
        if outcome is None:
            self._count_repeat(claim, ref)
            call = self._attempt(lane, claim, ref, terms, now_ms, now_s)
            self._attempts[asyncio.create_task(call)] = terms.target.timeout_ms
        else:
            lane.gate.refund(now_ms)
            self._settle(lane, claim, ref, outcome)
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
        span = tracing.calling(claim, ref, started_ms)
        sent = claim if span is None else span.claim
        try:
            signal.reached("delivery.starting")
            signed_ms = self._clock.signing_ms(started_ms)
            answer = await attempt(
                self._transport, self._deadlines, sent, terms, signed_ms, started_s
            )
        except asyncio.CancelledError:
            # `drain` alone cancels; the receiver may have heard the call.
            answer = Answer(None, "the broker stopped before an answer came", "lost")
        except Exception as error:
            logger.exception("an attempt failed in the broker itself", extra=fields_of(claim))
            answer = Answer(None, f"error in the broker: {type(error).__name__}", "connect")
        signal.reached("delivery.called")
        ended_ms = self._clock.now_ms()
        if answer is HELD_UP:
            # No failure of the task's, and none of its endpoint's.
            lane.gate.refund(ended_ms)
            outcome: Outcome = Unstarted()
            self._settle(lane, claim, ref, outcome)
        else:
            outcome = self._ended(lane, claim, ref, terms, answer, started_ms, ended_ms)
        if span is not None:
            span.end(outcome, answer)
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
    ) -> Outcome:
        """A call was made, or may have been. Returns what came of it."""
        outcome: Outcome = decide(answer, claim, terms.policy, ended_ms)
        if answer.error_class == "lost" and self._gives_back:
            outcome = Release(0, answer.error)
        self._settle(lane, claim, ref, outcome, answer, started_ms, ended_ms)
        if answer.is_dropped:
            lane.gate.dropped(ended_ms)
        # A task's own URL says nothing of the endpoint that all others go to.
        if answer.error_class != "lost" and claim.callback is None:
            self._answered(lane, is_at_work(answer, terms.policy), started_ms, ended_ms)
        return outcome
