"""broker/breaker.py, slowing.py and the gate's holds: when a lane may call, without any server."""

from __future__ import annotations

import pytest

from broker.breaker import Breaker
from broker.lane import Lane
from broker.outcome import Answer, Policy, is_at_work
from broker.share import ALONE
from broker.slowing import Slowing
from tests.unit.test_lane import T, a_claim, a_ref
from wheel_timer.biz import BizType, Retry
from wheel_timer.biz import Breaker as Settings

SETTINGS = Settings(consecutive=3, open_for=10)
S = 1_000


def a_broken(breaker: Breaker, at_ms: float = T) -> Breaker:
    for _ in range(3):
        breaker.answered(False, at_ms, at_ms)
    return breaker


# -- the breaker ----------------------------------------------------------------------------------


def test_it_opens_after_so_many_failures_in_a_row() -> None:
    breaker = Breaker(SETTINGS)
    for is_good in (False, False, True, False, False):
        breaker.answered(is_good, T, T)
    assert breaker.is_closed
    breaker.answered(False, T, T)
    assert breaker.is_open(T)
    assert breaker.is_open(T + 10 * S - 1)
    assert not breaker.is_open(T + 10 * S)


def test_a_probe_that_fails_opens_it_for_twice_as_long_up_to_five_minutes() -> None:
    breaker, now_ms, opens = a_broken(Breaker(SETTINGS)), float(T), []
    for _ in range(7):
        assert breaker.until_ms is not None
        opens.append((breaker.until_ms - now_ms) / S)
        now_ms = breaker.until_ms
        breaker.answered(False, now_ms, now_ms)
    assert opens == [10, 20, 40, 80, 160, 300, 300]


def test_a_probe_that_succeeds_closes_it_and_it_begins_anew() -> None:
    breaker = a_broken(Breaker(SETTINGS))
    breaker.answered(False, T + 10 * S, T + 10 * S)
    breaker.answered(True, T + 30 * S, T + 30 * S)
    assert breaker.is_closed
    a_broken(breaker, T + 40 * S)
    assert breaker.until_ms == T + 50 * S


def test_calls_that_began_before_it_opened_say_nothing_new() -> None:
    breaker = a_broken(Breaker(SETTINGS))
    breaker.answered(False, T - 1, T + 15 * S)
    assert breaker.until_ms == T + 10 * S


def test_news_of_another_broker_lets_a_probe_go_once() -> None:
    breaker = a_broken(Breaker(SETTINGS))
    # From before it opened here: it says nothing of what came after.
    assert not breaker.heard(T, T + 1 * S)
    assert breaker.heard(T + 2 * S, T + 3 * S)
    assert not breaker.is_open(T + 3 * S)
    assert not breaker.is_closed
    breaker.answered(False, T + 3 * S, T + 4 * S)
    assert not breaker.heard(T + 2 * S, T + 5 * S)
    assert breaker.is_open(T + 4 * S + 20 * S - 1)
    assert not Breaker(SETTINGS).heard(T, T)


def test_switched_off_it_never_opens_and_changed_settings_close_it() -> None:
    off = Settings(enabled=False, consecutive=1)
    breaker = a_broken(Breaker(off))
    assert breaker.is_closed
    breaker = a_broken(Breaker(SETTINGS))
    breaker.configure(SETTINGS)
    assert not breaker.is_closed
    breaker.configure(off)
    assert breaker.is_closed


@pytest.mark.parametrize(
    ("answer", "is_good"),
    [
        (Answer(200), True),
        (Answer(204, release="no number"), True),
        (Answer(410), True),
        (Answer(422), True),
        (Answer(429), None),
        (Answer(302), False),
        (Answer(404), False),
        (Answer(500), False),
        (Answer(503, retry_after="5"), False),
        (Answer(None, "refused", "refused"), False),
    ],
)
def test_what_an_answer_says_of_its_endpoint(answer: Answer, is_good: bool | None) -> None:
    assert is_at_work(answer, Policy(Retry(), None, frozenset({422}))) is is_good


# -- a lane behind its gate -----------------------------------------------------------------------


def a_breakable_lane() -> Lane:
    return Lane(BizType(biz_type="orders", version=1, breaker=SETTINGS))


def test_an_open_breaker_gives_claims_back_and_lets_one_probe_go() -> None:
    lane = a_breakable_lane()
    for _ in range(5):
        lane.add(a_ref())
    ref = a_ref()
    lane.claimed(a_claim(ref), ref, T)
    for _ in range(3):
        lane.answered(False, T, T)
    assert list(lane.startable(T, 0.0)) == []
    assert [back for _, back in lane.stale(T)] == [ref]
    assert not lane.wants(T)
    assert lane.next_ms(T) == T + 10 * S
    assert lane.wants(T + 10 * S)
    assert len(lane.take(T + 10 * S, 500)) == 1
    assert not lane.wants(T + 10 * S)


def test_a_paused_lane_wants_nothing_until_it_is_resumed() -> None:
    lane = Lane(BizType(biz_type="orders", version=1, paused=True))
    lane.add(a_ref())
    assert not lane.wants(T)
    assert lane.next_ms(T) is None
    lane.configure(BizType(biz_type="orders", version=2), ALONE)
    assert lane.wants(T)


def test_the_brake_holds_a_lane_whatever_its_configuration_says() -> None:
    lane = a_breakable_lane()
    lane.add(a_ref())
    lane.gate.brake(True)
    lane.configure(BizType(biz_type="orders", version=2), ALONE)
    assert lane.gate.hold(T) == "paused"
    lane.gate.brake(False)
    assert lane.wants(T)


def test_a_held_lane_gives_up_its_last_references_and_keeps_the_first() -> None:
    lane = a_breakable_lane()
    refs = [a_ref(T + i) for i in range(6)]
    for ref in reversed(refs):
        lane.add(ref)
    assert lane.give_up_waiting(3, keep=2) == refs[3:]
    assert lane.give_up_waiting(3, keep=2) == refs[2:3]
    assert lane.give_up_waiting(3, keep=2) == []
    assert lane.take(T + 10, 10) == refs[:2]


# -- 429 ------------------------------------------------------------------------------------------


def test_a_429_halves_the_pace_once_a_second_and_it_comes_back() -> None:
    slowing = Slowing(100, T)

    def calls_of_a_second(from_ms: float) -> int:
        calls = 0
        for ms in range(0, 1_000, 10):
            room = slowing.room(from_ms + ms)
            slowing.spend(room)
            calls += room
        return calls

    assert 45 <= calls_of_a_second(T) <= 50
    for _ in range(10):
        slowing.refused(T + S)
    assert 20 <= calls_of_a_second(T + S) <= 30
    now_ms = T + S
    while not slowing.is_over(now_ms):
        now_ms += 100
        assert now_ms < T + 20 * S
    assert now_ms > T + 5 * S


def test_a_lane_that_was_told_to_slow_down_says_when_it_goes_on() -> None:
    lane = a_breakable_lane()
    for _ in range(5):
        lane.add(a_ref())
    lane.answered(None, T, T)
    assert not lane.wants(T)
    at_ms = lane.next_ms(T)
    assert at_ms is not None
    assert T < at_ms <= T + 2 * S
    assert len(lane.take(at_ms, 500)) == 1
