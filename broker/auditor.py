"""
Runs the audits for the API and the console: they read the whole wheel, so one run at a time, shared
by all. What the last one found is kept in Postgres, for whoever looks.
"""

from __future__ import annotations

import asyncio
import logging
import time

from wheel_timer import metrics
from wheel_timer.database import Database
from wheel_timer.errors import WheelTimerError
from wheel_timer.store import audit as store
from wheel_timer.store.audit import Audit, run_audits

log = logging.getLogger(__name__)


class Auditor:
    """The audits of one broker's database. `stop` ends what was begun."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._running = asyncio.Lock()
        self._runs_begun = 0
        self._found: list[Audit] = []
        self._begun: set[asyncio.Task[None]] = set()

    async def run(self) -> list[Audit]:
        """
        What the audits find. Callers that come together share one run, but never one that began
        before they came. Raises DatabaseUnavailable.
        """
        seen = self._runs_begun
        async with self._running:
            if self._runs_begun == seen:
                self._runs_begun += 1
                self._found = [await self._run(file.name) for file in store.audit_files()]
            return self._found

    async def begin(self, name: str) -> bool:
        """
        Run one audit behind whatever runs; False where somebody runs it already. Whoever wants to
        know what it found asks store.audit.
        """
        if not await store.begin(self._db, name):
            return False
        task = asyncio.create_task(self._run_behind(name))
        self._begun.add(task)
        task.add_done_callback(self._begun.discard)
        return True

    async def stop(self) -> None:
        """Give up what was begun."""
        for task in self._begun:
            task.cancel()
        await asyncio.gather(*self._begun, return_exceptions=True)

    async def _run_behind(self, name: str) -> None:
        began_s = time.monotonic()
        try:
            async with self._running:
                await self._run(name)
        except (WheelTimerError, asyncio.CancelledError) as error:
            told = str(error) or "the broker that ran it has stopped"
            log.warning("the audit %s is given up: %s", name, told)
            try:
                await store.give_up(self._db, name, (time.monotonic() - began_s) * 1000, told)
            except WheelTimerError as silent:
                log.warning("nor could that be noted: %s", silent)

    async def _run(self, name: str) -> Audit:
        began_s = time.monotonic()
        (audit,) = await run_audits(self._db, only=[name])
        try:
            await store.keep(self._db, audit, (time.monotonic() - began_s) * 1000)
        except WheelTimerError as error:
            log.warning("what the audit %s has found could not be kept: %s", name, error)
        if audit.kind == "violation":
            metrics.audit_violations(audit.name, len(audit.rows))
        return audit
