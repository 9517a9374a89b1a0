"""
What this broker knows of the biz_types: a copy of timer_biz, never more than a moment behind.

The clock's pulse carries the highest version in the database; a higher one than ours is read at
once, so a change reaches every broker within its second. Who meets a biz_type that is not here, or
is about to refuse something because of its configuration, asks for `refresh` first: another broker
may have changed it a millisecond ago.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from wheel_timer.biz import BizType, BizTypeIn
from wheel_timer.database import Database
from wheel_timer.errors import WheelTimerError
from wheel_timer.store import biz as store

log = logging.getLogger(__name__)

Listener = Callable[[Sequence[BizType]], None]


class Registry:
    """Every biz_type by its name. `load` before the first use."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._by_name: dict[str, BizType] = {}
        self._version = 0
        self._listeners: list[Listener] = []
        self._reading = asyncio.Lock()
        self._reads_begun = 0
        self._follow: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Read everything there is. Raises DatabaseUnavailable."""
        await self.refresh()

    def get(self, name: str) -> BizType | None:
        """The biz_type as far as this broker knows."""
        return self._by_name.get(name)

    @property
    def version(self) -> int:
        """Grows with every change that is known here."""
        return self._version

    def names(self) -> list[str]:
        """All names known here, in order."""
        return sorted(self._by_name)

    def on_change(self, listener: Listener) -> None:
        """Call `listener` with the biz_types that are new or changed, each time there are some."""
        self._listeners.append(listener)

    async def refresh(self) -> None:
        """
        Know what the database knows now. Raises DatabaseUnavailable.

        Callers that come together share one read, but never one that began before they came.
        """
        seen = self._reads_begun
        async with self._reading:
            if self._reads_begun == seen:
                self._reads_begun += 1
                self._take(await store.load_newer(self._db, self._version))

    async def put(self, name: str, given: BizTypeIn, expected: int | None) -> store.Put:
        """Write a biz_type (see store.biz.put) and know it here at once."""
        put = await store.put(self._db, name, given, expected)
        if put.changed:
            log.info("biz_type %s is at version %d", name, put.biz.version)
            await self.refresh()
        return put

    def pulse(self, version: int) -> None:
        """The database's highest version, as the clock's pulse brings it."""
        if version > self._version and self._follow is None:
            self._follow = asyncio.create_task(self._catch_up())

    async def _catch_up(self) -> None:
        try:
            await self.refresh()
        except WheelTimerError as error:
            log.warning(
                "the configuration could not be read, the next pulse tries again: %s", error
            )
        finally:
            self._follow = None

    def _take(self, changed: Sequence[BizType]) -> None:
        if not changed:
            return
        # A new dict, so that who iterates over the old one is not disturbed.
        self._by_name = self._by_name | {biz.biz_type: biz for biz in changed}
        self._version = max(biz.version for biz in changed)
        for listener in self._listeners:
            listener(changed)
