"""
Which claimed occurrences of schedules are called: not one that comes too late, or while another of
its schedule is not settled, where the schedule says so. What is not called is cancelled, and says
why.

It is asked once, before the first call: an occurrence that has been called is a task like any
other, and so is one that somebody has moved, run or replayed. The rule for the late ones is
computed from the schedule as it is now, without a look at its other occurrences; so it does not
matter in which order they are claimed, or by whom, and whether all of them are on the wheel yet.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple
from uuid import UUID

from wheel_timer.database import Database
from wheel_timer.log import fields_of
from wheel_timer.monotonic import monotonic_s
from wheel_timer.schedule import Schedule, called_from, is_missed
from wheel_timer.store.occurrence import admit, terms
from wheel_timer.task import Claim

log: Final = logging.getLogger(__name__)

OVERLAPPING: Final = "skipped: another occurrence of its schedule is not settled"
MISSED: Final = "skipped: {} s late (misfire {} of its schedule)"
# Among a backlog the bound of those that are passed over is looked for only so often.
KNOWN_S: Final = 60.0
KNOWN_MAX: Final = 1_000


class _Known(NamedTuple):
    """
    Of a version of a schedule: up to here all are passed over; from there on all were called, when
    that was looked at.
    """

    version: int
    until_s: float
    passed_to: int
    called_from: int


class Occurrences:
    """What a broker asks Postgres about the occurrences that it has claimed."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._known: dict[UUID, _Known] = {}

    @staticmethod
    def are_asked_for(claim: Claim) -> bool:
        """Whether this is an occurrence on its way to its first call."""
        return (
            claim.schedule_id is not None
            and claim.failures == 0
            and claim.revision == 1
            and not (claim.stop or claim.was_called)
        )

    async def all_judged(self, claims: list[Claim], now_ms: int) -> list[Claim]:
        """As judged, of claims of any kind; the occurrences come last."""
        asked = [one for one in claims if self.are_asked_for(one)]
        if not asked:
            return claims
        others = [one for one in claims if not self.are_asked_for(one)]
        return [*others, *await self.judged(asked, now_ms)]

    async def judged(self, claims: list[Claim], now_ms: int) -> list[Claim]:
        """
        These claims, each of them an occurrence; those that are not to be called say why.

        Raises DatabaseUnavailable.
        """
        schedules = await terms(self._db, {one.schedule_id for one in claims if one.schedule_id})
        judged: list[Claim] = []
        asking: list[tuple[UUID, UUID]] = []
        for claim in sorted(claims, key=lambda one: one.scheduled_time_ms or 0):
            schedule = schedules.get(claim.schedule_id) if claim.schedule_id else None
            if schedule is None:
                judged.append(claim)
            elif self._is_too_late(schedule, claim, now_ms):
                late_s = (now_ms - claim.start_time_ms) // 1000
                reason = MISSED.format(late_s, schedule.misfire)
                judged.append(claim._replace(skipped=reason))
            else:
                if schedule.overlap == "skip":
                    asking.append((schedule.schedule_id, claim.task_id))
                judged.append(claim)
        skipped = await admit(self._db, asking) if asking else set()
        return [
            one._replace(skipped=OVERLAPPING) if one.task_id in skipped else one for one in judged
        ]

    def _is_too_late(self, schedule: Schedule, claim: Claim, now_ms: int) -> bool:
        try:
            return self._is_passed_over(schedule, claim, now_ms)
        except Exception:
            # A zone that only another release knows, or a defect: it is called, and the others too.
            log.exception(
                "whether a task comes too late cannot be computed", extra=fields_of(claim)
            )
            return False

    def _is_passed_over(self, schedule: Schedule, claim: Claim, now_ms: int) -> bool:
        scheduled = claim.scheduled_time_ms
        if scheduled is None or not is_missed(schedule, claim.start_time_ms, now_ms):
            return False
        known = self._known.get(schedule.schedule_id)
        if known is None or known.version != schedule.version or known.until_s < monotonic_s():
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
            until_s = monotonic_s() + KNOWN_S
            known = _Known(schedule.version, until_s, passed_to=-1, called_from=1 << 62)
        if scheduled <= known.passed_to:
            return True
        if scheduled >= known.called_from and schedule.misfire == "all":
            return False  # a thousand and some, if time has passed since
        bound = called_from(schedule, scheduled, now_ms)
        if bound > scheduled:
            known = known._replace(passed_to=bound - 1, called_from=bound)
        else:
            known = known._replace(called_from=scheduled)
        self._known[schedule.schedule_id] = known
        return bound > scheduled
