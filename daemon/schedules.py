"""
Puts the occurrences of schedules on the wheel, ahead of their moments.

A step: of the schedules that have an occurrence within half a horizon, take the earliest; compute
what comes up to the horizon; write it, and where the next one begins, in one transaction. So a
schedule is looked at once in half a horizon, or when its next occurrence is that near. What was
written is written: a step that is repeated finds its schedules further on, or computes the same
task_ids; two daemons at the same step find that the other has moved them. What came due while no
daemon did this goes by each schedule's misfire policy (wheel_timer/schedule.py).

With nothing to do there is a look each LOOK_EACH_S: what a change has put on the wheel by itself
(wheel_timer/store/schedule.py) lasts longer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from daemon.hand import Tick
from daemon.leader import Leader
from wheel_timer import metrics
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.errors import DataRejected, EventCenterUnavailable
from wheel_timer.eventcenter import EventCenter
from wheel_timer.schedule import Plan, Schedule, plan
from wheel_timer.signal import reached
from wheel_timer.store import occurrence as store
from wheel_timer.store.occurrence import PAGE_BYTES, PAGE_OCCURRENCES, PAGE_SCHEDULES, Due
from wheel_timer.task import Ref

log: Final = logging.getLogger(__name__)

# A tenth of what a change of a schedule puts on the wheel by itself, if it comes each second.
LOOK_EACH_S: Final = 10.0
# Who moves a test's clock waits for what comes due by it.
TEST_LOOK_EACH_S: Final = 0.02
FORGET_EACH_S: Final = 60.0
# One whose occurrences cannot be computed or written is left alone so long, for the others' sake.
SET_ASIDE_S: Final = 60.0


class ScheduleHand:
    """The schedules of one shard for one term. horizon_ms: the setting SCHEDULE_HORIZON."""

    name = "schedules"

    def __init__(
        self,
        *,
        db: Database,
        event_center: EventCenter,
        clock: Clock,
        leader: Leader,
        horizon_ms: int,
        lookahead_ms: int,
    ) -> None:
        self._db = db
        self._event_center = event_center
        self._clock = clock
        self._leader = leader
        self._horizon_ms = horizon_ms
        self._lookahead_ms = lookahead_ms
        self._forget_s = 0.0
        self._aside: dict[UUID, float] = {}

    async def tick(self) -> Tick:
        """One page. Raises DatabaseUnavailable."""
        if not self._clock.is_known():
            return Tick(0, 1.0)
        is_more = await self._forget()
        now_ms = int(self._clock.now_ms())
        to_ms = now_ms + self._horizon_ms // 2
        found = await store.due(self._db, self._leader.shard, to_ms, self._set_aside())
        if found:
            # Beside the other hands: among many that come each second a page takes its time.
            plans = await asyncio.to_thread(self._plans, found, now_ms)
            if plans:
                await self._write(plans, now_ms)
                reached("schedules.generated")
            # Some had no room on this page, or were more than one holds.
            is_more |= len(found) == PAGE_SCHEDULES or len(plans) < len(found)
            is_more |= any(one.next_time is not None and one.next_time <= to_ms for _, one in plans)
        return Tick(len(found), 0.0 if is_more else self._look_s())

    async def _forget(self) -> bool:
        """Whether there is more to forget at once."""
        if time.monotonic() < self._forget_s:
            return False
        if await store.forget(self._db, self._leader.shard) == store.FORGET_ROWS:
            return True
        self._forget_s = time.monotonic() + FORGET_EACH_S
        return False

    def _look_s(self) -> float:
        if self._clock.is_test:
            return TEST_LOOK_EACH_S
        # Often enough for a horizon that is short.
        return min(LOOK_EACH_S, self._horizon_ms / 4000)

    def _plans(self, found: Sequence[Due], now_ms: int) -> list[tuple[Schedule, Plan]]:
        """What a page holds of them: the earliest whole, of the last one perhaps a part."""
        plans: list[tuple[Schedule, Plan]] = []
        room, free_bytes = PAGE_OCCURRENCES, PAGE_BYTES
        for schedule, data_bytes in found:
            limit = min(room, free_bytes // data_bytes if data_bytes else room)
            # One at least, however much it carries.
            limit = limit if plans else max(1, limit)
            if limit < 1:
                break
            try:
                one = plan(schedule, now_ms, now_ms + self._horizon_ms, limit)
            except Exception:
                # A defect of one, or a zone that this machine does not know.
                log.exception("the occurrences of %s cannot be computed", schedule)
                self._leave_alone(schedule)
                continue
            plans.append((schedule, one))
            room -= len(one.occurrences)
            free_bytes -= len(one.occurrences) * data_bytes
        return plans

    async def _write(self, plans: list[tuple[Schedule, Plan]], now_ms: int) -> None:
        """Write a page, halved where Postgres refuses a value, and publish what of it is near."""
        try:
            done = await store.generate(
                self._db,
                self._leader.shard,
                plans,
                now_ms=now_ms,
                lookahead_ms=self._lookahead_ms,
            )
        except DataRejected as error:
            if len(plans) > 1:
                await self._write(plans[: len(plans) // 2], now_ms)
                await self._write(plans[len(plans) // 2 :], now_ms)
                return
            log.error("the occurrences of %s are refused: %s", plans[0][0], error)
            self._leave_alone(plans[0][0])
            return
        for biz_type, tasks in done.occurrences.items():
            metrics.tasks_submitted(biz_type, tasks)
        if done.near:
            await self._publish(done.near)

    async def _publish(self, near: list[Ref]) -> None:
        published_ms = int(self._clock.now_ms())
        try:
            await self._event_center.publish_direct(
                [ref._replace(published_ms=published_ms) for ref in near]
            )
        except EventCenterUnavailable as error:
            # Each has its net: a requeue row right behind the due hand.
            log.info("%d occurrences are left to their nets: %s", len(near), error)

    def _leave_alone(self, schedule: Schedule) -> None:
        self._aside[schedule.schedule_id] = time.monotonic() + SET_ASIDE_S

    def _set_aside(self) -> list[UUID]:
        """Whose turn is not yet."""
        now_s = time.monotonic()
        self._aside = {one: until_s for one, until_s in self._aside.items() if until_s > now_s}
        return list(self._aside)
