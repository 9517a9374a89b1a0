"""
What this broker knows of the configuration: the biz_types and the brake, a moment behind at most.

The clock's pulse carries the highest version in the database, which deletions and the brake draw
from the same sequence; a higher one than ours is read at once, so a change reaches every broker
within its second. Who meets a biz_type that is not here, or
is about to refuse something because of its configuration, asks for `refresh` first: another broker
may have changed it a millisecond ago.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from uuid import UUID

from wheel_timer.biz import BizType, BizTypeIn, merged
from wheel_timer.database import Database
from wheel_timer.errors import WheelTimerError
from wheel_timer.store import biz as store
from wheel_timer.store.brake import Brake, pull_brake

log = logging.getLogger(__name__)

# Until a read that failed is tried again: sooner than the next pulse.
AGAIN_S: Final = 0.5

Listener = Callable[[Sequence[BizType]], None]
DeletionListener = Callable[[Sequence[str]], None]
BrakeListener = Callable[[Brake | None], None]
# What a biz_type is to become, and what it was (None: it is new).
Judge = Callable[[BizType, BizType | None], None]


class Registry:
    """
    Every biz_type by its name, and the brake. `load` before the first use.

    judge: raises InvalidTask where this server will not have what a biz_type is to become.
    """

    def __init__(self, db: Database, judge: Judge = lambda _biz, _before: None) -> None:
        self._db = db
        self.judge = judge
        self._by_name: dict[str, BizType] = {}
        self._max_pending: dict[str, int] = {}
        self._version = 0
        self._told = 0  # the highest version that a pulse has brought
        self._seen = 0  # what was told up to here is known
        self._brake: Brake | None = None
        self._listeners: list[Listener] = []
        self._deletion_listeners: list[DeletionListener] = []
        self._brake_listeners: list[BrakeListener] = []
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
    def brake(self) -> Brake | None:
        """The brake of the whole wheel: while there is one, nothing new is called."""
        return self._brake

    @property
    def version(self) -> int:
        """Grows with every change that is known here."""
        return self._version

    @property
    def max_pending(self) -> Mapping[str, int]:
        """The biz_types that have a max_pending, and that."""
        return self._max_pending

    def names(self) -> list[str]:
        """All names known here, in order."""
        return sorted(self._by_name)

    def on_change(self, listener: Listener) -> None:
        """Call `listener` with the biz_types that are new or changed, each time there are some."""
        self._listeners.append(listener)

    def on_delete(self, listener: DeletionListener) -> None:
        """Call `listener` with the names that are gone, each time there are some."""
        self._deletion_listeners.append(listener)

    def on_brake(self, listener: BrakeListener) -> None:
        """Call `listener` with the brake whenever it was put on, taken off, or got a reason."""
        self._brake_listeners.append(listener)

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

    async def put(
        self, name: str, given: BizTypeIn, expected: int | None, *, actor: str = store.LOCAL
    ) -> store.Put:
        """Write a biz_type (see store.biz.put) and know it here at once."""

        def make(before: BizType | None) -> BizType:
            return merged(name, given, before)

        return await self.change(name, make, expected, actor=actor, action="biz.put")

    async def change(
        self, name: str, make: store.Make, expected: int | None, *, actor: str, action: str
    ) -> store.Put:
        """Change a biz_type (see store.biz.change) and know it here at once."""
        judged = self._judged(make)
        return await self._known(
            await store.change(self._db, name, judged, expected, actor=actor, action=action)
        )

    async def apply(
        self,
        makes: Mapping[str, tuple[store.Make, int | None]],
        *,
        actor: str,
        dry_run: bool,
        root: store.Root,
    ) -> list[store.Put]:
        """Change several biz_types, all or none (see store.biz.change_all)."""
        judged = {name: (self._judged(make), seen) for name, (make, seen) in makes.items()}
        puts = await store.change_all(
            self._db, judged, actor=actor, action="biz.apply", dry_run=dry_run, root=root
        )
        if not dry_run and any(put.changed for put in puts):
            log.info("%d biz_types are changed by an apply", sum(put.changed for put in puts))
            await self.refresh()
        return puts

    async def delete(
        self, name: str, expected: int | None, *, actor: str, purge_id: UUID | None = None
    ) -> None:
        """Delete a biz_type (see store.biz.delete) and forget it here at once."""
        version = await store.delete(self._db, name, expected, actor=actor, purge_id=purge_id)
        log.info("biz_type %s is deleted at version %d", name, version)
        await self.refresh()

    async def pull_brake(self, reason: str | None, *, actor: str) -> Brake | None:
        """Put the brake on, or take it off (None), and know it here at once."""
        brake = await pull_brake(self._db, reason, actor=actor)
        await self.refresh()
        return brake

    def _judged(self, make: store.Make) -> store.Make:
        def judged(before: BizType | None) -> BizType:
            biz = make(before)
            self.judge(biz, before)
            return biz

        return judged

    async def _known(self, put: store.Put) -> store.Put:
        if put.changed:
            log.info("biz_type %s is at version %d", put.biz.biz_type, put.biz.version)
            await self.refresh()
        return put

    def pulse(self, version: int) -> None:
        """The database's highest version, as the clock's pulse brings it."""
        self._told = max(self._told, version)
        if self._told > self._seen and self._follow is None:
            self._follow = asyncio.create_task(self._catch_up())

    async def _catch_up(self) -> None:
        """Read until all is known that was told of; also what was told meanwhile."""
        try:
            while (told := self._told) > self._seen:
                try:
                    await self.refresh()
                    # What else draws from the sequence moves the pulse too; that is no news here.
                    self._seen = told
                except WheelTimerError as error:
                    log.warning("the configuration could not be read, once more soon: %s", error)
                    await asyncio.sleep(AGAIN_S)
        finally:
            self._follow = None

    async def stop(self) -> None:
        """Follow no longer."""
        if self._follow is not None:
            self._follow.cancel()
            await asyncio.gather(self._follow, return_exceptions=True)

    def _take(self, news: store.News) -> None:
        if not news.version:
            return
        # A new dict, so that who iterates over the old one is not disturbed.
        known = self._by_name | {biz.biz_type: biz for biz in news.biz_types}
        gone = [name for name in news.deleted if known.pop(name, None) is not None]
        self._by_name = known
        self._max_pending = {
            name: biz.max_pending for name, biz in known.items() if biz.max_pending is not None
        }
        self._version = news.version
        self._seen = max(self._seen, news.version)
        if gone:
            for forget in self._deletion_listeners:
                forget(gone)
        if news.biz_types:
            for listener in self._listeners:
                listener(news.biz_types)
        if news.brake_moved and news.brake != self._brake:
            self._brake = news.brake
            log.warning("the brake is %s", "off" if news.brake is None else "on")
            for brake_listener in self._brake_listeners:
                brake_listener(news.brake)
