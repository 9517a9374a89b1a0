"""
Who leads a shard.

Authority: the pointer row. Whoever wrote its `epoch` leads, until somebody writes a higher one;
every write of a hand carries its epoch and is refused under any other (Postgres: `where epoch =
mine`; Redis: the publish script). The lease says when a leader that cannot be heard is replaced,
the advisory lock only makes replacing a dead one fast. Neither is trusted for safety.

    lease     LEASE_S from the start of a renewal, by the database's clock; renewed each third
    trusted   by the leader itself until LEASE_S - MARGIN_S after that start, on its own monotonic
              clock; from then on it writes nothing and stands by again
    takeover  the leader's lock fell: at once, under epoch + 1. Else once the lease has run out.
    lock      held by a leader as a sign of life. One that took over by lease has none yet, says
              so in the row, and tries for it with each renewal, then each UNLOCKED_RENEW_S: until
              it has it, that the lock is free says nothing

    leader killed              its session ends, the lock falls: a standby's next poll, <= POLL_S
    leader frozen, cut off     the lock stays; its lease runs out: <= LEASE_S + POLL_S
    ... and back again         its first write is refused, or it no longer trusts its lease; it lets
                               the lock go, which its heir takes, and stands by
    lock session cut alone     the next renewal fails and it stands by; till then its epoch holds
    renewal fails or errs      it stands by: in doubt nobody leads
    renewed when it was over   so it stays: a term that has ended does not begin again
    two start at once          the row lock orders them; the second finds the lock taken
    same host and name         the identity carries a boot nonce

A standby polls. One that waited in pg_advisory_lock would hold a snapshot, and stop vacuum in the
whole database.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from wheel_timer import metrics
from wheel_timer.database import Database, Session
from wheel_timer.errors import LeadershipLost, WheelTimerError
from wheel_timer.monotonic import monotonic_s
from wheel_timer.signal import reached
from wheel_timer.store import leader as store
from wheel_timer.store.leader import Term

log: Final = logging.getLogger(__name__)

LEASE_S: Final = 12.0
RENEW_S: Final = LEASE_S / 3
UNLOCKED_RENEW_S: Final = 1.0
# Time for a write that has just begun to arrive before anybody else may lead.
MARGIN_S: Final = 2.0
POLL_S: Final = 0.2


class Leader:
    """
    One daemon's claim to one shard: standing by, or leading under `epoch`.

    session: the direct connection that holds the lock; db: for everything else.
    """

    def __init__(self, session: Session, db: Database, shard: int, identity: str) -> None:
        self._session = session
        self._db = db
        self.shard = shard
        self._identity = identity
        self._locked = False
        self._trusted_until_s = 0.0
        self.epoch = 0

    @property
    def is_leader(self) -> bool:
        """Whether this process may still write as the leader. Look before every tick."""
        return monotonic_s() < self._trusted_until_s

    async def poll(self) -> Term | None:
        """One look at the shard; the term, where it could be had. Raises DatabaseUnavailable."""
        start_s = monotonic_s()
        locked, expired = await store.poll(self._session, self.shard)
        if not (locked or expired):
            return None
        term = await store.take(
            self._session, self.shard, self._identity, round(LEASE_S * 1000), locked=locked
        )
        if term is None:
            return None
        self._locked = locked
        self.epoch = term.epoch
        self._trust(start_s)
        log.info(
            "leading shard %d under epoch %d (%s)",
            self.shard,
            self.epoch,
            "its lock was free" if locked else "the leader's lease had run out",
        )
        metrics.leads(self.shard, True)
        reached("leader.elected")
        return term

    def _trust(self, start_s: float) -> None:
        self._trusted_until_s = start_s + LEASE_S - MARGIN_S

    async def keep(self) -> None:
        """Renew until the term is over. Never raises; `is_leader` says how it stands."""
        renewed_s = monotonic_s()
        while self.is_leader:
            due_s = renewed_s + (RENEW_S if self._locked else UNLOCKED_RENEW_S)
            await asyncio.sleep(min(POLL_S, max(0.0, due_s - monotonic_s())))
            if monotonic_s() >= due_s and self.is_leader:
                renewed_s = monotonic_s()
                await self._renew()

    async def _renew(self) -> None:
        start_s = monotonic_s()
        try:
            if not self._session.is_open:
                self.step_down("its lock session was cut")
                return
            kept, self._locked = await store.renew(
                self._session, self.shard, self.epoch, round(LEASE_S * 1000), locked=self._locked
            )
            if not kept:
                self.step_down("another epoch leads")
            elif self.is_leader:
                self._trust(start_s)
            # Else the term ended while it was renewed: this process resigns, or had to wait for too
            # long. Its hands may have ended with it, so it does not begin again.
        except WheelTimerError as error:
            self.step_down(f"its lease could not be renewed: {error}")

    async def outbid(self, seen: int) -> None:
        """
        The event center has seen a higher epoch than ours. Lift ours above it: the database was
        restored from a backup. Raises LeadershipLost where we are simply not the leader any more.
        """
        epoch = await store.raise_epoch(self._db, self.shard, self.epoch, seen)
        if epoch is None:
            raise LeadershipLost(self.shard, self.epoch)
        log.warning(
            "the event center has seen epoch %d of shard %d; going on as %d",
            seen,
            self.shard,
            epoch,
        )
        self.epoch = epoch

    def step_down(self, why: str) -> None:
        """Write nothing more as the leader."""
        if self._trusted_until_s:
            log.warning("shard %d, epoch %d: stepping down: %s", self.shard, self.epoch, why)
            self._trusted_until_s = 0.0
            metrics.leads(self.shard, False)
            reached("leader.stepped_down")

    async def resign(self) -> None:
        """Give the lease and the lock back, in order, so that a standby need not wait."""
        self._trusted_until_s = 0.0
        metrics.leads(self.shard, False)
        try:
            if self.epoch and self._session.is_open:
                await store.renew(self._session, self.shard, self.epoch, 0, locked=self._locked)
            if self._locked and self._session.is_open:
                await store.unlock(self._session, self.shard)
        except WheelTimerError as error:
            log.warning("shard %d: the lease could not be given back: %s", self.shard, error)
        self._locked = False
