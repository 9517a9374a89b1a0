"""SIGKILL after each step of a delivery: another broker makes it good, and the audits hold."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from typing import Final
from uuid import UUID

import pytest

from tests.fix_audits import AuditsHold
from tests.fix_delivery import BIZ_TYPE, Delivery
from tests.fix_endpoint import Endpoint

STEPS: Final = (
    "delivery.read",
    "delivery.claimed",
    "delivery.called",
    "delivery.settled",
    "delivery.acknowledged",
)
TASKS: Final = 20


async def die_at(point: str, delivery: Delivery, *places: str) -> list[UUID]:
    """Let a broker of its own process work on new tasks until it comes to `point`."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.fault.broker_that_dies", *places, point),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    ids = await delivery.submit(TASKS)
    assert await process.wait() == -signal.SIGKILL
    return ids


@pytest.mark.timing
async def test_a_broker_killed_after_any_step_loses_nothing(
    resting_delivery: Delivery,
    database_url: str,
    redis_url: str,
    redis_prefix: str,
    endpoint: Endpoint,
    audits_hold: AuditsHold,
) -> None:
    await resting_delivery.configure(BIZ_TYPE, callback_url=endpoint.url, timeout=0.5)
    ids: dict[str, list[UUID]] = {}
    for point in STEPS:
        places = (database_url, redis_url, redis_prefix)
        ids[point] = await die_at(point, resting_delivery, *places)
    await resting_delivery.start()
    everything = [task_id for some in ids.values() for task_id in some]
    assert set(await resting_delivery.settled(everything)) == {"finished"}
    calls = Counter(call.task_id for call in endpoint.received)
    assert set(calls) == {str(task_id) for task_id in everything}
    # A call is made again only by a broker that took over from one killed before its settle.
    assert max(calls.values()) <= len(STEPS)
    await audits_hold()
