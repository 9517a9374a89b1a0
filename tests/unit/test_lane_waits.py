"""What a lane tells of why it holds back what is due."""

from __future__ import annotations

from broker.lane import LATE_MS
from broker.share import ALONE
from tests.unit.test_lane import T, a_lane, a_ref
from wheel_timer.biz import BizType, Breaker


def test_a_lane_without_anything_late_holds_nothing_back() -> None:
    lane = a_lane(concurrency=1)
    assert lane.holds_back(T) is None
    lane.add(a_ref(T))
    lane.add(a_ref(T))
    lane.take(T, 1)
    assert lane.holds_back(T + LATE_MS - 1) is None
    assert lane.holds_back(T + LATE_MS) == ("concurrency", None)


def test_a_lane_with_slots_that_is_late_without_a_limit_is_only_queued() -> None:
    lane = a_lane(concurrency=4)
    lane.add(a_ref(T))
    assert lane.holds_back(T + 10 * LATE_MS) is None


def test_a_rate_without_tokens_is_told_where_slots_are_free() -> None:
    lane = a_lane()
    lane.configure(BizType(biz_type="orders", version=2, rate_limit=1.0, max_concurrency=4), ALONE)
    lane.add(a_ref(T))
    held = lane.holds_back(T + LATE_MS)
    assert held is not None
    assert held[0] == "rate_limited"


def test_a_pause_is_told_with_nothing_waiting() -> None:
    lane = a_lane()
    lane.configure(BizType(biz_type="orders", version=2, paused=True), ALONE)
    assert lane.holds_back(T) == ("paused", None)


def test_an_open_breaker_is_told_with_its_end_and_a_half_open_one_without() -> None:
    lane = a_lane()
    breaker = Breaker(enabled=True, consecutive=1, open_for=5)
    lane.configure(BizType(biz_type="orders", version=2, breaker=breaker), ALONE)
    lane.gate.answered(False, 1.0, T, T)
    assert lane.holds_back(T + 1) == ("breaker_open", T + 5_000)
    assert lane.holds_back(T + 5_000) == ("breaker_open", None)
    lane.gate.answered(True, 1.0, T + 5_000, T + 5_001)
    assert lane.holds_back(T + 5_002) is None
