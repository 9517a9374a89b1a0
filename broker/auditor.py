"""Runs the audits for the API: they read the whole wheel, so one run at a time, shared by all."""

from __future__ import annotations

import asyncio

from wheel_timer import metrics
from wheel_timer.database import Database
from wheel_timer.store.audit import Audit, run_audits


class Auditor:
    """The audits of one broker's database."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._running = asyncio.Lock()
        self._runs_begun = 0
        self._found: list[Audit] = []

    async def run(self) -> list[Audit]:
        """
        What the audits find. Callers that come together share one run, but never one that began
        before they came. Raises DatabaseUnavailable.
        """
        seen = self._runs_begun
        async with self._running:
            if self._runs_begun == seen:
                self._runs_begun += 1
                self._found = await run_audits(self._db)
                for audit in self._found:
                    if audit.kind == "violation":
                        metrics.audit_violations(audit.name, len(audit.rows))
            return self._found
