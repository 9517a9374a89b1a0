"""
The API keys as this broker knows them: a copy of timer_key_api, never more than a moment behind.

A request is judged by this copy alone, so a key costs a hash and a look into a dict. The clock's
pulse carries the newest version of the configuration; keys that were changed are read at once, so
a revocation holds everywhere within two seconds. A key that does not fit the copy is looked for in
the database before it is refused: another broker may have made it a moment ago. Those looks are
shared and spaced, so that wrong keys cost the database nothing.
"""

from __future__ import annotations

import asyncio
import logging
from hashlib import sha256
from secrets import token_hex, token_urlsafe
from typing import Final, NamedTuple, cast

from broker.api.actor import SCOPES, Actor, Scope
from wheel_timer.bearer import KEY_PREFIX, GivenKey
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.errors import WheelTimerError
from wheel_timer.monotonic import monotonic_s
from wheel_timer.store import keys as store
from wheel_timer.store.keys import KeyRow

log = logging.getLogger(__name__)

# Between two looks into the database for keys that are not in the copy.
LOOK_EACH_S: Final = 0.25


class Made(NamedTuple):
    """A key just made or rotated. text: the key itself, which nobody can show again."""

    key_id: str
    text: str


class _Key(NamedTuple):
    """A key's row and the actor that it makes of a caller."""

    row: KeyRow
    actor: Actor


class Keys:
    """Every key by its id. `load` before the first use."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock
        self._by_id: dict[str, _Key] = {}
        self._version = 0
        self._reading = asyncio.Lock()
        self._reads_begun = 0
        self._begun_s = -LOOK_EACH_S
        self._told = 0
        self._known = 0
        self._follow: asyncio.Task[None] | None = None

    async def load(self) -> None:
        """Read everything there is. Raises DatabaseUnavailable."""
        await self.refresh()

    def get(self, key_id: str) -> KeyRow | None:
        """A key by its id, as far as this broker knows."""
        found = self._by_id.get(key_id)
        return None if found is None else found.row

    def rows(self) -> list[KeyRow]:
        """All keys, the revoked ones too, by their ids."""
        return [self._by_id[key_id].row for key_id in sorted(self._by_id)]

    def actor_of(self, given: GivenKey) -> Actor | None:
        """Who presents this key; None where it opens nothing as far as this broker knows."""
        found = self._by_id.get(given.key_id)
        if found is None or not found.row.opened_by(given.digest, self._clock.now_ms()):
            return None
        return found.actor

    async def look_again(self) -> None:
        """Know what the database knew after this was called; at most four reads a second."""
        seen = self._reads_begun
        wait_s = self._begun_s + LOOK_EACH_S - monotonic_s()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        if self._reads_begun == seen:
            await self.refresh()
        else:
            # Somebody who waited as we did reads already; that read began after we came.
            async with self._reading:
                pass

    async def refresh(self) -> None:
        """
        Know what the database knows now. Raises DatabaseUnavailable.

        Callers that come together share one read, but never one that began before they came.
        """
        seen = self._reads_begun
        async with self._reading:
            if self._reads_begun == seen:
                self._reads_begun += 1
                self._begun_s = monotonic_s()
                self._take(await store.load_newer(self._db, self._version))

    def pulse(self, version: int) -> None:
        """The newest version of the configuration, as each pulse of the clock brings it."""
        self._told = version
        if version != self._known and self._follow is None:
            self._follow = asyncio.create_task(self._catch_up())

    async def create(
        self,
        actor: str,
        *,
        name: str,
        scopes: tuple[Scope, ...],
        biz_types: tuple[str, ...],
        expire_at_ms: int | None,
    ) -> Made:
        """Make a key. Raises DatabaseUnavailable."""
        made = _made(token_hex(8))
        await store.create(
            self._db,
            actor,
            made.key_id,
            name=name,
            scopes=[scope for scope in SCOPES if scope in scopes],
            biz_types=biz_types,
            secret=_digest(made),
            expire_at_ms=expire_at_ms,
        )
        await self.refresh()
        return made

    async def rotate(self, actor: str, key_id: str, overlap_ms: int) -> Made | None:
        """Give a key a new secret; None where there is no such key or it is revoked."""
        made = _made(key_id)
        if not await store.rotate(self._db, actor, key_id, _digest(made), overlap_ms):
            return None
        await self.refresh()
        return made

    async def revoke(self, actor: str, key_id: str) -> None:
        """End a key; one that has ended, or never was, stays as it is."""
        await store.revoke(self._db, actor, key_id)
        await self.refresh()

    async def _catch_up(self) -> None:
        """A revoked key must not live on because one read failed, or began too early: go on."""
        try:
            while self._known != self._told:
                told = self._told
                await self.refresh()
                self._known = told
        except WheelTimerError as error:
            log.warning("the keys could not be read, the next pulse tries again: %s", error)
        finally:
            self._follow = None

    def _take(self, changed: list[KeyRow]) -> None:
        for row in changed:
            scopes = frozenset(cast(list[Scope], row.scopes))
            patterns = tuple(row.biz_types) if row.is_narrowed else None
            actor = Actor(f"key:{row.key_id}", scopes, patterns)
            self._by_id[row.key_id] = _Key(row, actor)
            self._version = max(self._version, row.version)


def _made(key_id: str) -> Made:
    return Made(key_id, f"{KEY_PREFIX.decode()}{key_id}_{token_urlsafe(32)}")


def _digest(made: Made) -> bytes:
    return sha256(made.text.split("_", 2)[2].encode()).digest()
