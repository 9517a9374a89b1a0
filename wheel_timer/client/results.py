"""
What the server answers, as types. Pure.

Times are aware datetimes, durations seconds. A field that a newer server adds is passed over; one
that an older server does not know yet has its default.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, Literal, TypeVar
from uuid import UUID

import msgspec

StatusName = Literal["pending", "delivering", "finished", "failed", "cancelled"]

T = TypeVar("T")


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """
    What became of a submit. biz_id: as given, or the random one. duplicate: the biz_id was there
    before; then this is the existing task, its status says whether it will still fire, and differs
    names the fields given that are not what is stored.
    """

    task_id: UUID
    status: StatusName
    duplicate: bool
    start_time: datetime
    differs: list[str] = []
    biz_id: str = ""


class Waiting(msgspec.Struct, frozen=True):
    """Why a pending task is not being called at this moment: scheduled, queued, backoff, ..."""

    reason: str
    since: datetime | None = None
    until: datetime | None = None


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a task's story."""

    attempt: int
    outcome: str
    life: int = 1
    due_time: datetime | None = None
    published_time: datetime | None = None
    started_time: datetime | None = None
    duration_ms: int | None = None
    error_class: str | None = None
    error: str | None = None
    http_status: int | None = None
    response_excerpt: str | None = None
    remote_address: str | None = None
    broker: str | None = None
    config_version: int | None = None


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """
    A task with its story. attempts only grows and may skip numbers; failures is the part of the
    retry budget that is used up. biz_data where the payload is JSON, else biz_data_base64, decoded.
    """

    task_id: UUID
    biz_type: str
    status: StatusName
    start_time: datetime
    create_time: datetime
    biz_id: str | None = None
    life: int = 1
    revision: int = 0
    attempts: int = 0
    failures: int = 0
    waiting: Waiting | None = None
    first_attempt_time: datetime | None = None
    next_attempt_time: datetime | None = None
    finish_time: datetime | None = None
    expire_time: datetime | None = None
    http_status: int | None = None
    last_error: str | None = None
    content_type: str | None = None
    biz_data: Any = None
    biz_data_base64: bytes | None = None
    callback: dict[str, Any] | None = None
    retry: dict[str, Any] | None = None
    max_age: float | None = None
    schedule_id: UUID | None = None
    scheduled_time: datetime | None = None
    attempt_log: list[Attempt] = []

    @property
    def is_settled(self) -> bool:
        """Whether it has ended: finished, failed or cancelled."""
        return self.status in ("finished", "failed", "cancelled")

    def __repr__(self) -> str:
        # The payload is the business's own and stays out of logs.
        return f"Task({self.task_id}, {self.biz_type!r}, {self.biz_id!r}, {self.status})"


class Page(msgspec.Struct, Generic[T]):
    """One page of a list. next_cursor: None at the end."""

    items: list[T]
    next_cursor: str | None = None


class BatchItem(msgspec.Struct, frozen=True):
    """What became of one task of a batch."""

    duplicate: bool = False
    error: dict[str, Any] | None = None


class Batch(msgspec.Struct, frozen=True):
    """The answer to a batch, in the order of its tasks."""

    results: list[BatchItem]
