"""
Reaps what is written about the wheel and its tasks beside them: the change log, versions of
biz_types, operations that have ended, keys and secrets that open nothing any more, attempts whose
task went while they were reported. The ledger stays, but by the day where it is old.

Once a day by the database's clock, in batches; a part of the reap hand's round.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Final

from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.signal import reached
from wheel_timer.store import ledger
from wheel_timer.store import reap as store
from wheel_timer.store.ledger import QuarterKey
from wheel_timer.store.reap import BATCH_ROWS_MAX, AttemptKey, ChangeKey

EACH_MS: Final = 86_400_000
# Changes of single tasks may be as many as the tasks: they are kept as long as a finished one is
# by default.
TASK_CHANGES_KEPT_MS: Final = 30 * 86_400_000
QUARTERS_AT_ONCE: Final = 10_000


class RecordReaper:
    """The daily round over the records. kept_s: the setting RETENTION."""

    def __init__(self, db: Database, clock: Clock, *, kept_s: float) -> None:
        self._db = db
        self._clock = clock
        self._kept_ms = round(kept_s * 1000)
        self._next_ms = 0.0

    async def round(self) -> AsyncIterator[int]:
        """Everything there is to do today, batch by batch; yields the rows that each deleted."""
        if self._clock.now_ms() < self._next_ms:
            return
        yield await store.reap_secrets(self._db)
        reaped = BATCH_ROWS_MAX
        while reaped >= BATCH_ROWS_MAX:
            reaped = await store.reap_records(self._db, self._kept_ms)
            reached("reap.records")
            yield reaped
        changes: ChangeKey | None = ChangeKey()
        while changes is not None:
            gone, changes = await store.reap_changes(
                self._db,
                changes,
                task_kept_ms=min(TASK_CHANGES_KEPT_MS, self._kept_ms),
                kept_ms=self._kept_ms,
            )
            yield gone
        attempts: AttemptKey | None = AttemptKey()
        while attempts is not None:
            gone, attempts = await store.reap_attempts(self._db, attempts)
            yield gone
        quarters: QuarterKey | None = QuarterKey()
        while quarters is not None:
            _, quarters = await ledger.coarsen(self._db, self._kept_ms, quarters, QUARTERS_AT_ONCE)
            yield 0
        # Only now: a round that broke off is begun again.
        self._next_ms = self._clock.now_ms() + EACH_MS
