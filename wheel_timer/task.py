"""
What a task is: its states, who may move it between them, and the shapes that travel.

`EDGES` is the whole state machine. Each edge names the one SQL function that walks it; nothing else
writes `status`. `delivering` is not a status: it is a pending task under a lease.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

import msgspec


class Status(IntEnum):
    """timer_task.status."""

    PENDING = 0
    FINISHED = 1
    FAILED = 2
    CANCELLED = 3
    MOVED = 4


# (from, to): the function in sql/migrations that does it; from None: the row is new.
EDGES: Final[dict[tuple[Status | None, Status], tuple[str, ...]]] = {
    (None, Status.PENDING): ("wheel_submit_v1", "wheel_move_v1"),
    (Status.PENDING, Status.PENDING): (
        "wheel_claim_v1",
        "wheel_settle_again_v1",
        "wheel_change_v1",
        "wheel_report_v1",
    ),
    (Status.PENDING, Status.FINISHED): ("wheel_settle_final_v1",),
    (Status.PENDING, Status.FAILED): ("wheel_settle_final_v1",),
    (Status.PENDING, Status.CANCELLED): (
        "wheel_settle_final_v1",
        "wheel_settle_again_v1",
        "wheel_change_v1",
    ),
    # Started anew: replay, or a submit with on_duplicate=replace; discard.
    (Status.FINISHED, Status.PENDING): ("wheel_change_v1",),
    (Status.FAILED, Status.PENDING): ("wheel_change_v1",),
    (Status.CANCELLED, Status.PENDING): ("wheel_change_v1",),
    (Status.FAILED, Status.CANCELLED): ("wheel_change_v1",),
    # A task that leaves its home forwards from there until it comes back; another row carries it.
    (Status.PENDING, Status.MOVED): ("wheel_move_v1",),
    (Status.FINISHED, Status.MOVED): ("wheel_move_v1",),
    (Status.FAILED, Status.MOVED): ("wheel_move_v1",),
    (Status.CANCELLED, Status.MOVED): ("wheel_move_v1",),
}


class NewTask(msgspec.Struct, gc=False):
    """A task as it is handed to `store.submit`. callback and retry are JSON texts."""

    task_id: UUID
    start_time_ms: int
    biz_type: str
    biz_id: str | None = None
    biz_data: bytes | None = None
    content_type: str | None = None
    callback: bytes | None = None
    retry: bytes | None = None
    max_age_ms: int | None = None
    traceparent: str | None = None


class Ref(NamedTuple):
    """
    A reference to a task, as it lies in a lane: where the row is and when to call.

    start_time_ms: the row's present place. moment_ms: when the callback is to start (start_time,
    or a retry's next_at). entry_id: the stream entry, empty where it did not come from a stream.
    taken_over: it lay in a dead broker's hands.
    """

    task_id: UUID
    start_time_ms: int
    moment_ms: int
    published_ms: int
    biz_type: str
    entry_id: bytes = b""
    taken_over: bool = False


class Claim(NamedTuple):
    """
    The right to one attempt, with all it takes to make it.

    attempt: this attempt's number and the claim's token. failures: the retry budget used so far,
    with the `lost` attempt that this claim found, if it found one. callback, retry: JSON texts.
    scheduled_time_ms: of a schedule's occurrence, its moment. was_called: in an attempt before this
    one. skipped: why it is not to be called.
    """

    task_id: UUID
    start_time_ms: int
    biz_type: str
    biz_id: str | None
    attempt: int
    failures: int
    revision: int
    life: int
    stop: bool
    lease_until_ms: int
    create_time_ms: int
    first_attempt_ms: int
    biz_data: bytes | None
    content_type: str | None
    callback: str | None
    retry: str | None
    max_age_ms: int | None
    schedule_id: UUID | None
    traceparent: str | None
    was_lost: bool
    scheduled_time_ms: int | None = None
    was_called: bool = False
    skipped: str | None = None


class Result(msgspec.Struct, gc=False):
    """
    How one attempt ended, on its way to the database.

    outcome: finished | retry | released | failed | cancelled | unstarted. delay_ms counts for
    retry, released and unstarted; retention_ms for the others. An unstarted claim leaves no trace
    but its skipped number. life: the task's when it was claimed.
    """

    task_id: UUID
    start_time_ms: int
    biz_type: str
    attempt: int
    revision: int
    outcome: str
    http_status: int | None = None
    error: str | None = None
    error_class: str | None = None
    response_excerpt: str | None = None
    started_ms: int | None = None
    duration_ms: int | None = None
    due_ms: int | None = None
    published_ms: int | None = None
    remote_address: str | None = None
    broker: str = ""
    config_version: int = 0
    retention_ms: int = 0
    delay_ms: int = 0
    erase: bool = False
    notice: NewTask | None = None

    @property
    def is_noted(self) -> bool:
        """Whether its end leaves more than a status."""
        return self.erase or self.notice is not None

    life: int = 1
