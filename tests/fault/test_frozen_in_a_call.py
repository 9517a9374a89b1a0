"""
A broker frozen in the middle of its calls, while others change their mind about the tasks: what it
reports when it wakes, successes all of them, ends nothing that is not what it called.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final
from uuid import UUID

import pytest

from tests.fault.harness import Cluster
from tests.fix_endpoint import Answer, Endpoint, Received
from tests.fix_sessions import Sessions, until
from wheel_timer import AsyncClient

HOUR_S: Final = 3_600
OLD: Final = {"order": "old"}
NEW: Final = {"order": "new"}

# What is done while the broker is frozen, and what must have come of it: the bodies that the
# endpoint saw, and the task's status at the end.
CHANGES: Final[dict[str, tuple[list[bytes], str]]] = {
    "nothing": ([b"old"], "finished"),
    "stopped": ([b"old"], "finished"),
    "replaced": ([b"old", b"new"], "finished"),
    "other data": ([b"old", b"new"], "finished"),
    "run now": ([b"old", b"old"], "finished"),
    "rescheduled": ([b"old"], "pending"),
    "cancelled": ([b"old"], "cancelled"),
}
# These are possible only once the lease of the call is over.
LEASE_IS_OVER: Final = "UPDATE timer_task SET lease_until = 1 WHERE task_id = %s RETURNING 1"
AFTER_THE_LEASE: Final = ("other data", "run now", "rescheduled", "cancelled")

# What the log says of the first call. A change that clears a lease which is over says `lost`.
WAS_CALLED: Final = {
    "replaced": ("superseded",),
    "other data": ("superseded", "lost"),
    "run now": ("lost",),
    "rescheduled": ("lost",),
    "cancelled": ("lost",),
}


async def change_mind(client: AsyncClient, what: str, task_id: UUID) -> Any:
    match what:
        case "stopped":
            return await client.cancel(task_id, stop=True)
        case "replaced":
            return await client.submit(
                "orders", biz_id=what, delay=0, biz_data=NEW, on_duplicate="replace"
            )
        case "other data":
            return await client.reschedule(task_id, biz_data=NEW)
        case "run now":
            return await client.run_now(task_id)
        case "rescheduled":
            return await client.reschedule(task_id, delay=HOUR_S)
        case "cancelled":
            return await client.cancel(task_id)


def bodies(calls: list[Received]) -> dict[str, list[bytes]]:
    """What each task was called with, in order: `old` or `new`."""
    seen: defaultdict[str, list[bytes]] = defaultdict(list)
    for call in calls:
        seen[call.task_id].append(b"new" if b"new" in call.body else b"old")
    return seen


@pytest.mark.timing
async def test_the_late_success_of_a_frozen_broker_finishes_nothing_that_was_changed(
    cluster: Cluster, endpoint: Endpoint, sessions: Sessions
) -> None:
    frozen = await cluster.broker()
    async with await cluster.api() as client:
        endpoint.answer = Answer(delay_s=0.5)
        ids = {
            what: (await client.submit("orders", biz_id=what, delay=0, biz_data=OLD)).task_id
            for what in CHANGES
        }
        await endpoint.wait_for(len(ids), timeout_s=30)
        frozen.freeze()
        # The others' answers come at once.
        endpoint.answer = Answer()
        for what, task_id in ids.items():
            if what in AFTER_THE_LEASE:
                # What fifteen seconds would do. The frozen one does not even see them pass.
                await sessions.value(LEASE_IS_OVER, task_id)
            await change_mind(client, what, task_id)
        # What it reports meets the tasks before anybody has called them again.
        frozen.thaw()

        async def has_reported() -> bool:
            return (await client.get(ids["nothing"])).status == "finished"

        await until(has_reported, 20)
        await cluster.daemon()
        await cluster.broker()
        called = sum(len(seen) for seen, _ in CHANGES.values())
        await endpoint.wait_for(called)
        frozen.stop()
        assert await frozen.gone() == 0

        async def is_over() -> bool:
            return not await sessions.value(
                "SELECT count(*) FROM timer_task WHERE status = 0 AND lease_until IS NOT NULL"
            )

        await until(is_over, 20)
        tasks = {what: await client.get(task_id) for what, task_id in ids.items()}
        seen = bodies(endpoint.received)
        became = {what: (seen[str(ids[what])], task.status) for what, task in tasks.items()}
        assert became == CHANGES
        for what, task in tasks.items():
            assert task.attempt_log[0].outcome in WAS_CALLED.get(what, ("finished",)), what
        assert len(endpoint.received) == called
    await cluster.audits_hold()
