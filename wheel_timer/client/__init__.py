"""
The API from Python: `Client` for threads, `AsyncClient` for an event loop.

    call.py, tasks.py, biz.py, operations.py   what is sent, and what the answer means (pure)
    results.py, errors.py                      what comes back
    client.py, parts.py                        sending, in a thread
    async_client.py, async_parts.py            sending, in an event loop
"""

from __future__ import annotations

from wheel_timer.client.async_client import AsyncClient
from wheel_timer.client.biz import BizVersion, RotatedSecret
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
from wheel_timer.client.results import Attempt, Submitted, Task, Waiting
from wheel_timer.client.tasks import RejectedTask, SubmittedMany

__all__ = [
    "AsyncClient",
    "Attempt",
    "BizTypeInUse",
    "BizTypeUnknown",
    "BizVersion",
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
    "RotatedSecret",
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
