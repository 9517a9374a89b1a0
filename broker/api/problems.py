"""
What the API says when the answer is no: RFC 9457 problems with types of a closed list.

`problem_of` is the table from errors to problems. Where the request itself cannot be read (no such
route, not JSON), the place that finds out raises `Refused` with the problem.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from starlette.responses import Response

from wheel_timer.errors import (
    BizTypeUnknown,
    Conflict,
    FieldError,
    Forbidden,
    InvalidTask,
    NotFound,
    Overloaded,
    QuotaUsedUp,
    RateLimited,
    StaleVersion,
    TooLarge,
    Unauthorized,
    Unavailable,
)

MEDIA_TYPE: Final = "application/problem+json"
# What an unreachable database is worth waiting for: a failover takes seconds, not minutes.
UNAVAILABLE_RETRY_S: Final = 2


class Kind(NamedTuple):
    """One type of the closed list. text is what /problems/NAME says: the cause, and what to do."""

    status: int
    title: str
    text: str


KINDS: Final[dict[str, Kind]] = {
    "invalid-request": Kind(
        422,
        "The request breaks a rule",
        "`errors` names each field with a JSON pointer and says what is wrong with it. Also used "
        "for a body that is not JSON (400), a path that does not know the method (405), and a "
        "media type or content coding that is not taken (415). Sending it again changes nothing.",
    ),
    "too-large": Kind(
        413,
        "The request is too large",
        "The body is beyond MAX_REQUEST, or a task's biz_data beyond MAX_BODY; GET /v1/limits "
        "shows both. Keep large payloads elsewhere and put their address into biz_data; send many "
        "tasks as NDJSON, which has no limit but that of a line.",
    ),
    "unauthorized": Kind(
        401,
        "A key is needed",
        "Send `Authorization: Bearer KEY`. The key was missing, or it is none of this "
        "server's: mistyped, expired, revoked, or of before a rotation.",
    ),
    "forbidden": Kind(
        403,
        "Not allowed",
        "The key lacks the scope that the call needs; /docs names it for each. "
        "A server without ADMIN_KEY serves only this machine: the Host must be localhost, "
        "127.0.0.1 or [::1], and a browser's page of another origin may change nothing.",
    ),
    "not-found": Kind(
        404,
        "There is no such thing",
        "No task, biz_type or path by this name; or it was there and its retention has ended.",
    ),
    "task-delivering": Kind(
        409,
        "The task is being delivered",
        "A broker is calling it, or about to: from at most 20 ms before its moment on. `task` is "
        "the task. Wait for the end of the attempt; `DELETE ...?stop=true` lets no other follow.",
    ),
    "task-settled": Kind(
        409,
        "The task is settled",
        "It is finished, failed or cancelled, and the call is for one that is not. `task` is the "
        "task. `POST .../replay` starts it again; `DELETE ...?discard=true` takes a failed one "
        "out of the dead letters.",
    ),
    "key-exists": Kind(
        409,
        "The biz_id is taken",
        "A task with this biz_type and biz_id exists and the request said `on_duplicate: reject`. "
        "`task_id` and `task_status` are those of the existing task. With `keep`, the default, it "
        "would have been answered with 200 and `duplicate: true`.",
    ),
    "biz-type-in-use": Kind(
        409,
        "The biz_type is in use",
        "It has tasks that are pending, or failed and not discarded, or another biz_type names it "
        "in on_failed; `detail` says which. Cancel, wait or purge first.",
    ),
    "biz-type-unknown": Kind(
        422,
        "There is no such biz_type",
        "Create it first: PUT /v1/biz/NAME with its callback_url.",
    ),
    "stale-version": Kind(
        412,
        "Somebody changed it meanwhile",
        "If-Match (or `version`) names a version that is no longer the newest. GET it, look at "
        "what changed, and send the change again with the new ETag.",
    ),
    "claim-lost": Kind(
        409,
        "The claim is lost",
        "The claim that the call names holds the task no more: its time ran out, or the task was "
        "changed, settled or given to another since. What was done under it may be done again.",
    ),
    "rate-limited": Kind(
        429,
        "Too many submits",
        "The biz_type takes no more than its submit_rate_limit, over all brokers together. Come "
        "back after `Retry-After` seconds. Of a batch, the tasks that found room are stored, and "
        "each of the others carries this problem.",
    ),
    "quota": Kind(
        429,
        "The quota is used up",
        "The biz_type has as many pending tasks as its max_pending allows, over all brokers "
        "together. There is room again as soon as one of them is called or cancelled; come back "
        "after `Retry-After` seconds. Of a batch, the first tasks that found room are stored, and "
        "each of the others carries this problem.",
    ),
    "overloaded": Kind(
        503,
        "Not now",
        "A queue is full, the server is stopping, or the database does not answer. Come back after "
        "`Retry-After` seconds. Whether a submit that ended so was stored is unknown: repeat it "
        "with the same biz_id, and it will be there once.",
    ),
}
# A fault of ours; RFC 9457's type for a problem that says no more than its status.
INTERNAL: Final = Kind(500, "An error inside the server", "The log has it, by its request_id.")


class Problem(NamedTuple):
    """One problem, before it knows its request. name: of KINDS, or empty for a fault of ours."""

    name: str
    detail: str
    status: int = 0
    errors: Sequence[FieldError] = ()
    headers: Mapping[str, str] = {}
    extra: Mapping[str, Any] = {}

    @property
    def code(self) -> int:
        """The HTTP status: the problem's own, or that of its kind."""
        return self.status or KINDS.get(self.name, INTERNAL).status

    def content(self) -> dict[str, Any]:
        """The members of the problem document."""
        kind = KINDS.get(self.name, INTERNAL)
        members: dict[str, Any] = {
            "type": f"/problems/{self.name}" if self.name else "about:blank",
            "title": kind.title,
            "status": self.code,
            "detail": self.detail,
        }
        if self.errors:
            members["errors"] = [
                {"detail": error.detail, "pointer": error.pointer} for error in self.errors
            ]
        return members | dict(self.extra)


class Refused(Exception):
    """The request ends here, with this problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


class PayloadTooLarge(TooLarge):
    """biz_data beyond MAX_BODY; `errors` points at it."""

    def __init__(self, size: int, body_bytes_max: int, pointer: str) -> None:
        detail = f"{size} bytes; biz_data has at most {body_bytes_max} (MAX_BODY)"
        super().__init__(detail)
        self.errors = [FieldError(detail, pointer)]


def invalid(detail: str, pointer: str = "#", *, status: int = 0) -> Refused:
    """The refusal of a request whose one fault is this."""
    return Refused(Problem("invalid-request", detail, status, [FieldError(detail, pointer)]))


def problem_of(error: Exception) -> Problem:
    """The problem that an error of ours is answered with; any other is an internal error."""
    text = str(error)
    match error:
        case Refused():
            return error.problem
        case InvalidTask():
            detail = (
                error.errors[0].detail if len(error.errors) == 1 else "several fields are wrong"
            )
            return Problem("invalid-request", detail, errors=error.errors)
        case BizTypeUnknown():
            return Problem("biz-type-unknown", text, errors=[FieldError(text, "#/biz_type")])
        case PayloadTooLarge():
            return Problem("too-large", text, errors=error.errors)
        case TooLarge():
            return Problem("too-large", text)
        case Unauthorized():
            return Problem("unauthorized", text, headers={"WWW-Authenticate": "Bearer"})
        case Forbidden():
            return Problem("forbidden", text)
        case NotFound():
            return Problem("not-found", text)
        case Conflict():
            return Problem(error.problem, text)
        case StaleVersion():
            return Problem("stale-version", text)
        case RateLimited():
            return Problem("rate-limited", text, headers={"Retry-After": str(error.retry_after_s)})
        case QuotaUsedUp():
            return Problem("quota", text, headers={"Retry-After": str(error.retry_after_s)})
        case Overloaded():
            return Problem("overloaded", text, headers={"Retry-After": str(error.retry_after_s)})
        case Unavailable():
            # The text may name hosts; those are for the log.
            detail = "the database does not answer"
            return Problem("overloaded", detail, headers={"Retry-After": str(UNAVAILABLE_RETRY_S)})
    return Problem("", "an error inside the server; the log has it by this request_id")


def response_of(problem: Problem, request_id: str) -> Response:
    """The problem as an HTTP answer."""
    return Response(
        msgspec.json.encode(problem.content() | {"request_id": request_id}),
        status_code=problem.code,
        headers=dict(problem.headers),
        media_type=MEDIA_TYPE,
    )


def moved_under(errors: Sequence[FieldError], prefix: str) -> list[FieldError]:
    """The errors of one task, pointing into the batch it came in: #/x becomes PREFIX/x."""
    return [FieldError(error.detail, prefix + error.pointer[1:]) for error in errors]
