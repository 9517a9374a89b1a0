"""
Takes tokens for the lanes that have a rate limit, from the buckets that all brokers share.

A lane that could claim, but has no token, asks once; the answer brings tokens, or the time of the
next one, and the lane asks again then. All lanes of a broker that ask within a grain of time go
together, in one round trip, so a lane in want costs nothing but its part in that.

While Redis is away every lane has a bucket of its own here, empty at first, that fills with this
broker's share of the rate. Brokers that do not agree on whether it is away may reach twice the rate
together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from broker.bucket import GRAIN_S, Bucket, Shape
from broker.lane import Lane
from broker.timekeeper import Now
from wheel_timer.buckets import Ask, Granted
from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.eventcenter import EventCenter

KIND: Final = "rate"

logger = logging.getLogger(__name__)


class Tokens:
    """granted: called with a lane that may have got what it wants; brokers: how many share."""

    def __init__(
        self,
        *,
        event_center: EventCenter,
        clock: Now,
        granted: Callable[[Lane], None],
        brokers: Callable[[], int],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._event_center = event_center
        self._clock = clock
        self._granted = granted
        self._brokers = brokers
        self._asking: set[Lane] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0
        self._taking: asyncio.Task[None] | None = None
        self._is_stopped = False

    def ask(self, lane: Lane) -> None:
        """This lane wants tokens; once is enough until it was granted some."""
        if lane not in self._asking and not self._is_stopped:
            self._asking.add(lane)
            self._wake_at(lane.gate.next_ask_s)

    def open(self, lane: Lane) -> None:
        """A lane's limit is new or was changed: its bucket begins to fill, and what waits asks."""
        if lane.gate.shape is not None:
            self._asking.discard(lane)
            self.ask(lane)

    async def stop(self) -> None:
        """Ask no more; what was asked is answered."""
        self._is_stopped = True
        self._asking.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self._taking is not None:
            await asyncio.wait([self._taking])

    def _wake_at(self, when_s: float) -> None:
        if self._taking is not None or (self._timer is not None and self._timer_s <= when_s):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_s = when_s
        self._timer = self._loop.call_at(when_s, self._turn)

    def _turn(self) -> None:
        """Take for every lane whose time has come, or is so near that it goes along."""
        self._timer = None
        until_s = self._loop.time() + GRAIN_S / 2
        lanes = [lane for lane in self._asking if lane.gate.next_ask_s <= until_s]
        self._asking.difference_update(lanes)
        if lanes:
            self._taking = self._loop.create_task(self._take(lanes))
        else:
            self._sleep()

    def _sleep(self) -> None:
        if self._asking:
            self._wake_at(min(lane.gate.next_ask_s for lane in self._asking))

    async def _take(self, lanes: list[Lane]) -> None:
        now_ms = self._clock.now_ms()
        wanting: list[Lane] = []
        asks: list[Ask] = []
        for lane in lanes:
            shape = lane.gate.shape
            wanted = lane.missing_tokens(now_ms)
            # A bucket that is new is asked for nothing, so that it begins to fill.
            if shape is not None and (wanted or lane.gate.is_new):
                lane.gate.is_new = False
                wanting.append(lane)
                asks.append(Ask(KIND, lane.biz_type, *shape, wanted))
        try:
            answers = await self._answers(wanting, asks) if asks else []
        finally:
            self._taking = None
        now_ms, now_s = self._clock.now_ms(), self._loop.time()
        for lane, ask, answer in zip(wanting, asks, answers, strict=True):
            gate = lane.gate
            if answer.tokens:
                gate.grant(answer.tokens, now_ms)
            # Where the limit was changed meanwhile, this wait is that of the old one.
            if gate.shape == (ask.per_s, ask.capacity):
                gate.next_ask_s = now_s + max(GRAIN_S, answer.wait_s) if answer.wait_s else now_s
            if ask.wanted:
                self._granted(lane)
        self._sleep()

    async def _answers(self, lanes: list[Lane], asks: list[Ask]) -> list[Granted]:
        reach = self._event_center.reach
        if not reach.is_away:
            try:
                answers = await self._event_center.take_tokens(asks)
                for lane in lanes:
                    lane.gate.local = None
                return answers
            except EventCenterUnavailable as error:
                logger.warning("rates are kept by each broker for itself: %s", error)
                reach.failed(error)
        return [self._take_local(lane, ask) for lane, ask in zip(lanes, asks, strict=True)]

    def _take_local(self, lane: Lane, ask: Ask) -> Granted:
        now_s = self._loop.time()
        # The limit that was asked for: by now the lane may have another, or none.
        shape = Shape(ask.per_s, ask.capacity).shared(self._brokers())
        if lane.gate.local is None:
            lane.gate.local = Bucket(shape, now_s)
        lane.gate.local.shape = shape
        return Granted(*lane.gate.local.take(ask.wanted, now_s))
