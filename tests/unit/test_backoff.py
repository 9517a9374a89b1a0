"""wheel_timer/backoff.py: the delays and the end of a retry policy."""

from __future__ import annotations

import pytest

from wheel_timer.backoff import is_used_up, reconnect_delay_s, retry_delay_ms
from wheel_timer.biz import Backoff, Retry

NO_JITTER = Backoff(initial=5, factor=3, max=21_600, jitter=0)


def test_the_default_delays_grow_by_the_factor_up_to_the_maximum() -> None:
    policy = Retry(backoff=NO_JITTER)
    delays = [retry_delay_ms(policy, failures) for failures in range(1, 11)]
    expected = [5, 15, 45, 135, 405, 1215, 3645, 10_935, 21_600, 21_600]
    assert [seconds * 1000 for seconds in expected] == delays


def test_a_delay_is_drawn_from_its_upper_half() -> None:
    drawn = [retry_delay_ms(Retry(), 2) for _ in range(2_000)]
    assert min(drawn) >= 7_500
    assert max(drawn) <= 15_000
    assert min(drawn) < 8_000 < 14_500 < max(drawn)


def test_a_ladder_is_climbed_step_by_step_and_its_last_step_repeats() -> None:
    policy = Retry(ladder=(1.0, 60.0, 3600.0))
    delays = [retry_delay_ms(policy, failures) for failures in range(1, 6)]
    assert delays == [1_000, 60_000, 3_600_000, 3_600_000, 3_600_000]


def test_a_delay_is_never_nothing() -> None:
    assert retry_delay_ms(Retry(ladder=(0.0,)), 1) == 1


def test_a_thousandth_failure_does_not_overflow() -> None:
    policy = Retry(backoff=Backoff(initial=2_592_000, factor=100, max=2_592_000, jitter=0))
    assert retry_delay_ms(policy, 1_000) == 2_592_000_000


@pytest.mark.parametrize(("failures", "expected"), [(1, False), (2, False), (3, True), (4, True)])
def test_the_budget_is_used_up_with_its_last_attempt(failures: int, expected: bool) -> None:
    assert is_used_up(Retry(max_attempts=3), failures) is expected


def test_a_server_that_is_away_is_asked_again_within_a_second() -> None:
    assert all(0 <= reconnect_delay_s(failures) <= 1 for failures in (1, 5, 50, 5_000))
