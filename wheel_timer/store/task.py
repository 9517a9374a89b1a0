"""Look tasks up, by id or by the business's own id. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from wheel_timer.database import Database
from wheel_timer.store.place import by_partition
from wheel_timer.task import Status
from wheel_timer.wheel import home_of


class TaskRow(NamedTuple):
    """A row of timer_task, by its column names; times in ms, callback and retry as JSON texts."""

    task_id: UUID
    start_time: int
    shard: int
    status: Status
    attempts: int
    failures: int
    revision: int
    life: int
    stop: bool
    create_time: int
    first_attempt_time: int | None
    lease_until: int | None
    next_at: int | None
    finish_time: int | None
    expire_at: int | None
    http_status: int | None
    last_error: str | None
    started: int | None
    duration: int | None
    published: int | None
    biz_type: str
    biz_id: str | None
    schedule_id: UUID | None
    biz_data: bytes | None
    content_type: str | None
    callback: str | None
    retry: str | None
    max_age: int | None
    traceparent: str | None


class AttemptRow(NamedTuple):
    """A row of timer_attempt: one attempt that did not finish its task."""

    attempt: int
    life: int
    outcome: str
    due_time: int | None
    published_time: int | None
    started_time: int | None
    duration_ms: int | None
    config_version: int | None
    http_status: int | None
    error_class: str | None
    error: str | None
    response_excerpt: str | None
    remote_address: str | None
    broker: str | None


async def lookup(db: Database, task_ids: Sequence[UUID]) -> dict[UUID, TaskRow]:
    """The tasks with these ids; one that does not exist is missing. One statement a partition."""
    found: dict[UUID, TaskRow] = {}
    places = ((home_of(task_id)[0], task_id) for task_id in set(task_ids))
    for run, batch in by_partition(places, lambda place: place):
        rows = await db.fetch(
            "lookup",
            {
                "slot_lo": run.slot_lo,
                "slot_hi": run.slot_hi,
                "task_ids": [task_id for _, task_id in batch],
                "shards": [home_of(task_id)[1] for _, task_id in batch],
                "start_times": [start_time_ms for start_time_ms, _ in batch],
            },
        )
        for row in rows:
            task = TaskRow._make(row)
            found[task.task_id] = task._replace(status=Status(task.status))
    return found


async def lookup_by_biz_id(db: Database, biz_type: str, biz_id: str) -> TaskRow | None:
    """The task that holds this biz_id, or None."""
    key = await db.fetch_one("lookup_key", {"biz_type": biz_type, "biz_id": biz_id})
    if key is None:
        return None
    task_id: UUID = key[0]
    return (await lookup(db, [task_id])).get(task_id)


async def attempts(db: Database, task_id: UUID) -> list[AttemptRow]:
    """The attempts that did not finish this task, in their order; at most the last 1,000."""
    rows = await db.fetch("attempts", {"task_id": task_id})
    return [AttemptRow._make(row) for row in rows]
