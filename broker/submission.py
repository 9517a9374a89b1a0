"""What the API hands to the submitter, and what comes back. Pure."""

from __future__ import annotations

from typing import Final, Literal
from uuid import UUID

import msgspec

from wheel_timer.errors import WheelTimerError
from wheel_timer.store.task import TaskRow

OnDuplicate = Literal["keep", "reject", "replace", "earliest", "latest"]

# What a row costs in memory beside its payload: the objects that carry it.
ROW_BYTES: Final = 512


class Submission(msgspec.Struct, gc=False):
    """
    A task as its submitter wants it, checked. Its id, and its moment where that hangs on the
    database's clock or on chance, are made when it is written.

    start_time_ms: None where delay_ms counts from the insert. spread_ms: the moment is drawn from
    [moment, moment + spread_ms). callback, retry: JSON texts. actor: for timer_change, where it
    replaces what an existing task has.
    """

    biz_type: str
    start_time_ms: int | None
    delay_ms: int = 0
    spread_ms: int = 0
    biz_id: str | None = None
    biz_data: bytes | None = None
    content_type: str | None = None
    callback: bytes | None = None
    retry: bytes | None = None
    max_age_ms: int | None = None
    traceparent: str | None = None
    on_duplicate: OnDuplicate = "keep"
    actor: str | None = None

    def cost_bytes(self) -> int:
        """What it holds in memory, about."""
        return ROW_BYTES + (len(self.biz_data) if self.biz_data else 0)


class Accepted(msgspec.Struct, gc=False):
    """The task is stored."""

    task_id: UUID
    start_time_ms: int


class Duplicate(msgspec.Struct, gc=False):
    """Its biz_id is taken by this task; nothing was written."""

    task: TaskRow


class Replaced(msgspec.Struct, gc=False):
    """
    The task that held its biz_id has its moment and data now. is_revived: it was settled and has a
    new life; else it was pending, or being delivered.
    """

    task_id: UUID
    start_time_ms: int
    is_revived: bool


Outcome = Accepted | Duplicate | Replaced | WheelTimerError
