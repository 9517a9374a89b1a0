"""
The ledger hand: folds what writers have appended to the ledger into its sums, once a second while
there is something, a page at a time; and shows the totals as gauges.

It belongs to the leader of shard 0. That there is something costs no look of its own: the due
hand's brings that along. Exact is the ledger without it too, for who reads it counts what is not
folded yet; this only keeps that little.
"""

from __future__ import annotations

import time
from typing import Final

from daemon.hand import Tick
from daemon.leader import Leader
from wheel_timer import metrics
from wheel_timer.database import Database
from wheel_timer.signal import reached
from wheel_timer.store import ledger as store

PAGE_DELTAS: Final = 10_000
FOLD_EACH_S: Final = 1.0
NAP_S: Final = 0.25
# The due hand has no look where it catches up with a long downtime.
LOOK_EACH_S: Final = 20.0
SHOW_EACH_S: Final = 5.0


class LedgerHand:
    """The ledger for one term."""

    name = "ledger"

    def __init__(self, *, db: Database, leader: Leader) -> None:
        self._db = db
        self._leader = leader
        self._is_wanted = True
        self._folded_s = 0.0
        self._has_changed = True
        self._shown_s = 0.0

    def wake(self) -> None:
        """There is something to fold."""
        self._is_wanted = True

    async def tick(self) -> Tick:
        """Fold one page."""
        began_s = time.monotonic()
        if not self._is_wanted and began_s - self._folded_s < LOOK_EACH_S:
            return Tick(0, NAP_S)
        folded = await store.fold(self._db, self._leader.epoch, PAGE_DELTAS)
        reached("ledger.folded")
        self._folded_s = began_s
        self._is_wanted = folded == PAGE_DELTAS
        self._has_changed |= folded > 0
        if self._has_changed and began_s - self._shown_s >= SHOW_EACH_S:
            totals = await store.totals(self._db)
            metrics.tasks_standing({t.biz_type: (t.pending, t.dead) for t in totals})
            self._shown_s = began_s
            self._has_changed = False
        return Tick(folded, 0.0 if self._is_wanted else FOLD_EACH_S)

    def end(self) -> None:
        """The term is over: the totals are another's to show."""
        metrics.tasks_standing({})
