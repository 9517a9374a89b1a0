"""broker/lane.py and broker/timekeeper.py: the bookkeeping of references, without any server."""

from __future__ import annotations

import asyncio

from broker.lane import (
    CLAIM_AHEAD_MS,
    CLAIM_REACH_MS,
    HOLD_MS,
    READ_AHEAD,
    READ_AHEAD_MAX,
    Lane,
)
from broker.share import ALONE, Share
from broker.timekeeper import BATCH_ROWS_MAX, CLAIM_CALLS_MAX, Batch, Timekeeper
from wheel_timer.biz import BizType
from wheel_timer.task import Claim, Ref
from wheel_timer.wheel import new_task_id

T = 1_800_000_000_000


def a_lane(
    concurrency: int = 4, name: str = "orders", share: Share = ALONE, priority: int = 5
) -> Lane:
    biz = BizType(biz_type=name, version=1, max_concurrency=concurrency, priority=priority)
    return Lane(biz, share)


def a_ref(moment_ms: int = T, entry: bytes = b"", name: str = "orders") -> Ref:
    return Ref(new_task_id(moment_ms), moment_ms, moment_ms, T, name, entry)


def a_claim(ref: Ref) -> Claim:
    return Claim(
        ref.task_id, ref.start_time_ms, ref.biz_type, None, 1, 0, 1, 1, False, T + 15_000,
        T, T, None, None, None, None, None, None, None, False,
    )  # fmt: skip


# -- the lane -------------------------------------------------------------------------------------


def test_references_are_taken_in_order_of_their_moments() -> None:
    lane = a_lane()
    for moment_ms in (T + 3, T + 1, T + 2):
        lane.add(a_ref(moment_ms))
    assert [ref.moment_ms for ref in lane.take(T, 10)] == [T + 1, T + 2, T + 3]


def test_nothing_is_wanted_before_its_claim_is_due() -> None:
    lane = a_lane()
    lane.add(a_ref(T))
    assert not lane.wants(T - CLAIM_AHEAD_MS - 1)
    assert lane.next_ms(T - CLAIM_AHEAD_MS - 1) == T - CLAIM_AHEAD_MS
    assert lane.wants(T - CLAIM_AHEAD_MS)


def test_what_is_due_soon_is_claimed_along() -> None:
    lane = a_lane(concurrency=10)
    lane.add(a_ref(T))
    lane.add(a_ref(T + CLAIM_REACH_MS - CLAIM_AHEAD_MS))
    lane.add(a_ref(T + CLAIM_REACH_MS - CLAIM_AHEAD_MS + 1))
    assert len(lane.take(T - CLAIM_AHEAD_MS, 10)) == 2


def test_no_more_is_claimed_than_slots_are_free() -> None:
    lane = a_lane(concurrency=4)
    for _ in range(10):
        lane.add(a_ref())
    assert len(lane.take(T, 500)) == 4
    assert not lane.wants(T)


def test_claims_start_at_their_moment_in_free_slots_only() -> None:
    lane = a_lane(concurrency=2)
    refs = [a_ref(T), a_ref(T), a_ref(T), a_ref(T + 5)]
    for ref in refs:
        lane.claimed(a_claim(ref), ref, T)
    assert list(lane.startable(T - 0.001, 0.0)) == []
    assert len(list(lane.startable(T, 0.0))) == 2
    assert list(lane.startable(T, 0.0)) == []
    assert lane.next_ms(T) == T + HOLD_MS
    lane.in_flight = 0
    assert len(list(lane.startable(T, 0.0))) == 1
    assert lane.next_ms(T) == T + 5


def test_a_backlog_that_comes_back_goes_behind_what_was_there() -> None:
    """In the queue for a claim, and in that for a slot."""
    lane = a_lane(concurrency=1)
    old, new, late = a_ref(T - 3_600_000), a_ref(T - 10), a_ref(T - 60_000)
    lane.add(new)
    lane.add(old, T)
    assert lane.take(T, 1) == [new]
    lane.claimed(a_claim(new), new, T)
    lane.claimed(a_claim(late), late, T + 1)
    assert [ref for _, ref in lane.startable(T + 1, 0.0)] == [new]


def test_what_is_read_ahead_of_its_moment_does_not_keep_the_held_away() -> None:
    lane = a_lane(concurrency=4)
    for n in range(100):
        lane.add(a_ref(T + 500 + n))
    assert lane.refillable(T) == 4
    assert lane.refillable(T + 500) == 3


def test_a_hot_lane_claims_ahead_of_its_slots() -> None:
    lane = a_lane(concurrency=10)
    for turn in range(50):
        for _ in range(10):
            ref = a_ref()
            lane.claimed(a_claim(ref), ref, T)
        assert len(list(lane.startable(T, turn * 0.01))) == 10
        lane.in_flight = 0
    for _ in range(500):
        lane.add(a_ref())
    assert 50 < len(lane.take(T, 500)) <= 10 + 100


def test_an_entry_that_is_held_is_not_taken_twice() -> None:
    lane = a_lane()
    ref = a_ref(entry=b"1-0")
    assert lane.add(ref)
    assert not lane.add(ref)
    lane.take(T, 10)
    assert not lane.add(ref)
    lane.let_go(ref)
    assert lane.add(ref)


def test_a_full_lane_is_read_again_only_when_half_is_gone() -> None:
    lane = a_lane(concurrency=10_000)
    for _ in range(READ_AHEAD):
        lane.add(a_ref())
    assert not lane.has_room(T)
    lane.take(T, READ_AHEAD // 2)
    assert not lane.has_room(T)
    lane.take(T, 1)
    assert lane.has_room(T)


def test_references_of_later_do_not_keep_those_of_now_unread() -> None:
    lane = a_lane()
    for _ in range(READ_AHEAD):
        lane.add(a_ref())
    assert not lane.has_room(T)
    assert lane.has_room(T - 1_000)
    for _ in range(READ_AHEAD_MAX - READ_AHEAD):
        lane.add(a_ref())
    assert not lane.has_room(T - 1_000)


def test_a_claim_that_finds_no_slot_goes_back_while_its_lease_lasts() -> None:
    lane = a_lane(concurrency=1)
    refs = [a_ref(), a_ref(), a_ref()]
    for ref, claimed_ms in zip(refs, (T, T, T + 1_000), strict=True):
        lane.add(ref)
        lane.claimed(a_claim(ref), ref, claimed_ms)
    (started,) = lane.startable(T, 0.0)
    assert lane.next_ms(T) == T + HOLD_MS
    assert lane.stale(T + HOLD_MS - 1) == []
    ((_, back),) = lane.stale(T + HOLD_MS)
    assert {started[1], back} == set(refs[:2])
    assert lane.next_ms(T + HOLD_MS) == T + 1_000 + HOLD_MS


def test_a_claim_made_ahead_of_its_moment_does_not_start_before_it() -> None:
    lane = a_lane()
    ref = a_ref()._replace(moment_ms=T - 11)
    lane.claimed(a_claim(ref)._replace(start_time_ms=T), ref, T - 11)
    assert list(lane.startable(T - 1, 0.0)) == []
    assert len(list(lane.startable(T, 0.0))) == 1


def test_slots_become_more_only_when_all_brokers_know_of_each_other() -> None:
    lane = a_lane(10, share=Share(1, is_settled=False))
    assert lane.slots == 0
    lane.share(Share(1))
    assert lane.slots == 10
    lane.share(Share(2, is_settled=False))
    assert lane.slots == 5
    lane.share(Share(1, is_settled=False))
    assert lane.slots == 5


def test_a_lane_without_a_slot_is_not_read() -> None:
    lane = a_lane(1, share=Share(1, is_settled=False))
    assert not lane.has_room(T)


# -- the timekeeper -------------------------------------------------------------------------------


class FakeClock:
    """A clock in the test's hands."""

    def __init__(self) -> None:
        self.ms = float(T - 1_000)

    def now_ms(self) -> float:
        return self.ms


class Kept:
    """A timekeeper and what it asks for."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.batches: list[Batch] = []
        self.started: list[Ref] = []
        self.released: list[Ref] = []
        self.asking: list[Lane] = []
        self.may_claim = True
        self.timekeeper = Timekeeper(
            clock=self.clock,
            claim=self.batches.append,
            start=lambda _lane, _claim, ref: self.started.append(ref),
            release=lambda _lane, _claim, ref: self.released.append(ref),
            may_claim=lambda: self.may_claim,
            ask=self.asking.append,
        )

    async def turn(self, *lanes: Lane) -> None:
        for lane in lanes:
            self.timekeeper.touch(lane)
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_a_claim_call_takes_from_all_lanes_evenly() -> None:
    kept = Kept()
    hot, *others = [a_lane(1_000, name) for name in ("hot", "a", "b", "c")]
    for _ in range(2_000):
        hot.add(a_ref(T, name="hot"))
    for lane in others:
        for _ in range(3):
            lane.add(a_ref(T, name=lane.biz_type))
    kept.clock.ms = T
    await kept.turn(hot, *others)
    first = [ref.biz_type for _, ref in kept.batches[0].values()]
    assert len(first) == BATCH_ROWS_MAX
    assert [first.count(name) for name in ("a", "b", "c")] == [3, 3, 3]
    kept.timekeeper.stop()


async def test_priority_gives_a_larger_part_of_a_claim_call_and_never_all_of_it() -> None:
    kept = Kept()
    lanes = [a_lane(10_000, name, priority=p) for name, p in (("low", 0), ("mid", 5), ("high", 9))]
    for lane in lanes:
        for _ in range(1_900):
            lane.add(a_ref(T, name=lane.biz_type))
    kept.clock.ms = T
    await kept.turn(*lanes)
    first = [ref.biz_type for _, ref in kept.batches[0].values()]
    low, mid, high = (first.count(name) for name in ("low", "mid", "high"))
    assert low + mid + high == BATCH_ROWS_MAX
    assert 1 <= low < mid < high
    kept.timekeeper.stop()


async def test_of_more_lanes_than_a_claim_call_has_rows_none_is_passed_over() -> None:
    kept = Kept()
    lanes = [a_lane(10_000, f"b{i}", priority=9 if i % 2 else 0) for i in range(900)]
    for lane in lanes:
        for _ in range(5):
            lane.add(a_ref(T, name=lane.biz_type))
    kept.clock.ms = T
    await kept.turn(*lanes)
    served = {ref.biz_type for batch in kept.batches for _, ref in batch.values()}
    assert len(kept.batches) == CLAIM_CALLS_MAX
    assert len(served) == 900
    kept.timekeeper.stop()


async def test_only_so_many_claim_calls_are_under_way() -> None:
    kept = Kept()
    lane = a_lane(10_000)
    for _ in range(1_900):
        lane.add(a_ref())
    kept.clock.ms = T
    await kept.turn(lane)
    assert len(kept.batches) == CLAIM_CALLS_MAX
    kept.timekeeper.claim_ended([lane])
    await kept.turn()
    assert len(kept.batches) == CLAIM_CALLS_MAX + 1
    kept.timekeeper.stop()


async def test_two_references_to_one_task_are_not_claimed_in_one_call() -> None:
    kept = Kept()
    lane = a_lane(10)
    ref = a_ref(entry=b"1-0")
    lane.add(ref)
    lane.add(ref._replace(entry_id=b"2-0"))
    kept.clock.ms = T
    await kept.turn(lane)
    assert [len(batch) for batch in kept.batches] == [1]
    assert lane.depth == 2
    kept.timekeeper.stop()


async def test_nothing_is_claimed_while_claims_are_held() -> None:
    kept = Kept()
    lane = a_lane()
    lane.add(a_ref())
    kept.clock.ms, kept.may_claim = T, False
    await kept.turn(lane)
    assert kept.batches == []
    kept.may_claim = True
    kept.timekeeper.turn_soon()
    await kept.turn()
    assert len(kept.batches) == 1
    kept.timekeeper.stop()


async def test_a_moment_that_comes_wakes_its_lane_alone() -> None:
    kept = Kept()
    lane, other = a_lane(), a_lane(name="other")
    lane.add(a_ref(T))
    other.add(a_ref(T + 500, name="other"))
    await kept.turn(lane, other)
    assert kept.batches == []
    kept.clock.ms = T - CLAIM_AHEAD_MS
    kept.timekeeper.turn_soon()
    await kept.turn()
    assert [ref.biz_type for batch in kept.batches for _, ref in batch.values()] == ["orders"]
    kept.timekeeper.stop()


async def test_a_claim_is_started_when_its_moment_comes() -> None:
    kept = Kept()
    lane = a_lane()
    ref = a_ref(T)
    lane.claimed(a_claim(ref), ref, T)
    await kept.turn(lane)
    assert kept.started == []
    kept.clock.ms = T
    kept.timekeeper.turn_soon()
    await kept.turn()
    assert kept.started == [ref]
    kept.timekeeper.stop()


async def test_an_unknown_clock_starts_and_claims_nothing() -> None:
    kept = Kept()
    lane = a_lane()
    lane.add(a_ref(T))
    kept.clock.ms, kept.may_claim = float("-inf"), False
    await kept.turn(lane)
    assert (kept.batches, kept.started) == ([], [])
    kept.timekeeper.stop()
