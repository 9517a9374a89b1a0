"""The calls on operations: many tasks at once, paced, by the server. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal
from uuid import UUID

import msgspec

from wheel_timer.client.call import Call, moment, query_of, reader, segment
from wheel_timer.client.results import Page, Task

Action = Literal["cancel", "shift", "replay", "run", "purge"]
# A dry run counts what may be a million tasks.
DRY_RUN_TIMEOUT_S: Final = 60.0


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """
    An operation, and how far it is. matched: tasks it has come by; of these done were changed,
    skipped were not to be changed any more, and errors could not be.
    """

    operation_id: UUID
    action: str
    state: Literal["running", "done", "stopped", "failed"]
    matched: int = 0
    done: int = 0
    skipped: int = 0
    errors: int = 0
    error: str | None = None
    filter: dict[str, Any] = {}
    set: dict[str, float] | None = None
    rate: float | None = None
    over: float | None = None
    actor: str = ""
    create_time: datetime | None = None
    finish_time: datetime | None = None


class DryRun(msgspec.Struct, frozen=True):
    """
    What an operation would meet: how many (a lower bound, where counting is not complete), and
    some of them.
    """

    matched: int
    complete: bool = True
    sample: list[Task] = []


OPERATION: Final = reader(Operation)
_DRY_RUN: Final = reader(DryRun)
_PAGE: Final = reader(Page[Operation])


def _body(action: Action, filter_: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """options: delay, rate, over, all."""
    given = {name: value for name, value in options.items() if value is not None}
    delay = given.pop("delay", None)
    if delay is not None:
        seconds = delay.total_seconds() if isinstance(delay, timedelta) else delay
        given["set"] = {"delay": seconds}
    if isinstance(given.get("over"), timedelta):
        given["over"] = given["over"].total_seconds()
    filtered = {name: moment(value) for name, value in filter_.items() if value is not None}
    return {"action": action, "filter": filtered, **given}


def start(
    action: Action, filter_: Mapping[str, Any], options: Mapping[str, Any]
) -> Call[Operation]:
    """POST /v1/operations. Sent twice it is two operations."""
    return Call(
        method="POST",
        path="/v1/operations",
        body=msgspec.json.encode(_body(action, filter_, options)),
        read=OPERATION,
        is_repeatable=False,
    )


def dry_run(action: Action, filter_: Mapping[str, Any], options: Mapping[str, Any]) -> Call[DryRun]:
    """The same, changing nothing."""
    return Call(
        method="POST",
        path="/v1/operations",
        body=msgspec.json.encode({**_body(action, filter_, options), "dry_run": True}),
        read=_DRY_RUN,
        timeout_s=DRY_RUN_TIMEOUT_S,
    )


def get(operation_id: str | UUID) -> Call[Operation]:
    """GET of one."""
    return Call(method="GET", path=_path(operation_id), read=OPERATION)


def stop(operation_id: str | UUID) -> Call[Operation]:
    """DELETE: it goes no further; what it has done stays."""
    return Call(method="DELETE", path=_path(operation_id), read=OPERATION)


def page(limit: int | None, cursor: str | None) -> Call[Page[Operation]]:
    """GET of one page of operations."""
    query = query_of({"limit": limit, "cursor": cursor})
    return Call(method="GET", path="/v1/operations", query=query, read=_PAGE)


def _path(operation_id: str | UUID) -> str:
    return f"/v1/operations/{segment(str(operation_id))}"
