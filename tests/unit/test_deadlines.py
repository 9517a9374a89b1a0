"""broker/deadlines.py: many deadlines on one timer."""

from __future__ import annotations

import asyncio

import pytest

from broker.deadlines import TICK_S, Deadlines
from wheel_timer.monotonic import monotonic_s

NEVER = 3600.0


async def call(deadlines: Deadlines, timeout_s: float, answer: asyncio.Event) -> str:
    deadline = deadlines.begin(monotonic_s() + timeout_s)
    try:
        await answer.wait()
        return "answered"
    except asyncio.CancelledError:
        if not deadline.was_cancelled_for_it():
            raise
        return "over"
    finally:
        deadlines.end(deadline)


async def test_only_those_whose_time_is_up_are_ended() -> None:
    deadlines, answer = Deadlines(), asyncio.Event()
    late = [asyncio.create_task(call(deadlines, 0.01, answer)) for _ in range(3)]
    early = asyncio.create_task(call(deadlines, NEVER, answer))
    assert await asyncio.gather(*late) == ["over"] * 3
    assert not early.done()
    answer.set()
    assert await early == "answered"


async def test_nobody_is_ended_before_the_time_is_up() -> None:
    begun_s = monotonic_s()
    assert await call(Deadlines(), 0.05, asyncio.Event()) == "over"
    assert 0.05 <= monotonic_s() - begun_s < 0.05 + 20 * TICK_S


async def test_a_shorter_deadline_comes_before_a_longer_one_that_began_earlier() -> None:
    deadlines, answer = Deadlines(), asyncio.Event()
    long = asyncio.create_task(call(deadlines, NEVER, answer))
    await asyncio.sleep(0)
    assert await call(deadlines, 0.01, asyncio.Event()) == "over"
    answer.set()
    assert await long == "answered"


async def test_a_task_that_somebody_else_cancels_is_cancelled() -> None:
    task = asyncio.create_task(call(Deadlines(), NEVER, asyncio.Event()))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_calls_that_ended_leave_no_timer_behind() -> None:
    deadlines, answer = Deadlines(), asyncio.Event()
    answer.set()
    for _ in range(5):
        assert await call(deadlines, 2 * TICK_S, answer) == "answered"
    await call(deadlines, 4 * TICK_S, asyncio.Event())
    assert deadlines.is_idle
