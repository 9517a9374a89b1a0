"""Daemons killed in the middle of an operation: the next one goes on; each task is changed once."""

from __future__ import annotations

import time
from typing import Final
from uuid import uuid4

import pytest

from tests.fault.harness import Cluster
from tests.fix_hands import task_at
from tests.fix_sessions import until
from tests.fix_tasks import submit_all
from wheel_timer.database import Database
from wheel_timer.store import operation as store
from wheel_timer.store.filter import Filter
from wheel_timer.store.task import lookup

TASKS: Final = 1_700  # several chunks
DAY_MS: Final = 86_400_000
BY_MS: Final = 3_600_000


@pytest.mark.timing
async def test_daemons_killed_before_and_after_a_commit_leave_an_operation_whole(
    cluster: Cluster, db: Database
) -> None:
    now_ms = round(time.time() * 1000)
    tasks = await submit_all(db, [task_at(now_ms + DAY_MS + n * 97) for n in range(TASKS)])
    operation = await store.create(
        db,
        uuid4(),
        "shift",
        Filter(status="pending"),
        actor="tester",
        recorded=b"{}",
        shift_ms=BY_MS,
    )
    for point, nth in (("operation.selected", 2), ("operation.chunk", 1)):
        dying = await cluster.daemon(die=(point, nth))
        await dying.gone()
    await cluster.daemon()

    async def is_done() -> bool:
        row = await store.get(db, operation.operation_id)
        return row is not None and row.state == "done"

    await until(is_done, 30)
    row = await store.get(db, operation.operation_id)
    assert row is not None
    assert (row.matched, row.done, row.skipped, row.errors) == (TASKS, TASKS, 0, 0)
    found = await lookup(db, [task.task_id for task in tasks])
    assert {found[t.task_id].start_time - t.start_time_ms for t in tasks} == {BY_MS}
    await cluster.audits_hold()
