"""The database's clock jumps under real processes: nobody is called for it unasked."""

from __future__ import annotations

import time

import pytest

from tests.fault.harness import Cluster
from tests.fix_clock import DatabaseClock
from tests.fix_endpoint import Endpoint
from tests.fix_sessions import Sessions
from wheel_timer.store.jump import accept_jump

HOUR_MS = 3_600_000
SETTLED = "SELECT count(*) = 1 FROM timer_task WHERE status = 1"
HOLDING = "SELECT count(*) = 2 FROM timer_node WHERE clock_jump IS NOT NULL"


@pytest.mark.slow
@pytest.mark.timing
async def test_an_hour_forward_calls_nobody_until_it_is_accepted_and_one_back_delays_nobody(
    cluster: Cluster, endpoint: Endpoint, clock: DatabaseClock, sessions: Sessions
) -> None:
    daemon, broker = await cluster.daemon(), await cluster.broker()
    await broker.comes_to("clock.measured")
    await daemon.comes_to("leader.elected")

    clock.jump(HOUR_MS)
    await sessions.until(HOLDING)
    # By the wrong clock the first two are long due, the third is not.
    held = await cluster.submit_at(1_000, HOUR_MS // 2, 2 * HOUR_MS)
    clock.jump(0)
    await endpoint.wait_for(1)
    assert [call.task_id for call in endpoint.received] == [str(held[0])]
    # A lease runs by that clock: what is in flight when it jumps may be called twice.
    await sessions.until(SETTLED)
    # The hour that it was told of was not closed.
    closed_ms = await sessions.value("SELECT wheel_closed_to_v1(0::smallint)")
    assert closed_ms < time.time() * 1000 + HOUR_MS // 2

    clock.jump(HOUR_MS)
    await accept_jump(cluster.db, HOUR_MS, actor="local")
    await endpoint.wait_for(2)
    assert endpoint.received[1].task_id == str(held[1])

    # Back: the hand has closed an hour more than there is. New tasks go the direct way.
    clock.jump(0)
    near = await cluster.submit_at(1_500, 2_000)
    await endpoint.wait_for(4)
    for call, task_id in zip(endpoint.received[2:], near, strict=True):
        assert call.task_id == str(task_id)
        late_ms = call.arrival_ns / 1e6 - cluster.submitted[task_id].start_time_ms
        assert 0 <= late_ms < 500
    assert [call.attempt for call in endpoint.received] == [1] * 4
    assert time.time() * 1000 < cluster.submitted[held[2]].start_time_ms
    await cluster.audits_hold()
