"""
The errors of wheel-timer, one tree:

    WheelTimerError
    ├── InvalidTask              422: what was sent breaks a rule; names the fields
    ├── BizTypeUnknown           422: no such biz_type
    ├── TooLarge                 413: beyond a stated limit
    ├── Unauthorized             401
    ├── Forbidden                403
    ├── NotFound                 404
    ├── Conflict                 409: the state does not allow it
    ├── StaleVersion             412: If-Match names an older version
    ├── RateLimited              429: more than a configured rate; carries retry_after_s
    ├── QuotaUsedUp              429: as many tasks pending as there may be; carries retry_after_s
    ├── Overloaded               503: a bounded queue is full; carries retry_after_s
    ├── Unavailable              503: something we stand on does not answer
    │   ├── DatabaseUnavailable
    │   └── EventCenterUnavailable
    ├── DataRejected             Postgres refused a value; the caller halves its batch
    ├── LeadershipLost           another epoch leads the shard; step down
    ├── StepTaken                an operation was stopped, or another leader is at it
    ├── FenceBusy                a writer holds the fence; the tick goes on unfenced
    ├── SchemaMismatch           the database is older (or newer) than this code
    └── StartRefused             a process cannot start; its text is the one line shown

Driver exceptions become these in two places only: `database.py` and `eventcenter.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class FieldError(NamedTuple):
    """One thing wrong with one field. pointer: RFC 6901 into the body, `#/tasks/3/start_time`."""

    detail: str
    pointer: str


class WheelTimerError(Exception):
    """Base of all errors raised by this project."""


class InvalidTask(WheelTimerError):
    """What was sent breaks a rule; `errors` names each field."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        super().__init__("; ".join(f"{e.pointer}: {e.detail}" for e in errors))
        self.errors = list(errors)


class BizTypeUnknown(WheelTimerError):
    def __init__(self, biz_type: str) -> None:
        super().__init__(f"there is no biz_type {biz_type!r}")
        self.biz_type = biz_type


class TooLarge(WheelTimerError):
    """Beyond a stated limit; the text names the limit and its size."""


class Unauthorized(WheelTimerError):
    """No key, or one that does not count."""


class Forbidden(WheelTimerError):
    """The caller may not do this."""


class NotFound(WheelTimerError):
    """Nothing there, or nothing the caller may see."""


class Conflict(WheelTimerError):
    """The state of the thing does not allow the call. problem: a name of the closed list."""

    def __init__(self, detail: str, problem: str) -> None:
        super().__init__(detail)
        self.problem = problem


class StaleVersion(WheelTimerError):
    """If-Match named a version that is no longer the newest."""


class RateLimited(WheelTimerError):
    """More than a configured rate allows. Come back after `retry_after_s`."""

    def __init__(self, detail: str, retry_after_s: int = 1) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class QuotaUsedUp(WheelTimerError):
    """The biz_type has max_pending tasks pending. When one ends there is room again."""

    retry_after_s = 5

    def __init__(self, biz_type: str) -> None:
        super().__init__(f"{biz_type!r} has as many pending tasks as its max_pending allows")


class Overloaded(WheelTimerError):
    """A bounded queue is full. Come back after `retry_after_s`."""

    def __init__(self, detail: str, retry_after_s: int = 1) -> None:
        super().__init__(detail)
        self.retry_after_s = retry_after_s


class Unavailable(WheelTimerError):
    """Something we stand on does not answer; worth a retry."""


class DatabaseUnavailable(Unavailable):
    """
    Postgres cannot be reached, or broke off.

    outcome_unknown: the statement had been sent, so it may or may not have committed.
    """

    def __init__(self, detail: str, *, outcome_unknown: bool = True) -> None:
        super().__init__(detail)
        self.outcome_unknown = outcome_unknown


class EventCenterUnavailable(Unavailable):
    """Redis cannot be reached, refuses, or lost what was asked for."""


class DataRejected(WheelTimerError):
    """Postgres refused a value of this batch (a NUL, a missing partition); nothing was written."""


class LeadershipLost(WheelTimerError):
    """A write under `epoch` was refused: somebody else leads the shard now."""

    def __init__(self, shard: int, epoch: int) -> None:
        super().__init__(f"shard {shard} is no longer led under epoch {epoch}")
        self.shard = shard
        self.epoch = epoch


class StepTaken(WheelTimerError):
    """A chunk of an operation is not the one to come any more; nothing of it was done."""


class FenceBusy(WheelTimerError):
    """A lock was not to be had in the time allowed for it."""


class SchemaMismatch(WheelTimerError):
    """The database's schema is not one this code can run on."""


class StartRefused(WheelTimerError):
    """A process cannot start; the text is the one line its user reads."""
