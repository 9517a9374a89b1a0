"""
Total deadlines of many calls at once, on one timer.

`asyncio.timeout` sets a timer of the event loop for each call: 7 us of the 90 that a call takes.
Nearly no call reaches its deadline, and none needs it to the millisecond, so here the calls whose
time is up within the same TICK_S share one entry, and an entry that was left by all costs nothing.

They are moments of `monotonic_s`: the clock of uvloop stands still while a turn of the loop lasts,
and a call whose task comes late to its first step has no more time for it.
"""

from __future__ import annotations

import asyncio
import heapq
from math import ceil
from typing import Any, Final

from wheel_timer.monotonic import monotonic_s

TICK_S: Final = 0.025


class Deadline:
    """One call's deadline. is_over: its time was up, and its task was cancelled for it."""

    __slots__ = ("is_over", "task", "tick")

    def __init__(self, task: asyncio.Task[Any], tick: int) -> None:
        self.task = task
        self.tick = tick
        self.is_over = False

    def was_cancelled_for_it(self) -> bool:
        """In the task, at a CancelledError: whether the deadline alone is the reason."""
        return self.is_over and self.task.uncancel() == 0


class Deadlines:
    """Cancels tasks whose time is up: `begin`, and `end` in any case."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[int, set[Deadline]] = {}
        self._ticks: list[int] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_tick = 0

    @property
    def is_idle(self) -> bool:
        """Whether no timer is set."""
        return self._timer is None

    def begin(self, until_s: float) -> Deadline:
        """The running task must be done by until_s (monotonic_s), and up to TICK_S of grace."""
        task = asyncio.current_task()
        assert task is not None
        tick = ceil(until_s / TICK_S)
        deadline = Deadline(task, tick)
        same = self._waiting.get(tick)
        if same is None:
            self._waiting[tick] = {deadline}
            heapq.heappush(self._ticks, tick)
            if self._timer is None or tick < self._timer_tick:
                self._set_timer()
        else:
            same.add(deadline)
        return deadline

    def end(self, deadline: Deadline) -> None:
        """The call is over, one way or another."""
        same = self._waiting.get(deadline.tick)
        if same is not None:
            same.discard(deadline)

    def _set_timer(self) -> None:
        """One timer, for the first tick that anybody still waits for."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._ticks and not self._waiting[self._ticks[0]]:
            del self._waiting[heapq.heappop(self._ticks)]
        if self._ticks:
            self._timer_tick = self._ticks[0]
            delay_s = max(0.0, self._timer_tick * TICK_S - monotonic_s())
            self._timer = self._loop.call_later(delay_s, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        now_tick = int(monotonic_s() / TICK_S)
        while self._ticks and self._ticks[0] <= now_tick:
            for deadline in self._waiting.pop(heapq.heappop(self._ticks)):
                deadline.is_over = True
                deadline.task.cancel()
        self._set_timer()
