"""A task as the API shows it: its row, its attempts, and what it is waiting for. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from broker.api.times import format_time
from broker.submission import Submission
from wheel_timer.biz import RetryIn
from wheel_timer.callback import Callback, Mark, masked
from wheel_timer.store.task import AttemptRow, TaskRow
from wheel_timer.task import Status

StatusName = Literal["pending", "delivering", "finished", "failed", "cancelled"]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]

_NAMES: dict[Status, StatusName] = {
    Status.PENDING: "pending",
    Status.FINISHED: "finished",
    Status.FAILED: "failed",
    Status.CANCELLED: "cancelled",
}
_CALLBACK = msgspec.json.Decoder(Callback)
_RETRY = msgspec.json.Decoder(RetryIn)


HeldReason = Literal["rate_limited", "concurrency", "breaker_open", "paused", "event_center"]


class Held(NamedTuple):
    """Why a lane holds back what is due. Times in ms; None where it is not known."""

    reason: HeldReason
    since_ms: int | None
    until_ms: int | None


class Waiting(Struct):
    """
    Why a pending task is not being called at this moment. scheduled: its start_time has not come;
    backoff: the last attempt failed, or was answered 429; released: the endpoint asked for another
    time. Of one that is due: queued (its turn comes), rate_limited, concurrency (as many calls as
    may are running), breaker_open (the endpoint kept failing), paused, event_center (which is out
    of reach).
    """

    reason: Literal["scheduled", "queued", "backoff", "released"] | HeldReason
    since: Time
    until: Time | None


class CallbackOut(Struct):
    """The task's own callback; header values that are credentials as marks."""

    url: str
    method: str | None
    headers: dict[str, str | Mark]
    timeout: float | None


class AttemptOut(Struct):
    """One attempt. response_excerpt: the first 256 bytes of an answer that was not a 2xx."""

    attempt: int
    life: int
    due_time: Time | None
    published_time: Time | None
    started_time: Time | None
    duration_ms: int | None
    outcome: str
    error_class: str | None
    error: str | None
    http_status: int | None
    response_excerpt: str | None
    remote_address: str | None
    broker: str | None
    config_version: int | None


class TaskItem(Struct, kw_only=True):
    """
    A task in a list: all but its payload and its attempts. attempts only grows and may skip
    numbers; failures is the part of the retry budget that is used up.
    """

    task_id: UUID
    biz_type: str
    biz_id: str | None
    status: StatusName
    start_time: Time
    create_time: Time
    life: int
    revision: int
    attempts: int
    failures: int
    waiting: Waiting | None
    first_attempt_time: Time | None
    next_attempt_time: Time | None
    finish_time: Time | None
    expire_time: Time | None
    http_status: int | None
    last_error: str | None
    content_type: str | None
    callback: CallbackOut | None
    retry: RetryIn | None
    max_age: Annotated[float | None, Meta(description="seconds")]
    schedule_id: UUID | None
    scheduled_time: Time | None


class TaskOut(TaskItem, kw_only=True):
    """
    A task with its story. attempts only grows and may skip numbers; failures is the part of the
    retry budget that is used up. biz_data where the payload is JSON, else biz_data_base64.
    """

    attempt_log: list[AttemptOut]
    biz_data: Raw | UnsetType = UNSET
    biz_data_base64: str | UnsetType = UNSET


def status_of(row: TaskRow, now_ms: float) -> StatusName:
    """The task's status in words; delivering is a pending task that a broker is calling."""
    if row.status is Status.PENDING and row.lease_until is not None and row.lease_until > now_ms:
        return "delivering"
    return _NAMES[row.status]


def is_due(row: TaskRow, now_ms: float) -> bool:
    """Whether nothing but its lane keeps a task from being called."""
    return (
        row.status is Status.PENDING
        and row.start_time <= now_ms
        and (row.next_at or 0) <= now_ms
        and (row.lease_until or 0) <= now_ms
    )


def task_item(
    row: TaskRow, last: AttemptRow | None, now_ms: float, held: Held | None = None
) -> TaskItem:
    """A task in a list. last: its last attempt that did not finish it. The rest as in task_out."""
    return TaskItem(**_members(row, last, now_ms, held))


def task_out(
    row: TaskRow, attempts: Sequence[AttemptRow], now_ms: float, held: Held | None = None
) -> TaskOut:
    """The whole answer. now_ms: the database's clock. held: how its lane stands."""
    last = attempts[-1] if attempts else None
    shown = TaskOut(**_members(row, last, now_ms, held), attempt_log=_attempt_log(row, attempts))
    if row.biz_data is not None:
        if is_json(row.biz_data, row.content_type):
            shown.biz_data = Raw(row.biz_data)
        else:
            shown.biz_data_base64 = b64encode(row.biz_data).decode()
    return shown


def _members(
    row: TaskRow, last: AttemptRow | None, now_ms: float, held: Held | None
) -> dict[str, Any]:
    """The members that both forms have."""
    status = status_of(row, now_ms)
    is_waiting = status == "pending"
    return {
        "task_id": row.task_id,
        "biz_type": row.biz_type,
        "biz_id": row.biz_id,
        "status": status,
        "start_time": format_time(row.start_time),
        "create_time": format_time(row.create_time),
        "life": row.life,
        "revision": row.revision,
        "attempts": row.attempts,
        "failures": row.failures,
        "waiting": _waiting(row, last, now_ms, held) if is_waiting else None,
        "first_attempt_time": _time(row.first_attempt_time),
        "next_attempt_time": _time(row.next_at or row.start_time) if is_waiting else None,
        "finish_time": _time(row.finish_time),
        "expire_time": _time(row.expire_at),
        "http_status": row.http_status,
        "last_error": row.last_error,
        "content_type": row.content_type,
        "callback": None if row.callback is None else callback_out(row.callback),
        "retry": None if row.retry is None else _RETRY.decode(row.retry),
        "max_age": None if row.max_age is None else row.max_age / 1000,
        "schedule_id": row.schedule_id,
        "scheduled_time": _time(row.scheduled_time),
    }


def differing(given: Submission, row: TaskRow) -> list[str]:
    """The fields of a kept duplicate that do not say what is stored. A delay is not compared."""
    fields = []
    if given.start_time_ms is not None and not (
        given.start_time_ms <= row.start_time <= given.start_time_ms + max(0, given.spread_ms - 1)
    ):
        fields.append("start_time")
    if given.biz_data is not None and given.biz_data != row.biz_data:
        fields.append("biz_data")
    if given.content_type is not None and given.content_type != row.content_type:
        fields.append("content_type")
    if given.callback is not None and not _same_json(given.callback, row.callback):
        fields.append("callback")
    if given.retry is not None and not _same_json(given.retry, row.retry):
        fields.append("retry")
    if given.max_age_ms is not None and given.max_age_ms != row.max_age:
        fields.append("max_age")
    return fields


def _same_json(given: bytes, stored: str | None) -> bool:
    return stored is not None and bool(msgspec.json.decode(given) == msgspec.json.decode(stored))


def _time(moment_ms: int | None) -> str | None:
    return None if moment_ms is None else format_time(moment_ms)


def _waiting(row: TaskRow, last: AttemptRow | None, now_ms: float, held: Held | None) -> Waiting:
    if row.next_at is not None and row.next_at > now_ms:
        ended_ms = row.create_time
        if last is not None and last.started_time is not None:
            ended_ms = last.started_time + (last.duration_ms or 0)
        # A worker's release has no status. A 429 spends no failure either, but asks for nothing: it
        # says that it was too much.
        is_released = (
            last is not None
            and last.outcome == "released"
            and (last.http_status or 200) // 100 == 2
        )
        reason: Literal["released", "backoff"] = "released" if is_released else "backoff"
        return Waiting(reason, format_time(ended_ms), format_time(row.next_at))
    if row.start_time > now_ms:
        return Waiting("scheduled", format_time(row.create_time), format_time(row.start_time))
    since_ms = max(row.start_time, row.next_at or 0, _given_ms(row))
    if held is None:
        return Waiting("queued", format_time(since_ms), None)
    return Waiting(
        held.reason, format_time(max(since_ms, held.since_ms or 0)), _time(held.until_ms)
    )


def callback_out(stored: str) -> CallbackOut:
    """A callback of one's own, a JSON text, as it may be shown."""
    callback = _CALLBACK.decode(stored)
    return CallbackOut(callback.url, callback.method, masked(callback.headers), callback.timeout)


def _attempt_log(row: TaskRow, attempts: Sequence[AttemptRow]) -> list[AttemptOut]:
    log = [
        AttemptOut(
            attempt=past.attempt,
            life=past.life,
            due_time=_time(past.due_time),
            published_time=_time(past.published_time),
            started_time=_time(past.started_time),
            duration_ms=past.duration_ms,
            outcome=past.outcome,
            error_class=past.error_class,
            error=past.error,
            http_status=past.http_status,
            response_excerpt=past.response_excerpt,
            remote_address=past.remote_address,
            broker=past.broker,
            config_version=past.config_version,
        )
        for past in attempts
    ]
    if row.status is Status.FINISHED:
        # The attempt that finished a task has no row of its own: the task's row is its record.
        log.append(
            AttemptOut(
                attempt=row.attempts,
                life=row.life,
                # With no attempt before it, it was due at its start_time, or at once.
                due_time=_time(max(row.start_time, _given_ms(row))) if not attempts else None,
                published_time=_time(row.published),
                started_time=_time(row.started),
                duration_ms=row.duration,
                outcome="finished",
                error_class=None,
                error=None,
                http_status=row.http_status,
                response_excerpt=None,
                remote_address=None,
                broker=None,
                config_version=None,
            )
        )
    return log


def _given_ms(row: TaskRow) -> int:
    """When a task was put on the wheel as it is: a start_time before that meant now."""
    return max(row.create_time, row.renew_time or 0)


def is_json(data: bytes, content_type: str | None) -> bool:
    """Whether a payload may be shown as JSON: it says so, and it is."""
    media_type = (content_type or "application/json").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        return False
    try:
        data.decode()
        msgspec.json.decode(data, type=Raw)
    except (ValueError, RecursionError):
        return False
    return True
