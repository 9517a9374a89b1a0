"""broker/outcome.py: what becomes of a task, before its call and by the answer to it."""

from __future__ import annotations

import pytest

from broker.outcome import (
    FREE_429_MS,
    SETTLE_MS,
    Answer,
    Cancelled,
    Dead,
    Finished,
    Policy,
    Release,
    Retry,
    Unstarted,
    before_call,
    decide,
)
from wheel_timer.biz import Retry as RetryPolicy
from wheel_timer.task import Claim
from wheel_timer.wheel import new_task_id

NOW_MS = 1_800_000_000_000  # 2027-01-15T08:00:00Z
TIMEOUT_MS = 10_000
POLICY = Policy(RetryPolicy(max_attempts=3, ladder=(5.0,)), None, frozenset({422}))
TASK_ID = new_task_id(NOW_MS)


def a_claim(
    *,
    failures: int = 0,
    stop: bool = False,
    start_time_ms: int = NOW_MS,
    create_time_ms: int = NOW_MS - 60_000,
    first_attempt_ms: int = NOW_MS,
    lease_until_ms: int = NOW_MS + TIMEOUT_MS + 5_000,
    max_age_ms: int | None = None,
) -> Claim:
    return Claim(
        task_id=TASK_ID,
        start_time_ms=start_time_ms,
        biz_type="orders",
        biz_id=None,
        attempt=failures + 1,
        failures=failures,
        revision=1,
        life=1,
        stop=stop,
        lease_until_ms=lease_until_ms,
        create_time_ms=create_time_ms,
        first_attempt_ms=first_attempt_ms,
        biz_data=None,
        content_type=None,
        callback=None,
        retry=None,
        max_age_ms=max_age_ms,
        schedule_id=None,
        traceparent=None,
        was_lost=False,
    )


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_finishes_a_task(status: int) -> None:
    assert decide(Answer(status), a_claim(), POLICY, NOW_MS) == Finished()


@pytest.mark.parametrize("status", [301, 302, 307, 400, 401, 404, 408, 418, 500, 502, 504, 599])
def test_other_statuses_are_tried_again_by_the_policy(status: int) -> None:
    assert decide(Answer(status), a_claim(), POLICY, NOW_MS) == Retry(5_000, f"HTTP {status}")


@pytest.mark.parametrize("status", [410, 422])
def test_gone_and_final_statuses_end_a_task_at_once(status: int) -> None:
    assert decide(Answer(status), a_claim(), POLICY, NOW_MS) == Dead(f"HTTP {status}", "status")


def test_no_answer_is_tried_again() -> None:
    answer = Answer(None, "no complete answer within 10 s", "timeout")
    assert decide(answer, a_claim(), POLICY, NOW_MS) == Retry(5_000, answer.error or "")


def test_the_last_failure_allowed_ends_a_task_with_its_error() -> None:
    assert decide(Answer(500), a_claim(failures=2), POLICY, NOW_MS) == Dead("HTTP 500", "status")


def test_the_last_failure_without_an_answer_keeps_its_class() -> None:
    answer = Answer(None, "reset", "reset")
    assert decide(answer, a_claim(failures=2), POLICY, NOW_MS) == Dead("reset", "reset")


@pytest.mark.parametrize(
    ("value", "delay_ms"),
    [
        ("1", 1_000),
        ("90", 90_000),
        ("1.5", 1_500),
        ("0", 1_000),
        ("-7", 1_000),
        ("1e9", 2_592_000_000),
    ],
)
def test_a_release_comes_again_without_a_failure(value: str, delay_ms: int) -> None:
    assert decide(Answer(200, release=value), a_claim(), POLICY, NOW_MS) == Release(delay_ms)


@pytest.mark.parametrize("value", ["", "soon", "nan", "inf"])
def test_a_release_that_says_nothing_is_a_failure(value: str) -> None:
    outcome = decide(Answer(200, release=value), a_claim(), POLICY, NOW_MS)
    assert outcome == Retry(5_000, "Wheel-Timer-Release is not a number of seconds")


def test_a_release_past_max_age_ends_the_task() -> None:
    answer = Answer(200, release="60")
    assert decide(answer, a_claim(max_age_ms=59_000), POLICY, NOW_MS) == Dead("expired")


@pytest.mark.parametrize(
    ("value", "delay_ms"),
    [
        ("120", 120_000),
        ("2", 5_000),
        ("999999999", 86_400_000),
        ("Fri, 15 Jan 2027 08:10:00 GMT", 600_000),
        ("Fri, 15 Jan 2027 07:00:00 GMT", 5_000),
        ("when the cows come home", 5_000),
        (None, 5_000),
    ],
)
def test_a_503_is_not_tried_before_its_retry_after(value: str | None, delay_ms: int) -> None:
    answer = Answer(503, retry_after=value)
    assert decide(answer, a_claim(), POLICY, NOW_MS) == Retry(delay_ms, "HTTP 503")


def test_a_500_has_no_say_about_when_it_is_tried_again() -> None:
    answer = Answer(500, retry_after="120")
    assert decide(answer, a_claim(), POLICY, NOW_MS) == Retry(5_000, "HTTP 500")


@pytest.mark.parametrize("failures", [0, 2])
def test_a_429_spends_no_failure_on_its_first_day(failures: int) -> None:
    answer = Answer(429, retry_after="30")
    claim = a_claim(failures=failures, first_attempt_ms=NOW_MS - FREE_429_MS + 1)
    assert decide(answer, claim, POLICY, NOW_MS) == Release(30_000, "HTTP 429")


def test_a_429_after_a_day_spends_a_failure() -> None:
    claim = a_claim(first_attempt_ms=NOW_MS - FREE_429_MS)
    answer = Answer(429, retry_after="30")
    assert decide(answer, claim, POLICY, NOW_MS) == Retry(30_000, "HTTP 429")


def test_a_retry_that_max_age_would_refuse_ends_the_task_now() -> None:
    claim = a_claim(max_age_ms=4_999)
    reason = "HTTP 500; expired: max_age ends before the next attempt"
    assert decide(Answer(500), claim, POLICY, NOW_MS) == Dead(reason, "status")


def test_a_claim_in_order_is_called() -> None:
    assert before_call(a_claim(), POLICY, TIMEOUT_MS, NOW_MS) is None


def test_a_stopped_task_is_cancelled_without_a_call() -> None:
    claim = a_claim(stop=True, failures=3)
    assert before_call(claim, POLICY, TIMEOUT_MS, NOW_MS) == Cancelled()


def test_not_even_the_first_attempt_starts_after_max_age() -> None:
    claim = a_claim(start_time_ms=NOW_MS - 1_001, max_age_ms=1_000)
    assert before_call(claim, POLICY, TIMEOUT_MS, NOW_MS) == Dead("expired")


def test_max_age_of_a_task_submitted_for_the_past_counts_from_its_creation() -> None:
    claim = a_claim(start_time_ms=1, create_time_ms=NOW_MS - 500, max_age_ms=1_000)
    assert before_call(claim, POLICY, TIMEOUT_MS, NOW_MS) is None


def test_a_tasks_own_max_age_stands_in_the_place_of_its_biz_types() -> None:
    policy = POLICY._replace(max_age_ms=1_000)
    claim = a_claim(start_time_ms=NOW_MS - 2_000, max_age_ms=60_000)
    assert before_call(claim, policy, TIMEOUT_MS, NOW_MS) is None


def test_a_lost_attempt_can_be_the_last_one() -> None:
    outcome = before_call(a_claim(failures=3), POLICY, TIMEOUT_MS, NOW_MS)
    assert outcome == Dead("the broker of the last attempt allowed was lost in it", "lost")


def test_a_call_that_the_lease_does_not_cover_is_not_started() -> None:
    covered = a_claim(lease_until_ms=NOW_MS + TIMEOUT_MS + SETTLE_MS)
    short = covered._replace(lease_until_ms=covered.lease_until_ms - 1)
    assert before_call(covered, POLICY, TIMEOUT_MS, NOW_MS) is None
    assert before_call(short, POLICY, TIMEOUT_MS, NOW_MS) == Unstarted()
