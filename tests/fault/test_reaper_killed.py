"""Daemons killed while they reap: a task is there whole or gone whole, and the next one goes on."""

from __future__ import annotations

import time
from typing import Final

import pytest

from tests.fault.harness import Cluster
from tests.fix_hands import task_at
from tests.fix_reaping import DAY_MS, left, settle
from tests.fix_sessions import Sessions, until
from tests.fix_tasks import submit_all
from wheel_timer.database import Database

TASKS: Final = 1_500  # several batches
LIVING: Final = 3


@pytest.mark.timing
async def test_daemons_killed_between_the_steps_of_the_reap_hand_leave_whole_tasks(
    cluster: Cluster, db: Database, sessions: Sessions
) -> None:
    at_ms = round(time.time() * 1000) - 40 * DAY_MS
    with_key = [task_at(at_ms + n, biz_id=f"order-{n}") for n in range(TASKS)]
    alone = [task_at(at_ms + n) for n in range(TASKS)]
    await submit_all(db, [*with_key, *alone])
    await settle(db, with_key[:LIVING], "failed", retention_ms=DAY_MS)
    await settle(db, with_key[LIVING:], "failed", retention_ms=0)
    await settle(db, alone, retention_ms=0)
    for point, nth in (("reap.looked", 1), ("reap.deleted", 2), ("reap.truncated", 1)):
        dying = await cluster.daemon(die=(point, nth))
        await dying.gone()
        tasks, keys, attempts, dead, _ = await left(sessions)
        assert tasks - len(alone) == keys == attempts == dead or tasks == LIVING
        await cluster.audits_hold()
    assert await left(sessions) == (LIVING, LIVING, LIVING, LIVING, 0)
    await cluster.daemon()

    async def is_told() -> bool:
        """The hand has come round, and found nothing more to do."""
        return bool(await sessions.value("SELECT reap_time > %s FROM timer_pointer", at_ms))

    await until(is_told, 30)
    assert await left(sessions) == (LIVING, LIVING, LIVING, LIVING, 0)
    await cluster.audits_hold()
