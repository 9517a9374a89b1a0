"""
Keeps the time for all lanes of a broker: says what is claimed now, and what is started now.

One turn looks only at the lanes that something happened to (`touch`) or whose moment has come, so
its cost does not grow with the lanes that wait. Lanes that want a claim stand in a queue and share
each claim call by their priority, whatever one of them has in store. Nothing polls where nothing
waits: a turn follows a touch, the end of a claim call, or the one timer set for the earliest moment
of all.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Iterable
from itertools import count
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from broker.lane import CLAIM_REACH_MS, Lane
from broker.timer import Timer
from wheel_timer.task import Claim, Ref

BATCH_ROWS_MAX: Final = 500
# While the answer of one is read, Postgres works on the other. More would make smaller batches, and
# take connections that the settler needs.
CLAIM_CALLS_MAX: Final = 2
# How soon to look again at a clock that is not known, or at a queue of results that is full.
HELD_S: Final = 0.1
# The clock may be set, or corrected, while something waits for it.
TIMER_S_MAX: Final = 1.0

_order = count()


class Wanted(NamedTuple):
    """One task to be claimed, and for which lane."""

    lane: Lane
    ref: Ref


Batch = dict[UUID, Wanted]


class Now(Protocol):
    """What is needed of a `wheel_timer.clock.Clock`."""

    def now_ms(self) -> float: ...


class Timekeeper:
    """
    claim: begins a claim call for a batch of at most BATCH_ROWS_MAX (one reference a task) and
    calls `claim_ended` after it. start: begins one attempt. release: gives a claim back that found
    no slot. may_claim: whether claims are allowed. ask: this lane is short of tokens for what is
    due; it is touched when it has some.
    """

    def __init__(
        self,
        *,
        clock: Now,
        claim: Callable[[Batch], None],
        start: Callable[[Lane, Claim, Ref], None],
        release: Callable[[Lane, Claim, Ref], None],
        may_claim: Callable[[], bool],
        ask: Callable[[Lane], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._claim = claim
        self._start = start
        self._release = release
        self._may_claim = may_claim
        self._ask = ask
        self._touched: list[Lane] = []
        self._hungry: deque[Lane] = deque()
        self._alarms: list[tuple[float, int, Lane]] = []
        self._claim_calls = 0
        self._turn_handle: asyncio.Handle | None = None
        self._timer = Timer(self._turn)
        self.is_stopped = False

    def touch(self, lane: Lane) -> None:
        """Something happened to this lane: look at it, in this turn of the loop."""
        self._mark(lane)
        self.turn_soon()

    def claim_ended(self, lanes: Iterable[Lane]) -> None:
        """A claim call for these lanes is over; another may begin."""
        self._claim_calls -= 1
        for lane in lanes:
            self._mark(lane)
        self.turn_soon()

    def stop(self) -> None:
        """No claim and no start after this."""
        self.is_stopped = True
        if self._turn_handle is not None:
            self._turn_handle.cancel()
        self._timer.close()

    def turn_soon(self) -> None:
        """Look at the alarms again in this turn of the loop: the clock may have been set."""
        if self._turn_handle is None and not self.is_stopped:
            self._turn_handle = self._loop.call_soon(self._turn)

    def _mark(self, lane: Lane) -> None:
        if not lane.is_touched:
            lane.is_touched = True
            self._touched.append(lane)

    def _turn(self) -> None:
        if self._turn_handle is not None:
            self._turn_handle.cancel()
            self._turn_handle = None
        now_ms, now_s = self._clock.now_ms(), self._loop.time()
        while self._alarms and self._alarms[0][0] <= now_ms:
            at_ms, _, lane = heapq.heappop(self._alarms)
            if lane.alarm_ms == at_ms:
                lane.alarm_ms = None
                self._mark(lane)
        for lane in self._touched:
            lane.is_touched = False
            for claim, ref in lane.startable(now_ms, now_s):
                self._start(lane, claim, ref)
            for claim, ref in lane.stale(now_ms):
                self._release(lane, claim, ref)
            if not lane.is_hungry and lane.wants(now_ms):
                lane.is_hungry = True
                self._hungry.append(lane)
            self._wait(lane, now_ms)
        self._touched.clear()
        is_held = self._feed(now_ms)
        self._set_timer(now_ms, is_held)

    def _feed(self, now_ms: float) -> bool:
        """Begin the claim calls that can begin; True where lanes wait for leave to claim."""
        while self._hungry and self._claim_calls < CLAIM_CALLS_MAX:
            if not self._may_claim():
                return True
            batch = self._next_batch(now_ms)
            if batch:
                self._claim_calls += 1
                self._claim(batch)
        return False

    def _next_batch(self, now_ms: float) -> Batch:
        """
        Take from all hungry lanes in turn, each a share by its priority, one at least; who wants
        more takes what is left over. Lanes that found no room are the first in the next batch.
        """
        batch: Batch = {}
        while self._hungry and len(batch) < BATCH_ROWS_MAX:
            room = BATCH_ROWS_MAX - len(batch)
            weights = sum([lane.weight for lane in self._hungry])
            for _ in range(len(self._hungry)):
                if len(batch) == BATCH_ROWS_MAX:
                    break
                lane = self._hungry.popleft()
                share = max(1, room * lane.weight // weights)
                self._take(lane, now_ms, min(share, BATCH_ROWS_MAX - len(batch)), batch)
                if lane.wants(now_ms):
                    self._hungry.append(lane)
                else:
                    lane.is_hungry = False
                    self._wait(lane, now_ms)
        return batch

    def _take(self, lane: Lane, now_ms: float, limit: int, batch: Batch) -> None:
        for ref in lane.take(now_ms, limit):
            if ref.task_id in batch:
                # A second reference to a task: it is answered only after the first one's claim.
                lane.claiming -= 1
                lane.put_back(ref, int(now_ms) + 2 * CLAIM_REACH_MS)
                lane.gate.refund(now_ms)
            else:
                batch[ref.task_id] = Wanted(lane, ref)

    def _wait(self, lane: Lane, now_ms: float) -> None:
        """Nothing more can be done for a lane now: see to it that it is looked at again."""
        if lane.gate.is_narrow and lane.is_short(now_ms):
            self._ask(lane)
        at_ms = lane.next_ms(now_ms)
        if at_ms is not None and (lane.alarm_ms is None or at_ms < lane.alarm_ms):
            lane.alarm_ms = at_ms
            heapq.heappush(self._alarms, (at_ms, next(_order), lane))

    def _set_timer(self, now_ms: float, is_held: bool) -> None:
        delay_s = HELD_S if is_held else None
        if self._alarms:
            alarm_s = min(max(0.0, (self._alarms[0][0] - now_ms) / 1000), TIMER_S_MAX)
            delay_s = alarm_s if delay_s is None else min(delay_s, alarm_s)
        if delay_s is None:
            self._timer.clear()
        else:
            self._timer.set(delay_s)
