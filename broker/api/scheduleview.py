"""Schedules as the API shows them. Pure."""

from __future__ import annotations

from base64 import b64encode
from typing import Any
from uuid import UUID

from msgspec import UNSET, Raw, Struct, UnsetType

from broker.api.times import format_time
from broker.api.view import CallbackOut, Time, callback_out, is_json
from wheel_timer.schedule import Misfire, Overlap, Schedule, first_moment


class ScheduleItem(Struct, kw_only=True):
    """
    A schedule in a list. version grows with every change. next_time: of its next occurrence, by
    the cron; null where it is disabled, or none comes.
    """

    schedule_id: UUID
    biz_type: str
    name: str
    version: int
    cron: str
    timezone: str
    enabled: bool
    next_time: Time | None
    start_after: Time | None
    end_before: Time | None
    misfire: Misfire
    misfire_after: float
    overlap: Overlap
    jitter: float
    content_type: str | None
    callback: CallbackOut | None
    create_time: Time
    update_time: Time


class ScheduleOut(ScheduleItem, kw_only=True):
    """The same with its payload: biz_data where that is JSON, else biz_data_base64."""

    biz_data: Raw | UnsetType = UNSET
    biz_data_base64: str | UnsetType = UNSET


def schedule_item(schedule: Schedule, now_ms: int) -> ScheduleItem:
    """A schedule as a list shows it."""
    return ScheduleItem(**_members(schedule, now_ms))


def schedule_out(schedule: Schedule, now_ms: int) -> ScheduleOut:
    """A schedule as a GET shows it."""
    shown = ScheduleOut(**_members(schedule, now_ms))
    if schedule.biz_data is not None:
        if is_json(schedule.biz_data, schedule.content_type):
            shown.biz_data = Raw(schedule.biz_data)
        else:
            shown.biz_data_base64 = b64encode(schedule.biz_data).decode()
    return shown


def _members(schedule: Schedule, now_ms: int) -> dict[str, Any]:
    comes = first_moment(schedule, now_ms) if schedule.enabled else None
    return {
        "schedule_id": schedule.schedule_id,
        "biz_type": schedule.biz_type,
        "name": schedule.name,
        "version": schedule.version,
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "enabled": schedule.enabled,
        "next_time": _time(comes),
        "start_after": _time(schedule.start_after),
        "end_before": _time(schedule.end_before),
        "misfire": schedule.misfire,
        "misfire_after": schedule.misfire_after / 1000,
        "overlap": schedule.overlap,
        "jitter": schedule.jitter / 1000,
        "content_type": schedule.content_type,
        "callback": None if schedule.callback is None else callback_out(schedule.callback),
        "create_time": format_time(schedule.create_time),
        "update_time": format_time(schedule.update_time),
    }


def _time(moment_ms: int | None) -> str | None:
    return None if moment_ms is None else format_time(moment_ms)
