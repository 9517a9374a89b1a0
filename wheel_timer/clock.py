"""
The database's clock, as a process knows it without asking each time.

Postgres keeps the one clock. A process asks for it every second or so and keeps, from each answer,
two bounds by its own monotonic clock: when the answer came, the database's clock had reached at
least the value in it; when the question went out, at most that value. The best lower bound is what
"now" means here, so that nothing starts early. One and the same query also tells whether a
biz_type has changed, and the due hand's look carries it along.

A jump of the database's clock forward by more than `jump_max_s` against the monotonic clock makes
the clock unknown: nothing is claimed and no moment is closed until it comes back or an operator
accepts it (jump.py). Downtime is no jump; a clock set for tests is none either, and is asked for
all the time, so that whoever sets it waits for milliseconds only.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from wheel_timer import metrics
from wheel_timer.database import Database
from wheel_timer.errors import WheelTimerError
from wheel_timer.jump import Accepted, JumpGuard
from wheel_timer.monotonic import monotonic_s
from wheel_timer.signal import reached

log: Final = logging.getLogger(__name__)

PULSE_BUSY_S: Final = 1.0
# A change of a biz_type is known within 2 s. Two idle brokers at 1.5 s are 1.3 queries a second.
PULSE_IDLE_S: Final = 1.75
# A test's clock: who sets it waits for this. An idle process takes 4% of a core for it.
PULSE_TEST_S: Final = 0.02
# Beyond this nobody can say whether it is time, and nothing is claimed.
UNCERTAINTY_MS_MAX: Final = 50.0
SAMPLES_KEPT: Final = 10
# Between two samples a quartz may drift by 100 ppm, and no more is trusted.
SLOWEST_MS: Final = 1000 * (1 - 100e-6)
FASTEST_MS: Final = 1000 * (1 + 100e-6)


class _Sample(NamedTuple):
    """The database's clock was in [lower_ms, upper_ms] at monotonic time at_s."""

    at_s: float
    lower_ms: float
    upper_ms: float


class Pulse(NamedTuple):
    """
    What the database says of its clock (last of all), the highest biz_type version, what was
    accepted of jumps (as jump.Accepted), and when it was restored from a backup (0: never).
    """

    is_test: bool
    is_frozen: bool
    biz_version: int
    jumps_accepted: int
    jump_ahead_ms: int
    restored_ms: int
    now_us: int


class Clock:
    """
    The estimate of one process. Call `measure` once before use; `run` keeps it fresh.

    jump_max_s: the CLOCK_JUMP_MAX setting. restored_ms: what was due by then may have been called
    before the database was restored from a backup; 0: it never was. offset_ms: its clock less this
    machine's, at the last answer.
    """

    def __init__(self, db: Database, *, jump_max_s: float = 60.0) -> None:
        self._db = db
        self._guard = JumpGuard(jump_max_s * 1000)
        self._samples: deque[_Sample] = deque(maxlen=SAMPLES_KEPT)
        self._lower_ms = -math.inf
        self._upper_ms = math.inf
        self._frozen_ms: float | None = None
        self._test = False
        self._busy = False
        self.restored_ms = 0
        self.offset_ms = 0.0
        self._listeners: list[Callable[[int], None]] = []
        self._test_listeners: list[Callable[[], None]] = []
        self._jump_listeners: list[Callable[[], None]] = []

    @property
    def is_test(self) -> bool:
        """Whether the database's clock is a test's, which may be set at any time."""
        return self._test

    @property
    def jump_ms(self) -> float | None:
        """How far the database's clock has jumped forward; None where it is followed."""
        return self._guard.ahead_ms

    @property
    def is_lost(self) -> bool:
        """
        Whether the database's clock is ahead of the machine's, and never was anything else here: it
        has jumped before we came, or the machine's clock is wrong, and the others know the time.
        """
        return self._guard.ahead_ms is not None and not self._samples

    def on_biz_version(self, listener: Callable[[int], None]) -> None:
        """
        Call `listener` with the highest version of the configuration at every pulse.

        At every one, so that who could not read it, or read too early, does so at the next.
        """
        self._listeners.append(listener)

    def on_test_pulse(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each answer of a test's clock: it may have been set."""
        self._test_listeners.append(listener)

    def on_jump(self, listener: Callable[[], None]) -> None:
        """Call `listener` when the clock has jumped, and when it is followed again."""
        self._jump_listeners.append(listener)

    def busy(self) -> None:
        """Something is under way: pulse at the quicker rate until the next pulse."""
        self._busy = True

    async def measure(self) -> None:
        """Ask the database for its clock once. Raises DatabaseUnavailable."""
        row, sent_s, came_s = await self._db.fetch_timed("pulse")
        self.observe(Pulse._make(row), sent_s, came_s)

    def observe(self, pulse: Pulse, sent_s: float, came_s: float) -> None:
        """Take in an answer; when its question went out, and when it came (monotonic_s)."""
        now_ms = pulse.now_us / 1000
        if pulse.is_test or pulse.is_test != self._test:
            self._samples.clear()
        self._test = pulse.is_test
        self._frozen_ms = now_ms if pulse.is_frozen else None
        self.restored_ms = pulse.restored_ms
        accepted = Accepted(pulse.jumps_accepted, pulse.jump_ahead_ms)
        self._take(_Sample(came_s, now_ms, now_ms + (came_s - sent_s) * 1000), accepted)
        self.offset_ms = now_ms - time.time() * 1000
        metrics.clock_offset(self.offset_ms / 1000)
        reached("clock.measured")
        for listener in self._listeners:
            listener(pulse.biz_version)
        if self._test:
            for told in self._test_listeners:
                told()

    def _take(self, sample: _Sample, accepted: Accepted) -> None:
        if not self._test:
            is_first = not self._samples
            expected_ms = time.time() * 1000 if is_first else self._latest(sample.at_s)
            ahead_ms = sample.lower_ms - expected_ms
            had_jumped = self._guard.ahead_ms is not None
            follows = self._guard.follows(
                ahead_ms,
                accepted,
                is_first=is_first,
                off_machine_ms=sample.lower_ms - time.time() * 1000,
                at_s=sample.at_s,
            )
            metrics.clock_jump((self._guard.ahead_ms or 0.0) / 1000)
            if had_jumped == follows:
                for listener in self._jump_listeners:
                    listener()
            if not follows:
                return
            if ahead_ms > 0:
                # Set forward, by little or by consent: what it said before no longer bounds it.
                self._samples.clear()
        if self._samples and self._now(sample.at_s) > sample.upper_ms:
            # It was set back: what it said before no longer bounds it.
            self._guard.set_back(self._now(sample.at_s) - sample.upper_ms, sample.at_s)
            self._samples.clear()
        self._samples.append(sample)
        # All samples age alike, so the best of them is the best for good.
        self._lower_ms = max(s.lower_ms - s.at_s * SLOWEST_MS for s in self._samples)
        self._upper_ms = min(s.upper_ms - s.at_s * FASTEST_MS for s in self._samples)

    def _now(self, at_s: float) -> float:
        return self._lower_ms + at_s * SLOWEST_MS

    def _latest(self, at_s: float) -> float:
        return self._upper_ms + at_s * FASTEST_MS

    def now_ms(self) -> float:
        """The database's clock in ms, never ahead of it. Unknown is -inf: no moment has come."""
        if self._frozen_ms is not None:
            return self._frozen_ms
        if self.is_lost:
            # Submits are taken and shown all the same; the machine's clock is the one behind.
            return time.time() * 1000
        return self._now(monotonic_s())

    def latest_ms(self) -> int | None:
        """
        What the database's clock shows by now at most, if it has not jumped since the last answer.
        None where nothing is known, and under a test's clock, which jumps as it likes.
        """
        if self._test or not self._samples:
            return None
        return math.ceil(self._latest(monotonic_s()))

    def uncertainty_ms(self) -> float:
        """How far the true value may lie ahead of `now_ms`."""
        if not self._samples or self._guard.ahead_ms is not None:
            return math.inf
        at_s = monotonic_s()
        return max(0.0, self._latest(at_s) - self._now(at_s))

    def signing_ms(self, now_ms: float) -> float:
        """
        When a callback of now_ms is said to be signed. A receiver judges its age by its own clock,
        which no test has set: so under a test's clock it is the machine's.
        """
        return time.time() * 1000 if self._test else now_ms

    def is_known(self) -> bool:
        """Whether the clock is known well enough to call anybody by it."""
        return self.uncertainty_ms() <= UNCERTAINTY_MS_MAX

    def reached(self, moment_ms: float) -> bool:
        """Whether a moment has come."""
        return self.now_ms() >= moment_ms

    def seconds_until(self, moment_ms: float) -> float:
        """How long until a moment, at least 0."""
        return max(0.0, (moment_ms - self.now_ms()) / 1000)

    def _pulse_s(self) -> float:
        if self._test:
            return PULSE_TEST_S
        return PULSE_BUSY_S if self._busy else PULSE_IDLE_S

    async def run(self) -> None:
        """Measure until cancelled. A database that does not answer leaves the last estimate."""
        while True:
            await asyncio.sleep(self._pulse_s())
            self._busy = False
            try:
                await self.measure()
            except WheelTimerError as error:
                log.warning("the database's clock could not be read: %s", error)
                # Not at the pace of a test's clock.
                await asyncio.sleep(PULSE_BUSY_S)
