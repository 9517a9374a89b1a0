"""broker/pull_lane.py: who gets what, what is read, what goes back; without any server."""

from __future__ import annotations

import pytest

from broker.pull_lane import LINGER_S, PullLane, Worker
from wheel_timer.biz import BizType
from wheel_timer.task import Ref
from wheel_timer.wheel import new_task_id

T = 1_800_000_000_000


def a_lane() -> PullLane:
    return PullLane(BizType(biz_type="jobs", version=1, delivery="pull"))


def fill(lane: PullLane, count: int, moment_ms: int = T) -> None:
    for n in range(count):
        at_ms = moment_ms + n
        lane.add(Ref(new_task_id(at_ms), at_ms, at_ms, T, "jobs", f"{at_ms}-0".encode()))


async def join(lane: PullLane, *wanted: int) -> list[Worker]:
    workers = [Worker(one, 1_000) for one in wanted]
    for worker in workers:
        lane.join(worker)
    return workers


async def test_references_are_dealt_round() -> None:
    lane = a_lane()
    greedy, modest, late = await join(lane, 5, 1, 5)
    fill(lane, 6)
    dealt = lane.deal(lane.take(T + 10, 100))
    got = [worker for _, worker in dealt.values()]
    assert [got.count(worker) for worker in (greedy, modest, late)] == [3, 1, 2]
    assert not lane.workers


async def test_no_more_is_taken_than_workers_want() -> None:
    lane = a_lane()
    fill(lane, 9)
    assert not lane.wants(T + 10)
    await join(lane, 2, 1)
    assert lane.wants(T + 10)
    assert len(lane.take(T + 10, 100)) == 3
    assert not lane.wants(T + 10), "these are being reserved"


async def test_what_is_dealt_to_nobody_waits_on() -> None:
    lane = a_lane()
    (worker,) = await join(lane, 2)
    fill(lane, 3)
    refs = lane.take(T + 10, 100)
    lane.leave(worker)
    assert lane.deal(refs) == {}
    assert (lane.claiming, lane.depth) == (0, 3)


async def test_nothing_is_taken_ahead_of_its_moment() -> None:
    lane = a_lane()
    await join(lane, 1)
    fill(lane, 1)
    assert not lane.wants(T - 1)
    assert lane.next_ms(T - 1) == T
    assert lane.take(T - 1, 1) == []
    assert len(lane.take(T, 1)) == 1


async def test_it_is_read_until_what_is_due_meets_the_wishes() -> None:
    lane = a_lane()
    assert not lane.has_room(T), "nobody waits"
    (worker,) = await join(lane, 3)
    fill(lane, 5, T + 500)
    assert lane.has_room(T), "none of it is due"
    fill(lane, 3)
    assert not lane.has_room(T + 10)
    lane.leave(worker)
    assert not lane.has_room(T)


async def test_what_nobody_here_wants_goes_back_after_a_while() -> None:
    lane = a_lane()
    (worker,) = await join(lane, 1)
    fill(lane, 4)
    assert lane.surplus(T + 10, 0.0) == []
    assert lane.surplus(T + 10, LINGER_S / 2) == []
    assert len(lane.surplus(T + 10, 1.0)) == 3
    assert lane.surplus(T + 10, 2.0) == []
    lane.leave(worker)
    assert lane.surplus(T + 10, 3.0) == []
    assert len(lane.surplus(T + 10, 4.0)) == 1


async def test_what_is_to_come_stays_as_long_as_somebody_waits() -> None:
    lane = a_lane()
    await join(lane, 1)
    fill(lane, 4, T + 1_000)
    assert lane.surplus(T, 0.0) == []
    assert lane.surplus(T, 9.0) == []


async def test_a_saturated_lane_takes_nothing_until_it_is_relieved() -> None:
    lane = a_lane()
    await join(lane, 1)
    fill(lane, 1)
    lane.is_saturated = True
    assert not lane.wants(T + 10)
    assert lane.next_ms(T + 10) is None
    assert lane.holds_back(T + 1_000) == ("concurrency", None)
    lane.is_saturated = False
    assert lane.wants(T + 10)


@pytest.mark.parametrize("is_first", [True, False])
async def test_who_waited_before_is_the_first_again(is_first: bool) -> None:
    lane = a_lane()
    one, two = await join(lane, 1, 1)
    lane.leave(two)
    lane.join(two, is_first=is_first)
    assert list(lane.workers) == ([two, one] if is_first else [one, two])
