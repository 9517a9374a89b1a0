"""POST /v1/tasks, and a task by either of its ids."""

from __future__ import annotations

from typing import Final
from uuid import UUID

from msgspec import UNSET, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from broker import tracing
from broker.api.actor import Actor, actor_of
from broker.api.context import Context
from broker.api.intake import TaskIn, check_biz_type
from broker.api.operation import JSON, Answer, Operation, json_answer
from broker.api.outcomes import counted, kept, media_type, stored, unsupported
from broker.api.problems import Refused, invalid
from broker.api.reading import TaskReader
from broker.api.times import format_time
from broker.api.view import Held, StatusName, TaskOut, Time, is_due, task_out
from broker.api.waiting import held_lanes
from broker.submission import Accepted, Duplicate, Replaced, Submission
from wheel_timer.errors import NotFound
from wheel_timer.store.task import TaskRow, attempts, lookup, lookup_by_biz_id
from wheel_timer.wheel import is_task_id

_NO_TASK: Final = "there is no such task, or its retention has ended"


class SubmitOut(Struct, omit_defaults=True):
    """
    What became of one submit. duplicate: its biz_id was taken; then this is the existing task, its
    status says whether it will still fire, and differs names the fields given that are not what is
    stored (of a task that was replaced there are none, and differs is left out).
    """

    task_id: UUID
    status: StatusName
    duplicate: bool
    start_time: Time
    differs: list[str] | UnsetType = UNSET


@tracing.submitting
async def submit(context: Context, request: Request) -> Response:
    """One task: 201 after its commit, 200 where its biz_id was there before."""
    if media_type(request) not in ("", JSON):
        raise unsupported(JSON)
    body = await context.bodies.read(request)
    reader = TaskReader(context, request, _idempotency_key(request))
    read = (await reader.read([body]))[0]
    if not isinstance(read, Submission):
        raise counted(read)
    tracing.note(biz_type=read.biz_type)
    outcome = (await stored(context, [read]))[0]
    if isinstance(outcome, Accepted | Replaced):
        tracing.note(task_id=outcome.task_id)
    if isinstance(outcome, Accepted):
        answer = SubmitOut(outcome.task_id, "pending", False, format_time(outcome.start_time_ms))
        return json_answer(answer, 201, {"Location": f"/v1/tasks/{outcome.task_id}"})
    if isinstance(outcome, Replaced):
        start_time = format_time(outcome.start_time_ms)
        answer = SubmitOut(outcome.task_id, "pending", not outcome.is_revived, start_time)
        status = 201 if outcome.is_revived else 200
        return json_answer(answer, status, {"Location": f"/v1/tasks/{outcome.task_id}"})
    if not isinstance(outcome, Duplicate):
        raise counted(outcome)
    found = kept(read, outcome, context.clock.now_ms())
    if isinstance(found, Refused):
        raise counted(found)
    start_time = format_time(found.start_time_ms)
    answer = SubmitOut(found.task_id, found.status, True, start_time, found.differs)
    return json_answer(answer, 200, {"Location": f"/v1/tasks/{found.task_id}"})


async def get_task(context: Context, request: Request) -> Response:
    """A task by its task_id."""
    row = await find_task(context, actor_of(request), request.path_params["task_id"])
    return json_answer(await told_task(context, row))


async def find_task(context: Context, actor: Actor, text: str) -> TaskRow:
    """The task with this task_id that the actor sees. Raises NotFound."""
    row = None
    try:
        task_id = UUID(text)
    except ValueError:
        raise NotFound("a task_id is a UUID") from None
    if is_task_id(task_id):
        row = (await lookup(context.db, [task_id])).get(task_id)
    if row is None or not actor.sees(row.biz_type):
        raise NotFound(_NO_TASK)
    return row


async def get_task_by_biz_id(context: Context, request: Request) -> Response:
    """A task by its biz_type and biz_id."""
    biz_type: str = request.path_params["biz_type"]
    biz_id: str = request.path_params["biz_id"]
    check_biz_type(biz_type)
    # No stored biz_id has one, and Postgres takes none even to look for.
    row = None if "\0" in biz_id else await lookup_by_biz_id(context.db, biz_type, biz_id)
    if row is None:
        raise NotFound(_NO_TASK)
    return json_answer(await told_task(context, row))


async def told_task(context: Context, row: TaskRow) -> TaskOut:
    """A task with its story, and what it waits for now."""
    past = await attempts(context.db, row.task_id) if row.attempts else []
    now_ms = context.clock.now_ms()
    held: dict[str, Held] = {}
    if is_due(row, now_ms):
        held = await held_lanes(context, [row.biz_type], now_ms)
    return task_out(row, past, now_ms, held.get(row.biz_type))


def _idempotency_key(request: Request) -> str | None:
    value = request.headers.get("idempotency-key")
    if value is None:
        return None
    try:
        return value.encode("latin-1").decode()
    except UnicodeDecodeError:
        raise invalid("Idempotency-Key is not UTF-8") from None


OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/v1/tasks",
        handler=submit,
        name="submitTask",
        scope="submit",
        summary="Submit a task",
        text="Answered after the commit: what got a 2xx is never lost. With a biz_id it is safe to "
        "send the same submit again.",
        takes={JSON: TaskIn},
        headers={
            "Idempotency-Key": "taken as the biz_id where the body has none",
            "traceparent": "W3C trace context; passed on to the callback",
            "Content-Encoding": "gzip",
        },
        answers={
            201: Answer(text="Stored", body=SubmitOut, headers={"Location": "the task"}),
            200: Answer(
                text="The biz_id was taken; this is the existing task, replaced or kept",
                body=SubmitOut,
                headers={"Location": "the task"},
            ),
        },
        problems=(
            *("invalid-request", "biz-type-unknown", "key-exists", "too-large"),
            *("rate-limited", "quota", "overloaded"),
        ),
    ),
    Operation(
        method="GET",
        path="/v1/tasks/{task_id}",
        handler=get_task,
        name="getTask",
        scope="read",
        summary="A task with its story",
        answers={200: Answer(text="The task", body=TaskOut)},
        problems=("not-found", "overloaded"),
    ),
    Operation(
        method="GET",
        path="/v1/biz/{biz_type}/tasks/{biz_id}",
        handler=get_task_by_biz_id,
        name="getTaskByBizId",
        scope="read",
        summary="A task by the business's own id",
        text="The biz_id is one percent-encoded segment of the path: a slash in it is %2F.",
        answers={200: Answer(text="The task", body=TaskOut)},
        problems=("not-found", "invalid-request", "overloaded"),
    ),
)
