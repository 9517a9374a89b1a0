"""
What all hands share: a tick, and the loop around it.

A tick is one step of work: it takes no clock, may be repeated at any time, and says what it did and
when it wants to be called again. The loop looks at the leadership before each one, waits out
faults of what we stand on, and ends with the term.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final, NamedTuple, Protocol

from daemon.leader import Leader
from wheel_timer.errors import LeadershipLost, WheelTimerError

log: Final = logging.getLogger(__name__)

FAULT_PAUSE_S: Final = 0.25
FAULT_PAUSE_S_MAX: Final = 1.0


class Tick(NamedTuple):
    """work: rows dealt with. next_s: seconds from this tick's start to the next one's."""

    work: int
    next_s: float


class Hand(Protocol):
    """A duty of the leader of one shard."""

    name: str

    async def tick(self) -> Tick:
        """One step. Raises LeadershipLost, or what the stores raise; safe to repeat."""


async def turn(hand: Hand, leader: Leader) -> None:
    """Tick until the term is over. Never raises for a fault that will pass."""
    fault_pause_s = FAULT_PAUSE_S
    while leader.is_leader:
        start_s = time.monotonic()
        try:
            tick = await hand.tick()
        except LeadershipLost as error:
            leader.step_down(str(error))
            return
        except WheelTimerError as error:
            log.warning("the %s hand of shard %d waits: %s", hand.name, leader.shard, error)
            await asyncio.sleep(fault_pause_s)
            fault_pause_s = min(2 * fault_pause_s, FAULT_PAUSE_S_MAX)
            continue
        except Exception:
            # A defect: whoever leads next may fare better, and a lease that is kept without a
            # hand behind it would keep everybody else from trying.
            log.exception("the %s hand of shard %d failed", hand.name, leader.shard)
            leader.step_down("its hand failed")
            await asyncio.sleep(FAULT_PAUSE_S_MAX)
            return
        fault_pause_s = FAULT_PAUSE_S
        await _sleep_until(start_s + tick.next_s, leader)


async def _sleep_until(moment_s: float, leader: Leader) -> None:
    """Short naps, so that the end of a term is noticed soon."""
    while leader.is_leader:
        left_s = moment_s - time.monotonic()
        if left_s <= 0:
            return
        await asyncio.sleep(min(left_s, 1.0))
