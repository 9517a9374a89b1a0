"""What became of a submit, in the words of the API: shared by single submits, batches and lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar
from uuid import UUID

from msgspec import Struct
from starlette.requests import Request

from broker.api.context import Context
from broker.api.problems import Problem, Refused, moved_under, problem_of
from broker.api.view import StatusName, differing, status_of
from broker.submission import Duplicate, Outcome, Submission
from wheel_timer import metrics
from wheel_timer.errors import Overloaded, WheelTimerError

E = TypeVar("E", bound=WheelTimerError | Refused)


class Kept(Struct):
    """An existing task that stood in the way of a submit and was kept."""

    task_id: UUID
    status: StatusName
    start_time_ms: int
    differs: list[str]


def kept(given: Submission, duplicate: Duplicate, now_ms: float) -> Kept | Refused:
    """The existing task, or the refusal that the submit asked for in this case."""
    row = duplicate.task
    status = status_of(row, now_ms)
    if given.on_duplicate == "reject":
        extra = {"task_id": str(row.task_id), "task_status": status}
        return Refused(Problem("key-exists", "a task with this biz_id exists", extra=extra))
    return Kept(row.task_id, status, row.start_time, differing(given, row))


def counted(error: E, tasks: int = 1) -> E:
    """The error of a task that is refused, or of several at once, counted."""
    metrics.tasks_rejected(problem_of(error).name or "internal", tasks)
    return error


async def stored(context: Context, submissions: Sequence[Submission]) -> list[Outcome]:
    """What becomes of them. Where none is taken, for want of room, each of them is counted."""
    try:
        return await context.submitter.submit(submissions)
    except Overloaded as error:
        raise counted(error, len(submissions)) from None


def error_of(error: WheelTimerError | Refused, pointer: str) -> dict[str, Any]:
    """The problem of one task of many, counted. pointer: where the task stands in the body."""
    problem = problem_of(counted(error))
    return problem._replace(errors=moved_under(problem.errors, pointer)).content()


def media_type(request: Request) -> str:
    """The request's content-type without its parameters, in lower case; empty for none."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def unsupported(taken: str) -> Refused:
    """The refusal of a content-type that is not among those taken."""
    detail = f"send it as content-type: {taken}"
    return Refused(Problem("invalid-request", detail, 415, headers={"Accept": taken}))
