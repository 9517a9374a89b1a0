"""
The API from Python: `Client` for threads, `AsyncClient` for an event loop.

    call.py, tasks.py, biz.py, operations.py, schedules.py, pull.py   what is sent, what is
                                                        answered (pure)
    results.py, errors.py                               what comes back
    client.py, parts.py, work.py                        sending, in a thread
    async_client.py, async_parts.py, async_work.py      sending, in an event loop
"""

from __future__ import annotations

from wheel_timer.client.async_client import AsyncClient
from wheel_timer.client.async_work import AsyncJob, AsyncWork
from wheel_timer.client.biz import BizVersion, RotatedSecret
from wheel_timer.client.client import Client
from wheel_timer.client.errors import (
    BizTypeInUse,
    BizTypeUnknown,
    ClaimLost,
    ClientError,
    Conflict,
    Forbidden,
    InvalidRequest,
    KeyExists,
    NotFound,
    Overloaded,
    QuotaUsedUp,
    RateLimited,
    Refused,
    ServerError,
    StaleVersion,
    TaskDelivering,
    TaskSettled,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from wheel_timer.client.operations import DryRun, Operation
from wheel_timer.client.pull import Reserved
from wheel_timer.client.results import Attempt, Submitted, Task, Waiting
from wheel_timer.client.schedules import Occurrence, Run, Schedule
from wheel_timer.client.tasks import RejectedTask, SubmittedMany
from wheel_timer.client.work import Job, Work

__all__ = [
    "AsyncClient",
    "AsyncJob",
    "AsyncWork",
    "Attempt",
    "BizTypeInUse",
    "BizTypeUnknown",
    "BizVersion",
    "ClaimLost",
    "Client",
    "ClientError",
    "Conflict",
    "DryRun",
    "Forbidden",
    "InvalidRequest",
    "Job",
    "KeyExists",
    "NotFound",
    "Occurrence",
    "Operation",
    "Overloaded",
    "QuotaUsedUp",
    "RateLimited",
    "Refused",
    "RejectedTask",
    "Reserved",
    "RotatedSecret",
    "Run",
    "Schedule",
    "ServerError",
    "StaleVersion",
    "Submitted",
    "SubmittedMany",
    "Task",
    "TaskDelivering",
    "TaskSettled",
    "TooLarge",
    "TooManyRequests",
    "Unauthorized",
    "Unreachable",
    "Waiting",
    "Work",
]
