"""
Moves a test's clock, and says when everything that is due by then has been done.

The way to a later moment leads over each moment at which something is due, as it would have been
lived through: the clock stops there until what is due is settled or waits for something else, so a
task that a callback submits for a moment before the end is called, too, and what expires between
two moments does not expire unattempted. After STOPS_EXACT of them the stops get coarser.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from wheel_timer.clock import Clock
from wheel_timer.database import Database, Session
from wheel_timer.errors import Conflict
from wheel_timer.store import testclock as store
from wheel_timer.store.testclock import Outlook, Shown

LOOK_EACH_S: Final = 0.005
STOPS_EXACT: Final = 50
STOPS_COARSE: Final = 20
# Due, nobody is calling it, and nothing has moved for so long: a limit holds it.
STUCK_S: Final = 1.5
# A broker has put it aside; one whose biz_type was just resumed comes back sooner than this.
HELD_S: Final = 0.25
# The longest that one call is waited for, beyond any timeout of a test's endpoint.
CALL_S_MAX: Final = 60.0


class TestClock:
    """
    One broker's hand on the clock; one move after the other, of all brokers.

    session: for the turn among them.
    """

    __test__ = False  # to pytest it would be a test, by its name

    def __init__(self, db: Database, clock: Clock, session: Session) -> None:
        self._db = db
        self._session = session
        self._clock = clock
        self._moving = asyncio.Lock()
        # What was left so the last time is not waited for again.
        self._stuck = 0
        self._held = 0

    async def shown(self) -> Shown:
        """What it shows. Raises Conflict where this database's clock is not a test's."""
        found = await store.shown(self._db)
        if found is None:
            raise Conflict("the clock of this database is not a test's", "invalid-request")
        return found

    async def move(
        self, *, to_ms: int | None, by_ms: int, freeze: bool | None
    ) -> tuple[Shown, Outlook]:
        """
        Go to to_ms, or by_ms further; then stand still, or run (None: as before). Returns what it
        shows then, and what is due and not called. Raises DatabaseUnavailable.
        """
        async with self._moving, self._turn():
            # What is being called now is called by the time of now.
            await self._quiet()
            before = await self.shown()
            at_ms = before.now_ms
            target_ms = at_ms + by_ms if to_ms is None else to_ms
            stops = 0
            while at_ms < target_ms:
                next_ms = (await store.outlook(self._db)).next_ms
                stop_ms = target_ms if next_ms is None else min(target_ms, next_ms)
                if stops >= STOPS_EXACT:
                    stop_ms = max(stop_ms, at_ms + (target_ms - at_ms) // STOPS_COARSE + 1)
                at_ms = min(stop_ms, target_ms)
                stops += 1
                await store.show(self._db, at_ms, frozen=True)
                await self._quiet()
            is_frozen = before.is_frozen if freeze is None else freeze
            await store.show(self._db, target_ms, frozen=is_frozen)
            await self._clock.measure()
            found = await self._quiet()
            return await self.shown(), found

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """Alone among the brokers. Raises DatabaseUnavailable."""
        try:
            while not await store.take_turn(self._session):  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(LOOK_EACH_S)
            yield
        finally:
            await self._session.close()

    async def _quiet(self) -> Outlook:
        """What there is once all that is due has been settled, waits, or is held back."""
        seen: Outlook | None = None
        since_s = time.monotonic()
        while True:
            found = await store.outlook(self._db)
            if seen is None or seen[:4] != found[:4]:
                seen, since_s = found, time.monotonic()
            if time.monotonic() - since_s >= self._patience_s(found):
                self._stuck, self._held = found.due, found.held
                return found
            await asyncio.sleep(LOOK_EACH_S)

    def _patience_s(self, found: Outlook) -> float:
        """How long to look on while nothing changes."""
        if found.calling:
            return CALL_S_MAX
        if found.due > self._stuck:
            return STUCK_S
        return HELD_S if found.held > self._held else 0.0
