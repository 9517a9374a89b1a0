"""
The record of an attempt: from its outcome to the row that the settler writes, and what else the end
of a task brings.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import assert_never

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
)
from broker.report import Report
from broker.settler import Settler
from wheel_timer.biz import BizType
from wheel_timer.clock import Clock
from wheel_timer.store.settle import FINAL
from wheel_timer.task import Claim, Ref, Result

logger = logging.getLogger(__name__)

NO_ANSWER = Answer(None)


class Results:
    """is_known: whether there is a biz_type by this name."""

    def __init__(
        self,
        *,
        clock: Clock,
        settler: Settler,
        report: Report,
        broker_name: str,
        is_known: Callable[[str], bool],
    ) -> None:
        self._clock = clock
        self._settler = settler
        self._report = report
        self._broker_name = broker_name
        self._is_known = is_known

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
            case Cancelled(reason):
                result.outcome = "cancelled"
                result.error = reason
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
