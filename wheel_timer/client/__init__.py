"""
The API from Python: `Client` for threads, `AsyncClient` for an event loop.

    call.py, tasks.py, biz.py, operations.py   what is sent, and what the answer means (pure)
    results.py, errors.py                      what comes back
    client.py, parts.py                        sending, in a thread
    async_client.py, async_parts.py            sending, in an event loop
"""

from __future__ import annotations

from wheel_timer.client.async_client import AsyncClient
from wheel_timer.client.client import Client
from wheel_timer.client.errors import (
    BizTypeInUse,
    BizTypeUnknown,
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
from wheel_timer.client.results import (
    Attempt,
    RejectedTask,
    Submitted,
    SubmittedMany,
    Task,
    Waiting,
)

__all__ = [
    "AsyncClient",
    "Attempt",
    "BizTypeInUse",
    "BizTypeUnknown",
    "Client",
    "ClientError",
    "Conflict",
    "DryRun",
    "Forbidden",
    "InvalidRequest",
    "KeyExists",
    "NotFound",
    "Operation",
    "Overloaded",
    "QuotaUsedUp",
    "RateLimited",
    "Refused",
    "RejectedTask",
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
]
