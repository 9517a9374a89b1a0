"""
How long a request may wait for its turn at the database.

A client of ours waits 5 s in all. Who has waited for longer in a queue has gone, and has asked
again since: to serve him first is to serve nobody in time once the database is back (a lock of 30 s
on the wheel left 5 s of such work before the first request that somebody waited for). He is refused
with nothing taken.
"""

from __future__ import annotations

from typing import Final

from wheel_timer.errors import Overloaded

WAIT_S_MAX: Final = 4.0


def is_over(since_s: float, now_s: float) -> bool:
    """Whether who waits since then has waited for too long. Seconds of the event loop's clock."""
    return now_s - since_s > WAIT_S_MAX


def refusal() -> Overloaded:
    """What he is told."""
    return Overloaded(f"the database took nothing for {WAIT_S_MAX:g} s")
