"""The calls on schedules. Pure."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypedDict
from uuid import UUID

import msgspec

from wheel_timer.client.call import Call, moment, query_of, reader, segment
from wheel_timer.client.results import Page
from wheel_timer.client.tasks import Moment, Seconds


class ScheduleFields(TypedDict, total=False):
    """
    What a schedule says. cron: 5 fields, or 6 with seconds in front; timezone: IANA. It comes in
    [start_after, end_before). misfire: what becomes of those that were not called within
    misfire_after. overlap skip: not while the last one is not settled. biz_data: JSON, or bytes.
    callback: a URL, or {url, method, headers, timeout}. None is the default again.
    """

    cron: str
    timezone: str | None
    enabled: bool | None
    biz_data: Any
    content_type: str | None
    callback: str | Mapping[str, Any] | None
    start_after: Moment | None
    end_before: Moment | None
    misfire: Literal["once", "skip", "all"] | None
    misfire_after: Seconds | None
    overlap: Literal["allow", "skip"] | None
    jitter: Seconds | None


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """
    A schedule. version grows with every change; next_time: None where it is disabled, or none
    comes. In a list without its payload. biz_data_base64: a payload that is no JSON, decoded.
    """

    schedule_id: UUID
    biz_type: str
    name: str
    version: int
    cron: str
    timezone: str
    enabled: bool
    misfire: str
    misfire_after: float
    overlap: str
    jitter: float
    create_time: datetime
    update_time: datetime
    next_time: datetime | None = None
    start_after: datetime | None = None
    end_before: datetime | None = None
    content_type: str | None = None
    callback: dict[str, Any] | None = None
    biz_data: Any = None
    biz_data_base64: bytes | None = None

    def __repr__(self) -> str:
        # The payload is the business's own and stays out of logs.
        return f"Schedule({self.biz_type!r}, {self.name!r}, {self.cron!r}, {self.timezone!r})"


class Occurrence(msgspec.Struct, frozen=True):
    """One time that a schedule comes due. start_time: with its jitter."""

    scheduled_time: datetime
    start_time: datetime
    task_id: UUID


class Run(msgspec.Struct, frozen=True):
    """An occurrence that was asked for."""

    task_id: UUID
    start_time: datetime
    schedule_id: UUID


class _Upcoming(msgspec.Struct):
    items: list[Occurrence]


_SCHEDULE: Final = reader(Schedule)
_PAGE: Final = reader(Page[Schedule])
_UPCOMING: Final = reader(_Upcoming)
_RUN: Final = reader(Run)


def put(biz_type: str, name: str, fields: Mapping[str, Any]) -> Call[Schedule]:
    """PUT: the whole of it; what is left out, or None, has its default."""
    return _write("PUT", biz_type, name, {n: v for n, v in fields.items() if v is not None})


def patch(biz_type: str, name: str, fields: Mapping[str, Any]) -> Call[Schedule]:
    """PATCH: what is given is changed."""
    return _write("PATCH", biz_type, name, fields)


def get(biz_type: str, name: str) -> Call[Schedule]:
    """GET of one."""
    return Call(method="GET", path=_path(biz_type, name), read=_SCHEDULE)


def delete(biz_type: str, name: str) -> Call[None]:
    """DELETE; once it is answered no occurrence starts."""
    return Call(
        method="DELETE", path=_path(biz_type, name), read=lambda _: None, is_repeatable=False
    )


def enable(biz_type: str, name: str) -> Call[Schedule]:
    """POST .../enable."""
    return Call(method="POST", path=f"{_path(biz_type, name)}/enable", read=_SCHEDULE)


def disable(biz_type: str, name: str) -> Call[Schedule]:
    """POST .../disable."""
    return Call(method="POST", path=f"{_path(biz_type, name)}/disable", read=_SCHEDULE)


def run(biz_type: str, name: str) -> Call[Run]:
    """POST .../run: sent twice it is two."""
    path = f"{_path(biz_type, name)}/run"
    return Call(method="POST", path=path, read=_RUN, is_repeatable=False)


def upcoming(biz_type: str, name: str, count: int | None) -> Call[list[Occurrence]]:
    """GET .../upcoming."""
    return Call(
        method="GET",
        path=f"{_path(biz_type, name)}/upcoming",
        query=query_of({"count": count}),
        read=lambda body: _UPCOMING(body).items,
    )


def page(biz_type: str | None, limit: int | None, cursor: str | None) -> Call[Page[Schedule]]:
    """GET of one page of schedules."""
    query = query_of({"biz_type": biz_type, "limit": limit, "cursor": cursor})
    return Call(method="GET", path="/v1/schedules", query=query, read=_PAGE)


def _write(method: str, biz_type: str, name: str, given: Mapping[str, Any]) -> Call[Schedule]:
    fields = dict(given)
    for time in ("start_after", "end_before"):
        if time in fields:
            fields[time] = moment(fields[time])
    for seconds in ("misfire_after", "jitter"):
        if isinstance(fields.get(seconds), timedelta):
            fields[seconds] = fields[seconds].total_seconds()
    if isinstance(fields.get("callback"), str):
        fields["callback"] = {"url": fields["callback"]}
    if isinstance(fields.get("biz_data"), bytes | bytearray | memoryview):
        fields["biz_data_base64"] = b64encode(fields.pop("biz_data")).decode()
    return Call(
        method=method,
        path=_path(biz_type, name),
        body=msgspec.json.encode(fields),
        read=_SCHEDULE,
    )


def _path(biz_type: str, name: str) -> str:
    return f"/v1/biz/{segment(biz_type)}/schedules/{segment(name)}"
