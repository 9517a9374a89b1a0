"""Each second of an hour, through a leader's death and a daemon's restart: 3,600 callbacks."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final
from uuid import UUID

import pytest

from tests.fault.harness import Cluster
from tests.fault.test_leader_killed import leading
from tests.fix_clock import DatabaseClock
from tests.fix_hands import BIZ_TYPE
from tests.fix_sessions import Sessions
from wheel_timer.schedule import Schedule
from wheel_timer.store import schedule as store
from wheel_timer.store.schedule import Wheel

NOON: Final = 1_800_014_400_000  # 2027-01-15T12:00:00Z
STEP_S: Final = 60
SECONDS: Final = 3600
FINISHED: Final = "SELECT count(*) >= %s FROM timer_task WHERE status = 1"
EACH_SECOND: Final = Schedule(
    schedule_id=UUID(int=0), biz_type=BIZ_TYPE, name="s", shard=0, version=0, cron="* * * * * *",
    timezone="UTC", enabled=True, misfire="all", misfire_after=3_600_000, overlap="allow",
    jitter=0, start_after=None, end_before=NOON + SECONDS * 1000 + 1, next_time=None,
    content_type=None, callback=None, biz_data=None, create_time=0, update_time=0,
)  # fmt: skip


@pytest.mark.slow
async def test_every_second_of_an_hour_is_called_once(
    cluster: Cluster, clock: DatabaseClock, sessions: Sessions
) -> None:
    clock.freeze(NOON)
    # A short horizon: it is generated piece by piece, under one leader after the other.
    settings: dict[str, Any] = {"schedule_horizon": 300}
    daemons = [await cluster.daemon(**settings) for _ in range(2)]
    await cluster.broker()
    leader = await leading(daemons)
    wheel = Wheel(1, lambda: NOON, 300_000, 1000)
    await store.change(
        cluster.db, BIZ_TYPE, "s", lambda _: EACH_SECOND, wheel, actor="test", action="schedule.put"
    )
    for second in range(STEP_S, SECONDS + STEP_S, STEP_S):
        clock.freeze(NOON + second * 1000)
        if second == 600:
            leader.kill()
        if second == 1800:
            heir = next(one for one in daemons if one is not leader)
            heir.stop()
            await heir.gone()
            daemons.append(await cluster.daemon(**settings))
        # Settled, not only called: a lease runs by the clock that is about to jump.
        await sessions.until(FINISHED, second, timeout_s=40)
    calls = Counter(
        call.headers["wheel-timer-scheduled-time"] for call in cluster.endpoint.received
    )
    assert len(calls) == SECONDS
    assert set(calls.values()) == {1}
    await cluster.audits_hold()
