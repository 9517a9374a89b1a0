"""
What a call of the client may raise, one tree:

    ClientError
    ├── Unreachable            no answer: no connection, a broken one, or none in time
    └── Refused                the server said no, in a problem
        ├── InvalidRequest     400, 405, 415, 422: `errors` names the fields
        │   ├── BizTypeUnknown
        │   └── TooLarge       413
        ├── Unauthorized       401
        ├── Forbidden          403
        ├── NotFound           404
        ├── Conflict           409: the state does not allow it
        │   ├── KeyExists      the biz_id is taken, and on_duplicate was reject
        │   ├── TaskDelivering it is being called right now
        │   ├── TaskSettled    it is finished, failed or cancelled
        │   ├── ClaimLost      it is no longer this worker's
        │   └── BizTypeInUse
        ├── StaleVersion       412: somebody changed it meanwhile
        ├── TooManyRequests    429
        │   ├── RateLimited    submit_rate_limit
        │   └── QuotaUsedUp    max_pending
        ├── Overloaded         503
        └── ServerError        any other answer that is no success

`is_retryable`: the same call may succeed later. The client has tried three times by then.
"""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Final

import msgspec

from wheel_timer.client.results import Task
from wheel_timer.errors import FieldError, WheelTimerError


class ClientError(WheelTimerError):
    """Base of all that a call of the client raises for the server's sake."""

    is_retryable: bool = False
    retry_after_s: float | None = None


class Unreachable(ClientError):
    """No answer. was_sent: the request had been sent, so it may have taken effect."""

    is_retryable = True

    def __init__(self, detail: str, *, was_sent: bool) -> None:
        super().__init__(detail)
        self.was_sent = was_sent


class Refused(ClientError):
    """
    The server's answer is a problem (RFC 9457).

    status: of HTTP. name: of /problems/NAME, empty where the answer was none of ours. errors: what
    is wrong with which field. request_id: finds it in the server's log. problem: the whole
    document; that of a conflict may have the task in it.
    """

    def __init__(
        self, status: int, problem: Mapping[str, Any], retry_after_s: float | None = None
    ) -> None:
        self.status = status
        self.problem = dict(problem)
        self.name = str(problem.get("type", "")).rpartition("/problems/")[2]
        self.title = str(problem.get("title", f"the server answered {status}"))
        self.detail = str(problem.get("detail", ""))
        self.request_id: str | None = problem.get("request_id")
        self.errors = [
            FieldError(str(error.get("detail", "")), str(error.get("pointer", "#")))
            for error in problem.get("errors") or ()
            if isinstance(error, Mapping)
        ]
        self.retry_after_s = retry_after_s
        said = "; ".join(f"{error.pointer}: {error.detail}" for error in self.errors)
        super().__init__(f"{status} {self.title}" + (f": {said or self.detail}").rstrip(": "))


class InvalidRequest(Refused):
    """The request breaks a rule; `errors` names each field."""


class BizTypeUnknown(InvalidRequest):
    """There is no such biz_type."""


class TooLarge(InvalidRequest):
    """Beyond a limit that `GET /v1/limits` shows."""


class Unauthorized(Refused):
    """No key, or one that does not count."""


class Forbidden(Refused):
    """The key lacks the scope."""


class NotFound(Refused):
    """No such thing, or nothing that this key may see."""


class Conflict(Refused):
    """The state does not allow the call."""

    @property
    def task(self) -> Task | None:
        """The task as it is, where it is one that does not allow it."""
        found = self.problem.get("task")
        return None if found is None else msgspec.convert(found, Task)


class KeyExists(Conflict):
    """The biz_id is taken, and the submit said on_duplicate: reject."""


class TaskDelivering(Conflict):
    """The task is being called, or is about to be within milliseconds."""


class TaskSettled(Conflict):
    """The task has ended."""


class ClaimLost(Conflict):
    """The task is no longer this worker's: its time was over, or it was changed or reported."""


class BizTypeInUse(Conflict):
    """The biz_type has tasks."""


class StaleVersion(Refused):
    """Somebody has changed it since the version that was given."""


class TooManyRequests(Refused):
    """Not at this pace; `retry_after_s` says when."""

    is_retryable = True


class RateLimited(TooManyRequests):
    """Beyond the biz_type's submit_rate_limit."""


class QuotaUsedUp(TooManyRequests):
    """The biz_type has max_pending tasks pending."""


class Overloaded(Refused):
    """Not now. Whether a submit that ended so was stored is unknown."""

    is_retryable = True


class ServerError(Refused):
    """An error inside the server, or an answer of something that is no wheel-timer."""


_BY_NAME: Final[Mapping[str, type[Refused]]] = {
    "invalid-request": InvalidRequest,
    "biz-type-unknown": BizTypeUnknown,
    "too-large": TooLarge,
    "unauthorized": Unauthorized,
    "forbidden": Forbidden,
    "not-found": NotFound,
    "key-exists": KeyExists,
    "task-delivering": TaskDelivering,
    "task-settled": TaskSettled,
    "claim-lost": ClaimLost,
    "biz-type-in-use": BizTypeInUse,
    "stale-version": StaleVersion,
    "rate-limited": RateLimited,
    "quota": QuotaUsedUp,
    "overloaded": Overloaded,
}
# A balancer's own answer, or a problem that is newer than this client.
_BY_STATUS: Final[Mapping[int, type[Refused]]] = {
    400: InvalidRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: StaleVersion,
    413: TooLarge,
    422: InvalidRequest,
    429: TooManyRequests,
    503: Overloaded,
}


def refused(status: int, body: bytes, retry_after: str | None, now_s: float) -> Refused:
    """The error that an answer which is no success stands for. now_s: epoch seconds."""
    try:
        problem = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        problem = None
    if not isinstance(problem, dict):
        problem = {}
    return of_problem(status, problem, _seconds(retry_after, now_s))


def of_problem(
    status: int, problem: Mapping[str, Any], retry_after_s: float | None = None
) -> Refused:
    """The same of a problem document that is read already."""
    name = str(problem.get("type", "")).rpartition("/problems/")[2]
    kind = _BY_NAME.get(name) or _BY_STATUS.get(status, ServerError)
    return kind(status, problem, retry_after_s)


def _seconds(retry_after: str | None, now_s: float) -> float | None:
    """A Retry-After of seconds, or a date."""
    if retry_after is None:
        return None
    if retry_after.isdecimal() and len(retry_after) < 10:
        return float(retry_after)
    try:
        return max(0.0, parsedate_to_datetime(retry_after).timestamp() - now_s)
    except ValueError:
        return None
