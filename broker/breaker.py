"""
One lane's breaker in one broker: stops calling an endpoint that fails, and finds out when it works.

    closed     every call may go; `consecutive` failures in a row --> open
    open       none goes, for open_for seconds --> half-open
    half-open  one at a time goes, a probe; it fails --> open, twice as long, up to OPEN_S_MAX
    open       another broker's call succeeds --> half-open (broker/recovery.py)
    any        a call that succeeds --> closed

Failures of calls that began before it opened say nothing new. An answer that shows an endpoint at
work (2xx, 410, a final status) is a success here; 429 is neither. Every broker judges by its own
calls: what keeps one of them from an endpoint may not trouble another; of the others it only hears
that there is cause to look. Pure.
"""

from __future__ import annotations

from typing import Final

from wheel_timer.biz import Breaker as Settings

OPEN_S_MAX: Final = 300.0


class Breaker:
    """until_ms: the end of the open state, None where it is closed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._failures = 0
        self._open_s = settings.open_for
        self._opened_ms = 0.0
        self.until_ms: float | None = None

    def configure(self, settings: Settings) -> None:
        """Work by these settings from now on; changed ones begin closed."""
        if settings != self._settings:
            self._settings = settings
            self._close()

    @property
    def is_closed(self) -> bool:
        return self.until_ms is None

    @property
    def is_calm(self) -> bool:
        """Whether a success would say nothing new."""
        return self.until_ms is None and not self._failures

    def is_open(self, now_ms: float) -> bool:
        """Whether nothing may go, not even a probe."""
        return self.until_ms is not None and now_ms < self.until_ms

    def answered(self, is_good: bool, started_ms: float, now_ms: float) -> None:
        """A call that began at started_ms has ended."""
        if is_good:
            self._close()
        elif not self._settings.enabled:
            return
        elif self.until_ms is None:
            self._failures += 1
            if self._failures >= self._settings.consecutive:
                self._open(now_ms)
        elif now_ms >= self.until_ms and started_ms >= self._opened_ms:
            self._open_s = min(2 * self._open_s, OPEN_S_MAX)
            self._open(now_ms)

    def heard(self, worked_ms: float, now_ms: float) -> bool:
        """
        The endpoint was at work for another broker at worked_ms. Whether this changes anything: one
        that has been open since before becomes half-open.
        """
        if not self.is_open(now_ms) or worked_ms <= self._opened_ms:
            return False
        self.until_ms = now_ms
        return True

    def _open(self, now_ms: float) -> None:
        self._opened_ms = now_ms
        self.until_ms = now_ms + self._open_s * 1000

    def _close(self) -> None:
        self._failures = 0
        self._open_s = self._settings.open_for
        self.until_ms = None
