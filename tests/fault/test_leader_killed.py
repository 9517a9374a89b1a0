"""The leader is killed, or frozen, while it has work: the next one leads before anybody is late."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import pytest

from daemon.leader import LEASE_S, POLL_S
from tests.fault.harness import Cluster, Process
from tests.fix_lanes import Lanes
from tests.fix_sessions import Sessions, until

RATE_S: Final = 200
TAKEOVER_S: Final = 1.0
LATE_MS: Final = 100.0
PUBLISHED_LATE: Final = "SELECT count(*) FROM timer_task WHERE published > start_time"
POINTER: Final = "SELECT epoch, leader FROM timer_pointer"


async def leading(daemons: list[Process]) -> Process:
    """The one that leads; all of them have started by then."""
    elected = [asyncio.create_task(one.comes_to("leader.elected")) for one in daemons]
    done, waiting = await asyncio.wait(elected, return_when=asyncio.FIRST_COMPLETED)
    for one in waiting:
        one.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    return daemons[elected.index(done.pop())]


async def heir_of(leader: Process, daemons: list[Process], since_ns: int) -> tuple[Process, float]:
    """Who has led since, and after how many seconds it did."""

    def heirs() -> list[tuple[int, Process]]:
        return [
            (moment, one)
            for one in daemons
            if one is not leader
            for moment in one.times("leader.elected")
            if moment > since_ns
        ]

    async def any_heir() -> bool:
        return bool(heirs())

    await until(any_heir, LEASE_S + 10)
    moment, heir = min(heirs(), key=lambda found: found[0])
    return heir, (moment - since_ns) / 1e9


@pytest.mark.timing
@pytest.mark.parametrize("count", [2, pytest.param(5, marks=pytest.mark.slow)])
async def test_a_leader_killed_under_load_is_replaced_before_any_callback_is_late(
    count: int, cluster: Cluster, sessions: Sessions
) -> None:
    daemons = [await cluster.daemon() for _ in range(count)]
    broker = await cluster.broker()
    leader = await leading(daemons)
    await broker.comes_to("clock.measured", 2)
    # Submitted beyond what is near, so that each of them is the hand's to publish.
    load = asyncio.create_task(cluster.load(RATE_S, 3.2, 1_700))
    await leader.comes_to("due.advanced", len(leader.times("due.advanced")) + 9)
    killed_ns, wall_ns = leader.kill(), time.time_ns()
    _, takeover_s = await heir_of(leader, daemons, killed_ns)
    assert takeover_s < TAKEOVER_S
    await load
    calls = await cluster.all_arrive()
    assert max(calls.values()) == 1
    # What this machine, shared with others, adds to a callback that nothing has happened to: the
    # worst of it before the kill, in this very run, is the margin.
    noise_ms = cluster.lateness_ms(to_ns=wall_ns)[-1]
    lateness_ms = cluster.lateness_ms(from_ns=wall_ns)
    assert len(lateness_ms) > RATE_S
    assert lateness_ms[-1] <= LATE_MS + noise_ms
    # The takeover itself made nobody late: each was in its lane before its moment.
    assert await sessions.value(PUBLISHED_LATE) == 0
    assert await sessions.value("SELECT epoch FROM timer_pointer") == 2


@pytest.mark.slow
@pytest.mark.timing
async def test_a_frozen_leader_is_replaced_after_its_lease_and_what_it_writes_then_is_refused(
    cluster: Cluster, sessions: Sessions, lanes: Lanes
) -> None:
    daemons = [await cluster.daemon() for _ in range(2)]
    await cluster.broker()
    leader = await leading(daemons)
    load = asyncio.create_task(cluster.load(20, LEASE_S + 3.5, 2_000))
    await leader.comes_to("due.advanced", 6)
    frozen_ns = time.monotonic_ns()
    leader.freeze()
    heir, takeover_s = await heir_of(leader, daemons, frozen_ns)
    # Its last renewal may have been up to a third of the lease ago; another poll finds it over.
    assert LEASE_S * 2 / 3 - POLL_S < takeover_s < LEASE_S + POLL_S + 1.0
    epoch, name = await sessions.row(POINTER)
    assert epoch == 2
    advanced = len(leader.times("due.advanced"))
    leader.thaw()
    await leader.comes_to("leader.stepped_down")
    await heir.comes_to("due.advanced", len(heir.times("due.advanced")) + 8)
    # Nothing of what it was in the middle of came through, and it leaves its heir alone.
    assert len(leader.times("due.advanced")) == advanced
    assert heir.times("leader.stepped_down") == []
    assert await sessions.row(POINTER) == (epoch, name)
    await load
    calls = await cluster.all_arrive()
    assert max(calls.values()) == 1
