"""
How long until the next attempt, and whether there is one: tenacity's strategies, no sleeping. Pure.

tenacity sleeps in memory; a retry here is a row that survives everything. So only its wait and
stop strategies are used, asked about attempts that happened elsewhere.

    backoff  d = initial x factor^(n-1), at most max; the delay is drawn from [d x (1 - jitter), d]
    ladder   the n-th failure waits the n-th step; the last step repeats
"""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Final

from tenacity import RetryCallState, Retrying, stop_after_attempt
from tenacity.wait import (
    wait_base,
    wait_chain,
    wait_exponential,
    wait_fixed,
    wait_random_exponential,
)

from wheel_timer.biz import Backoff, Retry

_RETRYING: Final = Retrying()
# For what we stand on ourselves (Postgres, Redis): soon again, at most 2 s apart.
_RECONNECT: Final = wait_random_exponential(multiplier=0.05, max=1)


class JitteredWait(wait_base):
    """tenacity strategy: a delay drawn from [d x (1 - jitter), d], d being another strategy's."""

    def __init__(self, wait: wait_base, jitter: float) -> None:
        self._wait = wait
        self._jitter = jitter

    def __call__(self, retry_state: RetryCallState) -> float:
        longest = self._wait(retry_state)
        return random.uniform(longest * (1 - self._jitter), longest)


def retry_delay_ms(policy: Retry, failures: int) -> int:
    """
    Milliseconds until the next attempt after the `failures`-th failure (1: the first); at least 1.

    Drawn anew at each call, so that tasks which failed together do not come back together.
    """
    seconds = float(_wait(policy.backoff, policy.ladder)(_after(failures)))
    return max(1, round(seconds * 1000))


def is_used_up(policy: Retry, failures: int) -> bool:
    """Whether the `failures`-th failure was the last one allowed."""
    return stop_after_attempt(policy.max_attempts)(_after(failures))


def reconnect_delay_s(failures: int) -> float:
    """Seconds until the next try at a server that did not answer so many times in a row."""
    return float(_RECONNECT(_after(failures)))


@lru_cache(maxsize=1024)
def _wait(backoff: Backoff, ladder: tuple[float, ...] | None) -> wait_base:
    if ladder is not None:
        return wait_chain(*(wait_fixed(step) for step in ladder))
    exponential = wait_exponential(
        multiplier=backoff.initial, exp_base=backoff.factor, max=backoff.max
    )
    return JitteredWait(exponential, backoff.jitter)


def _after(failures: int) -> RetryCallState:
    """What tenacity knows after so many failed attempts."""
    state = RetryCallState(retry_object=_RETRYING, fn=None, args=(), kwargs={})
    state.attempt_number = failures
    return state
