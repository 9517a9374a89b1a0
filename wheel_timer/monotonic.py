"""The clock that leases, bounds and waits are measured by: it goes on while the machine sleeps."""

from __future__ import annotations

import time
from typing import Final

# Linux' boot time; elsewhere the plain one, which does not stop there.
_SLEEPLESS: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def monotonic_s() -> float:
    """Seconds that pass for this machine, asleep or not."""
    return time.clock_gettime(_SLEEPLESS)
