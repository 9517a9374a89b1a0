"""
What a rate and a burst mean for a token bucket, and a bucket of this process alone. Pure.

The promise is: never more than rate + burst in any second. A token is used a moment after it was
taken (the claim, the call), and tokens are taken GRAIN_S apart, so a bucket of exactly `burst` at
exactly `rate` would break it by a few. So it holds less than `burst` by what comes while the calls
of a burst are late, and where `burst` is small, it fills a little slower (by 4% at most).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from wheel_timer.biz import BizType

# Tokens of a lane are taken so far apart at least: a hundred small calls a second, for all lanes of
# a broker together.
GRAIN_S: Final = 0.01
# Two grains: what comes while one is late must find room.
HELD_S: Final = 0.02
LATE_S: Final = 0.02
# A whole burst at once takes longer to start than a call now and then.
BURST_LATE_S: Final = 0.05


class Shape(NamedTuple):
    """A bucket: tokens that come a second, and how many it holds."""

    per_s: float
    capacity: float

    def shared(self, brokers: int) -> Shape:
        """The part of one broker of so many."""
        return Shape(self.per_s / brokers, max(1.0, self.capacity / brokers))


def shape_of(rate: float, burst: float | None) -> Shape:
    """The bucket that keeps a rate (a second) and a burst; None: that of one second."""
    if burst is None:
        burst = max(1.0, rate)
    # The fraction that comes until a token is fetched must find room beside it.
    capacity = max(1 + GRAIN_S * rate, HELD_S * rate, burst - BURST_LATE_S * rate)
    return Shape(min(rate, (rate + burst - capacity) / (1 + LATE_S)), capacity)


def callback_shape(biz: BizType) -> Shape | None:
    """The bucket of a biz_type's callbacks; None: there is no limit."""
    return None if biz.rate_limit is None else shape_of(biz.rate_limit, biz.burst)


def submit_shape(biz: BizType) -> Shape | None:
    """The bucket of a biz_type's submits: it holds those of one second."""
    return None if biz.submit_rate_limit is None else shape_of(biz.submit_rate_limit, None)


class Bucket:
    """A bucket of this process alone; starts empty."""

    def __init__(self, shape: Shape, now_s: float) -> None:
        self.shape = shape
        self._tokens = 0.0
        self._at_s = now_s

    def take(self, wanted: int, now_s: float) -> tuple[int, float]:
        """(tokens taken, seconds until the next one; 0 where all that was wanted was there)."""
        per_s, capacity = self.shape
        self._tokens = min(capacity, self._tokens + max(0.0, now_s - self._at_s) * per_s)
        self._at_s = now_s
        taken = min(wanted, int(self._tokens + 1e-9))
        self._tokens = max(0.0, self._tokens - taken)
        return taken, 0.0 if taken == wanted else (1 - self._tokens) / per_s
