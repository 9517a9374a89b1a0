"""SIGKILL after each step of a delivery: another broker makes it good, and the audits hold."""

from __future__ import annotations

import signal
from typing import Final

import pytest

from tests.fault.harness import SETTLE_S, Cluster
from tests.fix_sessions import Sessions, until

STEPS: Final = (
    "delivery.read",
    "delivery.claimed",
    "delivery.called",
    "delivery.settled",
    "delivery.acknowledged",
)
TASKS: Final = 10


@pytest.mark.timing
async def test_brokers_killed_after_any_step_lose_nothing(
    cluster: Cluster, sessions: Sessions
) -> None:
    brokers = [await cluster.broker(die=(point, 1)) for point in STEPS]
    for broker in brokers:
        await broker.comes_to("clock.measured")

    async def all_died() -> bool:
        await cluster.submit_at(*[0] * TASKS)
        return not any(broker.is_alive for broker in brokers)

    # Which of them gets a task is chance: there are new ones until each has died of one.
    await until(all_died, SETTLE_S)
    assert {await broker.gone() for broker in brokers} == {-signal.SIGKILL}
    # What some seconds would do: no broker is left that holds a claim.
    connection = await sessions.open()
    await connection.execute("UPDATE timer_task SET lease_until = 1 WHERE lease_until IS NOT NULL")
    await cluster.broker()
    calls = await cluster.all_arrive()
    # A call is made again only by a broker that took over from one killed before its settle.
    assert max(calls.values()) <= len(STEPS)
