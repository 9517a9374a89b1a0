"""The calls on tasks: submit, look, change of mind. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal, NamedTuple, TypedDict
from uuid import UUID, uuid4

import msgspec

from wheel_timer.client.call import Call, moment, query_of, reader, segment
from wheel_timer.client.errors import Refused, of_problem
from wheel_timer.client.results import Batch, Page, StatusName, Submitted, Task

BATCH_TASKS: Final = 1_000
BATCH_BYTES: Final = 1_048_576
BATCH_TIMEOUT_S: Final = 30.0
ERRORS_MAX: Final = 1_000
# A second submit with one of these may act on what the first one did.
_ONCE: Final = frozenset({"reject", "replace"})

Moment = datetime | float | str
Seconds = float | timedelta


class Changes(TypedDict, total=False):
    """
    What of a task may be set, and changed later.

    start_time: an aware datetime, epoch seconds, or RFC 3339; or delay, from now. biz_data: JSON,
    or bytes, which are sent as they are (name their content_type). callback: a URL, or {url,
    method, headers, timeout}. None takes a value away again.
    """

    start_time: Moment | None
    delay: Seconds | None
    biz_data: Any
    content_type: str | None
    callback: str | Mapping[str, Any] | None
    retry: Mapping[str, Any] | None
    max_age: Seconds | None


class TaskFields(Changes, total=False):
    """A task to submit, but for its biz_type. spread: seconds over which the start is drawn."""

    biz_id: str | None
    spread: Seconds | None
    on_duplicate: Literal["keep", "reject", "replace", "earliest", "latest"]


class NewTask(TaskFields):
    """A task to submit."""

    biz_type: str


class Filter(TypedDict, total=False):
    """Which tasks. Times are intervals [from, to)."""

    biz_type: str | None
    status: StatusName | None
    biz_id_prefix: str | None
    start_from: Moment | None
    start_to: Moment | None
    finish_from: Moment | None
    finish_to: Moment | None
    http_status: int | None
    schedule_id: str | UUID | None


class ListFilter(Filter, total=False):
    """Which tasks a list shows; without times and status those of now +- 24 h."""

    biz_id: str | None


class RejectedTask(msgspec.Struct, frozen=True):
    """A task of submit_many that was not stored. position: counting from 0."""

    position: int
    error: Refused


class SubmittedMany(msgspec.Struct):
    """
    What became of many. accepted: stored anew. errors: of the first 1,000 that were rejected.
    """

    accepted: int = 0
    duplicates: int = 0
    rejected: int = 0
    errors: list[RejectedTask] = []


class Encoded(NamedTuple):
    """A task as JSON. was_named: it came with its own biz_id."""

    body: bytes
    biz_id: str
    was_named: bool
    is_repeatable: bool


_SUBMITTED: Final = reader(Submitted)
_BATCH: Final = reader(Batch)
_TASK: Final = reader(Task)
_TASKS: Final = reader(Page[Task])


def encoded(task: Mapping[str, Any]) -> Encoded:
    """
    A task as JSON. Raises ValueError for a naive datetime, TypeError for what is no JSON.

    Without a biz_id it gets a random one: the same submit sent again is then the same task.
    """
    fields = _fields(task)
    biz_id = fields.get("biz_id")
    was_named = biz_id is not None
    if biz_id is None:
        biz_id = fields["biz_id"] = str(uuid4())
        fields.pop("on_duplicate", None)
    is_repeatable = fields.get("on_duplicate") not in _ONCE
    return Encoded(msgspec.json.encode(fields), str(biz_id), was_named, is_repeatable)


def submit(task: Mapping[str, Any]) -> Call[Submitted]:
    """POST /v1/tasks."""
    new = encoded(task)

    def read(body: bytes) -> Submitted:
        found = _SUBMITTED(body)
        # Nobody else can have had a random biz_id: a duplicate of it is our own first try.
        is_duplicate = found.duplicate and new.was_named
        return msgspec.structs.replace(found, biz_id=new.biz_id, duplicate=is_duplicate)

    return Call(
        method="POST",
        path="/v1/tasks",
        body=new.body,
        read=read,
        is_repeatable=new.is_repeatable,
    )


class Chunk(NamedTuple):
    """Some tasks in a row of submit_many. first: the position of the first one."""

    first: int
    tasks: list[Encoded]

    def call(self) -> Call[Batch]:
        """POST /v1/tasks/batch."""
        return Call(
            method="POST",
            path="/v1/tasks/batch",
            body=b'{"tasks":[' + b",".join(task.body for task in self.tasks) + b"]}",
            read=_BATCH,
            is_repeatable=all(task.is_repeatable for task in self.tasks),
            timeout_s=BATCH_TIMEOUT_S,
        )

    def add_up(self, batch: Batch, sum_of: SubmittedMany) -> None:
        """Add what became of them."""
        for position, (task, item) in enumerate(
            zip(self.tasks, batch.results, strict=True), self.first
        ):
            if item.error is not None:
                sum_of.rejected += 1
                if len(sum_of.errors) < ERRORS_MAX:
                    sum_of.errors.append(RejectedTask(position, _error_of(item.error)))
            elif item.duplicate and task.was_named:
                sum_of.duplicates += 1
            else:
                sum_of.accepted += 1


class Chunks:
    """Gathers tasks into chunks of bounded size: `add` gives one back when it is full."""

    def __init__(self) -> None:
        self._chunk = Chunk(0, [])
        self._bytes = 0

    def add(self, task: Mapping[str, Any]) -> Chunk | None:
        """Take one more task."""
        new = encoded(task)
        full = None
        if len(self._chunk.tasks) == BATCH_TASKS or (
            self._chunk.tasks and self._bytes + len(new.body) > BATCH_BYTES
        ):
            full = self.rest()
        self._chunk.tasks.append(new)
        self._bytes += len(new.body)
        return full

    def rest(self) -> Chunk:
        """What was gathered."""
        chunk = self._chunk
        self._chunk = Chunk(chunk.first + len(chunk.tasks), [])
        self._bytes = 0
        return chunk


def chunks(tasks: Iterable[Mapping[str, Any]]) -> Iterator[Chunk]:
    """All of them, chunk by chunk."""
    gathered = Chunks()
    for task in tasks:
        if (full := gathered.add(task)) is not None:
            yield full
    rest = gathered.rest()
    if rest.tasks:
        yield rest


def get(task: str | UUID, biz_id: str | None) -> Call[Task]:
    """GET of a task."""
    return Call(method="GET", path=_path(task, biz_id), read=_TASK)


def cancel(task: str | UUID, biz_id: str | None, *, stop: bool, discard: bool) -> Call[Task]:
    """DELETE of a task."""
    query = {"stop": stop or None, "discard": discard or None}
    return Call(method="DELETE", path=_path(task, biz_id), query=query_of(query), read=_TASK)


def change(task: str | UUID, biz_id: str | None, changes: Mapping[str, Any]) -> Call[Task]:
    """PATCH of a task."""
    return Call(
        method="PATCH",
        path=_path(task, biz_id),
        body=msgspec.json.encode(_fields(changes)),
        read=_TASK,
    )


def verb(name: str, task: str | UUID, biz_id: str | None, *, is_repeatable: bool) -> Call[Task]:
    """POST of a verb on a task: run, replay."""
    path = f"{_path(task, biz_id)}/{name}"
    return Call(method="POST", path=path, read=_TASK, is_repeatable=is_repeatable)


def page(filter_: Mapping[str, Any], limit: int | None, cursor: str | None) -> Call[Page[Task]]:
    """GET of one page of tasks."""
    query = query_of({**filter_, "limit": limit, "cursor": cursor})
    return Call(method="GET", path="/v1/tasks", query=query, read=_TASKS)


def _path(task: str | UUID, biz_id: str | None) -> str:
    """task: a task_id; or, with a biz_id, the biz_type."""
    if biz_id is None:
        return f"/v1/tasks/{segment(str(task))}"
    return f"/v1/biz/{segment(str(task))}/tasks/{segment(biz_id)}"


def _fields(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields as the API takes them."""
    fields = dict(given)
    if "start_time" in fields:
        fields["start_time"] = moment(fields["start_time"])
    for name in ("delay", "max_age", "spread"):
        if isinstance(fields.get(name), timedelta):
            fields[name] = fields[name].total_seconds()
    if isinstance(fields.get("callback"), str):
        fields["callback"] = {"url": fields["callback"]}
    if isinstance(fields.get("biz_data"), bytes | bytearray | memoryview):
        fields["biz_data_base64"] = b64encode(fields.pop("biz_data")).decode()
    return fields


def _error_of(problem: Mapping[str, Any]) -> Refused:
    status = problem.get("status")
    return of_problem(status if isinstance(status, int) else 422, problem)
