"""Schedules of a biz_type `orders`: changed, and generated step by step."""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

import msgspec
import pytest_asyncio

from daemon.schedules import ScheduleHand
from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands
from wheel_timer.biz import BizTypeIn
from wheel_timer.database import Database
from wheel_timer.schedule import Schedule
from wheel_timer.store import biz as store_biz
from wheel_timer.store import schedule as store
from wheel_timer.store.schedule import Put, Wheel

NIL: Final = UUID(int=0)
NOON: Final = 1_800_014_400_000  # 2027-01-15T12:00:00Z
HOUR: Final = 3_600_000
NEVER_YET: Final = Schedule(
    schedule_id=NIL, biz_type="orders", name="s", shard=0, version=0, cron="* * * * *",
    timezone="UTC", enabled=True, misfire="once", misfire_after=60_000, overlap="allow", jitter=0,
    start_after=None, end_before=None, next_time=None, content_type=None, callback=None,
    biz_data=None, create_time=0, update_time=0,
)  # fmt: skip


class Schedules:
    """Changes schedules of `orders`, and says what of them is on the wheel."""

    def __init__(self, db: Database, clock: DatabaseClock) -> None:
        self.db = db
        self.clock = clock
        self.wheel = Wheel(1, lambda: clock.now_ms(), HOUR, 1000)

    async def put(self, name: str = "s", **changed: Any) -> Put:
        """Make the schedule what is given; of one that is there the rest stays."""

        def make(before: Schedule | None) -> Schedule:
            stands = NEVER_YET if before is None else before
            return msgspec.structs.replace(stands, name=name, **changed)

        return await store.change(
            self.db, "orders", name, make, self.wheel, actor="test", action="schedule.put"
        )

    async def tasks(self, status: int = 0) -> list[int]:
        """The scheduled times of its tasks of a status, in order."""
        rows = await self.db.read(
            "SELECT scheduled_time FROM timer_task"
            f" WHERE status = {status} ORDER BY scheduled_time, task_id",
            timeout_s=5,
        )
        return [row[0] for row in rows[1]]

    async def registered(self) -> int:
        rows = await self.db.read("SELECT count(*) FROM timer_occurrence", timeout_s=5)
        return int(rows[1][0][0])


@pytest_asyncio.fixture
async def schedules(db: Database, clock: DatabaseClock) -> Schedules:
    """A biz_type `orders`, at noon; the clock stands still."""
    await store_biz.put(db, "orders", BizTypeIn(callback_url="http://127.0.0.1:9/"))
    clock.freeze(NOON)
    return Schedules(db, clock)


async def all_steps(hand: ScheduleHand) -> int:
    """Step until there is nothing to do; how many steps that took."""
    steps = 0
    while (await hand.tick()).next_s == 0.0:
        steps += 1
    return steps


def hand_of(hands: Hands, horizon_ms: int = HOUR) -> ScheduleHand:
    return ScheduleHand(
        db=hands.db,
        event_center=hands.event_center,
        clock=hands.clock,
        leader=hands.leader,
        horizon_ms=horizon_ms,
        lookahead_ms=1000,
    )


@pytest_asyncio.fixture
async def hand(schedules: Schedules, hands: Hands) -> ScheduleHand:
    """The generating hand of the leader."""
    await hands.measure()
    return hand_of(hands)
