"""Look tasks up, by id or by the business's own id. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from wheel_timer.database import Database
from wheel_timer.task import Status


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
    renew_time: int | None = None
    scheduled_time: int | None = None


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


async def lookup(db: Database, task_ids: Iterable[UUID]) -> dict[UUID, TaskRow]:
    """The tasks with these ids, wherever they are now; one that does not exist is missing."""
    rows = await db.fetch("lookup", {"task_ids": list(set(task_ids))})
    return {row[0]: task_row(row) for row in rows}


def task_row(columns: Sequence[Any]) -> TaskRow:
    """A row of lookup."""
    return TaskRow._make((*columns[:3], Status(columns[3]), *columns[4:]))


async def lookup_by_biz_id(db: Database, biz_type: str, biz_id: str) -> TaskRow | None:
    """The task that holds this biz_id, or None."""
    holders = await lookup_keys(db, [(biz_type, biz_id)])
    if not holders:
        return None
    (task_id,) = holders.values()
    return (await lookup(db, [task_id])).get(task_id)


async def lookup_keys(db: Database, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], UUID]:
    """The tasks that hold these pairs of biz_type and biz_id; a free one is missing."""
    rows = await db.fetch(
        "lookup_keys",
        {"biz_types": [key[0] for key in keys], "biz_ids": [key[1] for key in keys]},
    )
    return {(biz_type, biz_id): task_id for biz_type, biz_id, task_id in rows}


async def attempts(db: Database, task_id: UUID) -> list[AttemptRow]:
    """The attempts that did not finish this task, in their order; at most the last 1,000."""
    rows = await db.fetch("attempts", {"task_id": task_id})
    return [AttemptRow._make(row) for row in rows]


async def last_attempts(db: Database, task_ids: Sequence[UUID]) -> dict[UUID, AttemptRow]:
    """The last attempt of each task that did not finish it; a task without one is missing."""
    rows = await db.fetch("last_attempts", {"task_ids": task_ids})
    return {task_id: AttemptRow._make(row) for task_id, *row in rows}
