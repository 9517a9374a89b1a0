"""Who wants into a partition while the reap hand waits for it is not kept waiting."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from psycopg import AsyncConnection

from tests.fix_hands import Hands
from tests.fix_sessions import Sessions
from wheel_timer.store import reap as store

SLOT_LO = 500_000
# The wait for the lock is 50 ms; the rest is what a busy machine needs.
WAIT_S_MAX = 0.5


@pytest.mark.timing
async def test_a_truncate_that_has_to_wait_holds_nobody_up_behind_it(
    hands: Hands, sessions: Sessions
) -> None:
    """A lock that is waited for alone makes all later readers queue: so it is soon given up."""
    await hands.lead()
    inside, behind = await sessions.open(), await sessions.open()
    name = await sessions.value("SELECT wheel_partition_v1(%s)", SLOT_LO)
    reading = f"SELECT count(*) FROM {name}".encode()
    async with inside.transaction():
        await inside.execute(reading)
        truncating = asyncio.create_task(store.truncate(hands.db, hands.leader.epoch, SLOT_LO))
        waits = await _reads_until(behind, reading, truncating)
    assert (await truncating).verdict == "busy"
    assert max(waits) < WAIT_S_MAX


async def _reads_until(
    session: AsyncConnection[Any], reading: bytes, ended: asyncio.Task[Any]
) -> list[float]:
    """How long (s) each reader had to wait, one after the other."""
    waits: list[float] = []
    while not ended.done():
        began_s = time.monotonic()
        await session.execute(reading)
        waits.append(time.monotonic() - began_s)
    return waits
