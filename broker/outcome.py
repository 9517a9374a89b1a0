"""
What becomes of a task: before its call, and by the answer to it. Pure; all branching is here.

    answer                                  outcome
    2xx                                     Finished
    2xx + Wheel-Timer-Release: S            Release: again S later, no failure spent
    410, a status of final_statuses         Dead at once
    429 within 24 h of the first attempt    Release: no failure spent, not before Retry-After
    429, 503 with Retry-After               Retry, not before it
    3xx, any other status, no answer        Retry by the policy
A Retry that was the last one allowed, or that could start only after max_age, is Dead instead.
"""

from __future__ import annotations

import math
from email.utils import parsedate_to_datetime
from typing import Final, NamedTuple

from wheel_timer.backoff import is_used_up, retry_delay_ms
from wheel_timer.biz import Retry as RetryPolicy
from wheel_timer.task import Claim

RELEASE_S_MIN: Final = 1
RELEASE_S_MAX: Final = 30 * 86_400
RETRY_AFTER_S_MAX: Final = 86_400
FREE_429_MS: Final = 86_400_000
# A lease must outlive the call's deadline by this, or its result could come too late to count.
SETTLE_MS: Final = 1_000

GONE: Final = 410
TOO_OLD: Final = "; expired: max_age ends before the next attempt"
TOO_MANY_REQUESTS: Final = 429
SERVICE_UNAVAILABLE: Final = 503


class Answer(NamedTuple):
    """
    What a call brought, as far as it counts here and in the attempt's record.

    status: None where no answer came whole; error and error_class then say why. release,
    retry_after: the headers' raw values. excerpt: the beginning of the body, cleaned. is_dropped:
    the body was too long to be read, so its connection is gone.
    """

    status: int | None
    error: str | None = None
    error_class: str | None = None
    release: str | None = None
    retry_after: str | None = None
    excerpt: str | None = None
    remote_address: str | None = None
    is_dropped: bool = False


class Policy(NamedTuple):
    """What a biz_type and the task's own overrides say about its attempts."""

    retry: RetryPolicy
    max_age_ms: int | None
    final_statuses: frozenset[int]


class Finished(NamedTuple):
    """Done; never again."""


class Cancelled(NamedTuple):
    """Somebody stopped it; or its schedule passes it over, and why. Never again."""

    reason: str | None = None


class Unstarted(NamedTuple):
    """Claimed, but the call could not begin in time: again at once, as if never claimed."""


class Retry(NamedTuple):
    """Again in delay_ms; one failure spent."""

    delay_ms: int
    reason: str


class Release(NamedTuple):
    """Again in delay_ms; no failure spent. reason: None where the receiver asked for it."""

    delay_ms: int
    reason: str | None = None


class Dead(NamedTuple):
    """Failed; kept as a dead letter."""

    reason: str
    error_class: str | None = None


Outcome = Finished | Retry | Release | Dead | Cancelled | Unstarted


def before_call(
    claim: Claim, policy: Policy, timeout_ms: int, now_ms: float
) -> Cancelled | Dead | Unstarted | None:
    """What becomes of a claimed task without any call; None where it is to be called."""
    if claim.stop:
        return Cancelled()
    if claim.skipped is not None:
        return Cancelled(claim.skipped)
    if now_ms > _expires_ms(claim, policy):
        return Dead("expired")
    # Only a lost attempt, counted by the claim itself, can have used up the budget.
    if claim.failures > 0 and is_used_up(policy.retry, claim.failures):
        return Dead("the broker of the last attempt allowed was lost in it", "lost")
    if now_ms + timeout_ms + SETTLE_MS > claim.lease_until_ms:
        return Unstarted()
    return None


def decide(
    answer: Answer, claim: Claim, policy: Policy, now_ms: float
) -> Finished | Retry | Release | Dead:
    """What becomes of a task by the answer to its call."""
    status = answer.status
    if status is None:
        assert answer.error is not None
        return _failed(answer.error, answer.error_class, 0, claim, policy, now_ms)
    if 200 <= status <= 299:
        return _succeeded(answer, claim, policy, now_ms)
    reason = f"HTTP {status}"
    if status == GONE or status in policy.final_statuses:
        return Dead(reason, "status")
    asked_ms = 0
    if status in (TOO_MANY_REQUESTS, SERVICE_UNAVAILABLE):
        asked_ms = _retry_after_ms(answer.retry_after, now_ms)
    if status == TOO_MANY_REQUESTS and now_ms - claim.first_attempt_ms < FREE_429_MS:
        delay_ms = max(asked_ms, retry_delay_ms(policy.retry, claim.failures + 1))
        if now_ms + delay_ms > _expires_ms(claim, policy):
            return Dead(f"{reason}{TOO_OLD}", "status")
        return Release(delay_ms, reason)
    return _failed(reason, "status", asked_ms, claim, policy, now_ms)


def is_at_work(answer: Answer, policy: Policy) -> bool | None:
    """Whether an answer shows that its endpoint works; None for a 429, which says only "slower"."""
    status = answer.status
    if status == TOO_MANY_REQUESTS and status not in policy.final_statuses:
        return None
    return status is not None and (
        200 <= status <= 299 or status == GONE or status in policy.final_statuses
    )


def _succeeded(
    answer: Answer, claim: Claim, policy: Policy, now_ms: float
) -> Finished | Retry | Release | Dead:
    if answer.release is None:
        return Finished()
    seconds = _number(answer.release)
    if seconds is None:
        # Finishing the task would lose what the receiver still wants to be asked about.
        reason = "Wheel-Timer-Release is not a number of seconds"
        return _failed(reason, "status", 0, claim, policy, now_ms)
    delay_ms = round(min(max(seconds, RELEASE_S_MIN), RELEASE_S_MAX) * 1000)
    if now_ms + delay_ms > _expires_ms(claim, policy):
        return Dead("expired")
    return Release(delay_ms)


def _failed(
    reason: str,
    error_class: str | None,
    asked_ms: int,
    claim: Claim,
    policy: Policy,
    now_ms: float,
) -> Retry | Dead:
    """One failure more. asked_ms: the receiver does not want to be called before."""
    failures = claim.failures + 1
    if is_used_up(policy.retry, failures):
        return Dead(reason, error_class)
    delay_ms = max(asked_ms, retry_delay_ms(policy.retry, failures))
    if now_ms + delay_ms > _expires_ms(claim, policy):
        return Dead(f"{reason}{TOO_OLD}", error_class)
    return Retry(delay_ms, reason)


def _expires_ms(claim: Claim, policy: Policy) -> float:
    """After this no attempt starts. A task submitted for the past is due when it is created."""
    max_age_ms = policy.max_age_ms if claim.max_age_ms is None else claim.max_age_ms
    if max_age_ms is None:
        return math.inf
    return max(claim.start_time_ms, claim.create_time_ms) + max_age_ms


def _retry_after_ms(value: str | None, now_ms: float) -> int:
    """Retry-After in seconds or as an HTTP date; 0 where it is missing or says nothing."""
    if value is None:
        return 0
    seconds = _number(value)
    if seconds is None:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now_ms / 1000
        except (ValueError, OverflowError):
            return 0
    return round(min(max(seconds, 0), RETRY_AFTER_S_MAX) * 1000)


def _number(text: str) -> float | None:
    """A finite decimal number, or None."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
