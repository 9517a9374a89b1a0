"""
A process says every 20 s that it lives, and at once when the database's clock has jumped.

Shards are shared out by it, and people look at it; the protocol does not hang on it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Literal

from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.errors import WheelTimerError
from wheel_timer.store import node as store
from wheel_timer.version import __version__

log: Final = logging.getLogger(__name__)

BEAT_EACH_S: Final = 20.0


class Heartbeat:
    """
    The heartbeat of one process. beaten: told after each how many of its role are alive; None
    where that is not known.
    """

    def __init__(
        self,
        db: Database,
        clock: Clock,
        node: str,
        role: Literal["broker", "daemon"],
        beaten: Callable[[int | None], None] = lambda _alive: None,
    ) -> None:
        self._db = db
        self._clock = clock
        self._node = node
        self._role = role
        self._beaten = beaten
        self._now = asyncio.Event()
        clock.on_jump(self._now.set)

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self._now.clear()
            alive: int | None = None
            try:
                jump_ms = self._clock.jump_ms
                alive = await store.beat(self._db, self._node, self._role, __version__, jump_ms)
            except WheelTimerError as error:
                log.warning("no heartbeat: %s", error)
            self._beaten(alive)
            try:
                async with asyncio.timeout(BEAT_EACH_S):
                    await self._now.wait()
            except TimeoutError:
                continue

    async def leave(self) -> None:
        """Say that the process ends in order."""
        try:
            await store.leave(self._db, self._node)
        except WheelTimerError as error:
            log.warning("left without saying so: %s", error)
