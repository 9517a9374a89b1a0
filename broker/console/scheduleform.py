"""
A schedule as a form: what its fields hold, and the PATCH that a filled-in form is. Pure.

What the form does not know (headers of the schedule's own callback, a payload that is no JSON)
stays as it is. Moments are in UTC, as a browser's field has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import UNSET

from broker.api.scheduleview import ScheduleOut
from broker.console.form import json_of, number_of
from wheel_timer.errors import FieldError, InvalidTask

NUMBERS: Final = ("misfire_after", "jitter")
MOMENTS: Final = ("start_after", "end_before")
FIELDS: Final = (
    *("name", "biz_type", "cron", "timezone", "enabled", "misfire", "overlap", "biz_data"),
    *(*NUMBERS, *MOMENTS, "callback", "callback.url", "callback.method", "callback.timeout"),
)
DEFAULTS: Final[Mapping[str, str]] = {
    "timezone": "UTC",
    "enabled": "on",
    "misfire": "once",
    "misfire_after": "60",
    "overlap": "allow",
    "jitter": "0",
}


def texts_of(schedule: ScheduleOut) -> dict[str, str]:
    """What the fields hold for a schedule; a box that is not ticked is missing."""
    texts = {
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "misfire": schedule.misfire,
        "overlap": schedule.overlap,
        "misfire_after": f"{schedule.misfire_after:g}",
        "jitter": f"{schedule.jitter:g}",
        "start_after": _field_of(schedule.start_after),
        "end_before": _field_of(schedule.end_before),
    }
    if schedule.enabled:
        texts["enabled"] = "on"
    if schedule.biz_data is not UNSET:
        texts["biz_data"] = bytes(schedule.biz_data).decode()
    if (callback := schedule.callback) is not None:
        texts["callback.url"] = callback.url
        texts["callback.method"] = callback.method or ""
        timeout = callback.timeout
        texts["callback.timeout"] = "" if timeout is None else f"{timeout:g}"
    return texts


def patch_of(form: Mapping[str, str], *, has_binary: bool) -> dict[str, Any]:
    """
    The PATCH that a form asks for; None gives a setting its default.

    has_binary: the payload is no JSON, and is not in the form. Raises InvalidTask for what cannot
    be read; what a value may be is the API's to judge.
    """
    errors: list[FieldError] = []
    patch: dict[str, Any] = {"enabled": "enabled" in form}
    for name in ("cron", "timezone", "misfire", "overlap"):
        patch[name] = form.get(name, "").strip() or None
    for name in NUMBERS:
        patch[name] = number_of(form.get(name, ""), f"#/{name}", errors)
    for name in MOMENTS:
        patch[name] = _moment(form.get(name, "").strip(), f"#/{name}", errors)
    url = form.get("callback.url", "").strip()
    if not url:
        patch["callback"] = None
    else:
        timeout = number_of(form.get("callback.timeout", ""), "#/callback/timeout", errors)
        method = form.get("callback.method") or None
        patch["callback"] = {"url": url, "method": method, "timeout": timeout}
    data = form.get("biz_data", "").strip()
    if not has_binary or data:
        patch["biz_data"] = json_of(data, "#/biz_data", errors) if data else None
    if not patch["cron"]:
        errors.append(FieldError("needed", "#/cron"))
    if errors:
        raise InvalidTask(errors)
    return patch


def _field_of(moment: str | None) -> str:
    """A moment as a browser's field has it: without its offset, to the second."""
    return "" if moment is None else moment[:19]


def _moment(text: str, pointer: str, errors: list[FieldError]) -> str | None:
    if not text:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        errors.append(FieldError("no moment: 2026-12-01T09:00", pointer))
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat()
