"""broker/gate.py, broker/bucket.py: what a lane may claim, and when, without any server."""

from __future__ import annotations

from collections import deque

import pytest

from broker.bucket import GRAIN_S, Bucket, shape_of
from broker.gate import (
    DROPS_FORGOTTEN_MS,
    DROPS_FREE,
    DROPS_FREE_PER_S,
    DROPS_PER_S,
    TOKEN_KEPT_MS,
    Gate,
)
from broker.lane import Lane
from broker.spacing import Spacing
from tests.unit.test_lane import T, a_ref
from wheel_timer.biz import BizType


def a_limited_lane(rate: float, *, concurrency: int = 64, burst: int | None = None) -> Lane:
    biz = BizType(
        biz_type="orders", version=1, max_concurrency=concurrency, rate_limit=rate, burst=burst
    )
    return Lane(biz)


# -- the bucket -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.01, 0.5, 1, 7, 50, 333.3, 2_000, 100_000])
@pytest.mark.parametrize("burst", [None, 1, 10, 1_000])
def test_no_second_brings_more_than_rate_and_burst_though_calls_start_late(
    rate: float, burst: int | None
) -> None:
    bucket = Bucket(shape_of(rate, burst), 0.0)
    most = rate + (max(1.0, rate) if burst is None else burst)
    seconds = 30 if rate < 1_000 else 3
    # Idle first: then the bucket is full.
    taken: deque[tuple[float, int]] = deque()
    now_s, total = 1_000_000.0, 0
    until_s = now_s + seconds
    while now_s < until_s:
        got, _ = bucket.take(1_000_000, now_s)
        # Each is called up to 15 ms after its token was taken; the worst is the first ones late.
        late_s = 0.015 if not taken else 0.0
        taken.append((now_s + late_s, got))
        total += got
        while taken[0][0] < now_s - 1:
            taken.popleft()
        assert sum(count for at_s, count in taken if at_s > now_s - 1) <= most
        now_s += GRAIN_S
    full = seconds * rate
    assert total >= full * 0.95 - 1


def test_the_rate_is_kept_to_five_percent_even_where_grains_come_late() -> None:
    bucket = Bucket(shape_of(2_000, 1), 0.0)
    taken = sum(bucket.take(10_000, turn * 1.8 * GRAIN_S)[0] for turn in range(1_000))
    assert taken / (1_000 * 1.8 * GRAIN_S) > 2_000 * 0.95


def test_a_bucket_says_when_its_next_token_comes() -> None:
    bucket = Bucket(shape_of(0.01, 1), 0.0)
    taken, wait_s = bucket.take(1, 0.0)
    assert taken == 0
    assert 100 <= wait_s < 104
    assert bucket.take(1, wait_s - 0.01)[0] == 0
    assert bucket.take(1, wait_s) == (1, 0.0)


def test_a_clock_that_goes_back_brings_no_tokens() -> None:
    bucket = Bucket(shape_of(10, 1), 100.0)
    assert bucket.take(1, 50.0)[0] == 0
    assert bucket.take(1, 50.05)[0] == 0


# -- the lane -------------------------------------------------------------------------------------


def test_a_lane_without_a_limit_asks_for_nothing() -> None:
    lane = Lane(BizType(biz_type="orders", version=1))
    lane.add(a_ref())
    assert lane.missing_tokens(T) == 0
    assert lane.wants(T)


def test_a_limited_lane_claims_as_many_as_it_has_tokens() -> None:
    lane = a_limited_lane(50)
    for _ in range(10):
        lane.add(a_ref())
    assert not lane.wants(T)
    assert lane.missing_tokens(T) == 10
    lane.gate.grant(3, T)
    assert lane.missing_tokens(T) == 7
    assert lane.wants(T)
    assert len(lane.take(T, 500)) == 3
    assert not lane.wants(T)


def test_only_what_is_due_asks_for_tokens() -> None:
    lane = a_limited_lane(50)
    for ahead_ms in (0, 5, 400, 500, 600):
        lane.add(a_ref(T + ahead_ms))
    assert lane.missing_tokens(T - 100) == 0
    assert lane.missing_tokens(T) == 2


def test_no_token_is_taken_without_a_slot_for_its_call() -> None:
    lane = a_limited_lane(50, concurrency=4)
    for _ in range(10):
        lane.add(a_ref())
    assert lane.missing_tokens(T) == 4
    lane.gate.grant(4, T)
    lane.take(T, 500)
    assert lane.missing_tokens(T) == 0


def test_a_token_that_found_no_task_serves_the_next() -> None:
    lane = a_limited_lane(50)
    lane.add(a_ref())
    lane.gate.grant(1, T)
    lane.take(T, 500)
    lane.claiming -= 1
    lane.gate.refund(T + 5)
    lane.add(a_ref())
    assert lane.missing_tokens(T + 5) == 0
    assert len(lane.take(T + 5, 500)) == 1


def test_a_token_kept_for_long_is_dropped() -> None:
    lane = a_limited_lane(50)
    lane.gate.grant(3, T)
    lane.add(a_ref())
    assert lane.missing_tokens(T + TOKEN_KEPT_MS + 1) == 1
    assert not lane.wants(T + TOKEN_KEPT_MS + 1)


def dropping() -> Gate:
    """At T it had to drop more than a few."""
    gate = Gate(BizType(biz_type="orders", version=1))
    for _ in range(int(DROPS_FREE)):
        gate.dropped(T)
    return gate


def test_some_connections_that_have_to_be_dropped_keep_nobody_back() -> None:
    gate = Gate(BizType(biz_type="orders", version=1))
    every_ms = round(1000 / DROPS_FREE_PER_S)
    for ms in range(0, 60_000, every_ms):
        gate.dropped(T + ms)
        assert not gate.is_narrow
    for ms in range(0, 2_000, every_ms // 2):
        gate.dropped(T + 60_000 + ms)
    assert gate.is_narrow


def test_a_pace_that_leaves_few_to_be_dropped_is_given_up() -> None:
    gate = dropping()
    for ms in range(20, round(DROPS_FORGOTTEN_MS), 25):
        gate.dropped(T + ms)
        assert gate.allowed(T + ms) < 100
    assert gate.allowed(T + DROPS_FORGOTTEN_MS + 1_000) > 1_000


def test_connections_that_have_to_be_dropped_are_made_at_a_pace() -> None:
    gate = dropping()
    assert gate.is_narrow
    calls = 0
    for ms in range(1, 2_001):
        room = gate.allowed(T + ms)
        assert room <= DROPS_PER_S / 10
        gate.spend(room)
        calls += room
    assert calls == pytest.approx(2 * DROPS_PER_S, abs=DROPS_PER_S / 10)
    next_ms = gate.next_ms(T + 2_001)
    assert next_ms is not None
    assert T + 2_001 < next_ms <= T + 2_101
    assert gate.allowed(next_ms) > 1, "calls that come in batches"


@pytest.mark.parametrize("per_s", [0.5, 1, 7, 99.7, 100, 3_333, 100_000])
def test_who_comes_when_he_was_told_to_is_let_go(per_s: float) -> None:
    """The clock may stand still from then on: told again, he would come again for ever."""
    for ms in range(500):
        spacing = Spacing(per_s, T + ms * 1.37)
        spacing.spend(ms % 5)
        assert spacing.room(spacing.next_ms(T + ms * 1.37)) >= 1


def test_the_pace_is_free_again_when_nothing_was_dropped_for_long() -> None:
    gate = dropping()
    assert gate.allowed(T + DROPS_FORGOTTEN_MS) < 100
    assert gate.allowed(T + DROPS_FORGOTTEN_MS + 1) > 1_000
    assert not gate.is_narrow
