"""What workers send, and what comes back; the rules of a work loop that both clients keep. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

import msgspec

from wheel_timer.client.call import Call, reader, segment
from wheel_timer.client.results import Task

RESERVE_MAX: Final = 100
# Over what the server itself waits.
ANSWER_S: Final = 5.0
AGAIN_S_MAX: Final = 10.0
REASON_CHARACTERS_MAX: Final = 1_000

OnError = Literal["release", "bury"]


class Reserved(msgspec.Struct, frozen=True, kw_only=True):
    """
    A task in this worker's hands, until reserved_until unless it is touched. attempts counts this
    one. biz_data where the payload is JSON, else biz_data_base64, decoded.
    """

    task_id: UUID
    biz_type: str
    claim: str
    reserved_until: datetime
    start_time: datetime
    create_time: datetime
    biz_id: str | None = None
    life: int = 1
    revision: int = 0
    attempts: int = 0
    failures: int = 0
    content_type: str | None = None
    schedule_id: UUID | None = None
    traceparent: str | None = None
    biz_data: Any = None
    biz_data_base64: bytes | None = None

    def __repr__(self) -> str:
        # The payload is the business's own and stays out of logs.
        return f"Reserved({self.task_id}, {self.biz_type!r}, {self.biz_id!r})"


class _ReservedMany(msgspec.Struct, frozen=True):
    tasks: list[Reserved]


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """
    How a loop works. concurrency: tasks in hand at once. ttr: seconds that a task stays this
    worker's once it says nothing any more. wait: seconds of one look for work; a stop waits for the
    end of the look. on_error: what becomes of a task whose handler raised; error_delay: when it is
    released, for how many seconds.
    """

    biz_type: str
    concurrency: int = 1
    ttr: float = 60.0
    wait: float = 5.0
    on_error: OnError = "release"
    error_delay: float = 10.0

    def __post_init__(self) -> None:
        if self.concurrency < 1:
            raise ValueError("concurrency: at least one task at a time")
        if self.on_error not in ("release", "bury"):
            raise ValueError("on_error: release or bury")

    @property
    def touch_each_s(self) -> float:
        """Two touches may be lost before the third is too late."""
        return self.ttr / 4


_TASK: Final = reader(Task)
_RESERVED: Final = reader(_ReservedMany)


def _tasks(body: bytes) -> list[Reserved]:
    return _RESERVED(body).tasks


def reserve(biz_type: str, wanted: int, *, wait: float, ttr: float) -> Call[list[Reserved]]:
    """POST /v1/biz/{biz_type}/reserve. Sent twice it may take twice: what is lost comes again."""
    return Call(
        method="POST",
        path=f"/v1/biz/{segment(biz_type)}/reserve",
        body=msgspec.json.encode({"max": min(wanted, RESERVE_MAX), "wait": wait, "ttr": ttr}),
        read=_tasks,
        is_repeatable=False,
        timeout_s=wait + ANSWER_S,
    )


def report(verb: str, task: Reserved, **said: Any) -> Call[Task]:
    """POST of what a worker says of a task that it holds."""
    fields = {"claim": task.claim, **{name: v for name, v in said.items() if v is not None}}
    return Call(
        method="POST",
        path=f"/v1/tasks/{task.task_id}/{verb}",
        body=msgspec.json.encode(fields),
        read=_TASK,
    )


def failed(task: Reserved, error: BaseException, terms: Terms) -> Call[Task]:
    """What is said of a task whose handler raised."""
    if terms.on_error == "bury":
        reason = f"{type(error).__name__}: {error}"[:REASON_CHARACTERS_MAX]
        return report("bury", task, reason=reason)
    return report("release", task, delay=terms.error_delay)


def again_s(failures: int, uniform: Callable[[float, float], float] = random.uniform) -> float:
    """Seconds until a loop looks for work again that found no server, the n-th time in a row."""
    return min(AGAIN_S_MAX, 0.1 * 2.0 ** min(failures, 10)) * uniform(0.5, 1.0)
