"""
One lane of a biz_type whose tasks are pulled: references as in any lane, and the workers who wait.

    worker       open (waits) --> dealt to (a reserve call is under way) --> served, or open anew
    reference    read --> waiting --> claiming, dealt to a worker --> reserved, acknowledged

A worker is dealt to by one call at a time, and answered with what that call brings. References are
dealt round, one to each, in the order in which the workers came. Nothing is claimed ahead of its
moment, and no more than there are wishes: a lease runs from the reserve on.

Pure bookkeeping, no I/O; broker/reserving.py drives it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from broker.lane import FETCH_AHEAD_MAX, LATE_MS, READ_AHEAD_MAX, HoldsBack, Lane
from broker.share import Share
from wheel_timer.biz import BizType
from wheel_timer.task import Claim, Ref

# Due references that no worker here wants go to other brokers after so long. A worker that comes
# back from a short task finds them still here.
LINGER_S: Final = 0.05


class Worker:
    """
    One waiting reserve. wanted: tasks at most. answer: done when it is served, or sent away.
    """

    __slots__ = ("answer", "got", "is_leaving", "ttr_ms", "wanted")

    def __init__(self, wanted: int, ttr_ms: int) -> None:
        self.wanted = wanted
        self.ttr_ms = ttr_ms
        self.got: list[Claim] = []
        self.is_leaving = False
        self.answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def send_away(self) -> None:
        """Answer it with what it has."""
        if not self.answer.done():
            self.answer.set_result(None)


Dealt = dict[UUID, tuple[Ref, Worker]]


class PullLane(Lane):
    """
    wishes: tasks that open workers want, together. is_saturated: as many are reserved as may be.
    """

    ahead_ms = 0
    reach_ms = 0

    def __init__(self, biz: BizType, *, is_braked: bool = False) -> None:
        self.workers: deque[Worker] = deque()  # the open ones, who came first first
        self.wishes = 0
        self.is_saturated = False
        self._surplus_since_s: float | None = None
        super().__init__(biz, is_braked=is_braked)

    def share(self, share: Share) -> None:
        """Reservations are counted in Postgres, for they outlive the broker that made them."""

    def join(self, worker: Worker, *, is_first: bool = False) -> None:
        """A worker waits; is_first: it has waited before, and nothing came of its call."""
        if is_first:
            self.workers.appendleft(worker)
        else:
            self.workers.append(worker)
        self.wishes += worker.wanted
        self.see()

    def leave(self, worker: Worker) -> bool:
        """A worker waits no longer; False where a call is under way for it."""
        if worker not in self.workers:
            return False
        self.workers.remove(worker)
        self.wishes -= worker.wanted
        self.see()
        return True

    def see(self) -> None:
        """A claim has ended, or the wishes are others: what may be claimed now."""
        self.slots = self.wishes + self.claiming

    def deal(self, refs: Sequence[Ref]) -> Dealt:
        """
        Deal references out that were taken, one to each worker in turn; those who got one are not
        open now. More than are wanted wait on.
        """
        dealt: Dealt = {}
        round_of = deque((worker, worker.wanted) for worker in self.workers)
        chosen: set[Worker] = set()
        for ref in refs:
            if not round_of:
                self.claiming -= 1
                self.put_back(ref, ref.moment_ms)
                continue
            worker, wanted = round_of.popleft()
            dealt[ref.task_id] = (ref, worker)
            chosen.add(worker)
            if wanted > 1:
                round_of.append((worker, wanted - 1))
        for worker in chosen:
            self.leave(worker)
        self.see()
        return dealt

    def has_room(self, now_ms: float) -> bool:
        """Whether more is to be read: until what is due here meets the wishes."""
        if not self.wishes or self.gate.hold(now_ms) is not None:
            return False
        return len(self._waiting) < READ_AHEAD_MAX and self._missing(now_ms) > 0

    def _missing(self, now_ms: float) -> int:
        return self.wishes - self._due(self.wishes, now_ms)

    def fetchable(self, now_ms: float) -> int:
        """How many references to fetch straight from Postgres."""
        if self.gate.hold(now_ms) is not None:
            return 0
        return min(FETCH_AHEAD_MAX, self._missing(now_ms))

    def refillable(self, now_ms: float) -> int:
        """The same of those that were held while they were to be called."""
        return self.fetchable(now_ms)

    def surplus(self, now_ms: float, now_s: float) -> list[Ref]:
        """
        Take what others may have use for: for LINGER_S more is due here than anybody here wants; or
        anything is here while nobody wants any. now_s: of the event loop, which no test stops.
        """
        if self.gate.hold(now_ms) is not None:
            return self.give_up_waiting()
        wishes = self.wishes
        if not self._waiting or (wishes and self._due(wishes + 1, now_ms) <= wishes):
            self._surplus_since_s = None
        elif self._surplus_since_s is None:
            self._surplus_since_s = now_s
        elif now_s - self._surplus_since_s >= LINGER_S:
            self._surplus_since_s = None
            return self.give_up_waiting(keep=wishes)
        return []

    def wants(self, now_ms: float) -> bool:
        """Whether something is due that a worker waits for."""
        return not self.is_saturated and super().wants(now_ms)

    def next_ms(self, now_ms: float) -> float | None:
        """The moment to look at this lane again; a saturated one is touched when it is not."""
        return None if self.is_saturated else super().next_ms(now_ms)

    def holds_back(self, now_ms: float) -> tuple[HoldsBack, float | None] | None:
        """Why what is due is not given to those who wait."""
        if self.gate.hold(now_ms) is not None:
            return "paused", None
        if not self.wishes or not self._waiting or self._waiting[0][0] > now_ms - LATE_MS:
            return None
        if self.is_saturated:
            return "concurrency", None
        return ("rate_limited", self.gate.next_ms(now_ms)) if self.gate.is_narrow else None
