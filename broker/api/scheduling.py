"""
From the JSON of a schedule to what it is to become, with every rule on the way. Pure.

A PUT says the whole of it, a PATCH is RFC 7396 over what a GET shows. Write-only header values stay
where they are left out or sent back as marks, and null takes them away, as those of a biz_type.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from broker.api.decoding import NESTING_MAX, decode
from broker.api.intake import (
    CALLBACK_REFUSED,
    NO_DATA,
    TaskIn,
    check_callback,
    check_content_type,
    nesting_is_within,
    read_payload,
)
from broker.api.problems import invalid
from broker.api.scheduleview import schedule_out
from broker.api.times import BadTime, parse_start_time
from broker.guard import Guard
from wheel_timer.biz import BizType
from wheel_timer.callback import Callback, Mark, Method, TimeoutS, Url, escaped, is_write_only
from wheel_timer.cron import CRON_CHARACTERS_MAX, check_cron
from wheel_timer.errors import FieldError, InvalidTask, StaleVersion
from wheel_timer.schedule import Misfire, Overlap, Schedule

NAME_PATTERN: Final = "[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
NOT_A_NAME: Final = f"a schedule's name is {NAME_PATTERN}"
POLICY_S_MAX: Final = 86_400
NIL: Final = UUID(int=0)

_NAME: Final = re.compile(NAME_PATTERN, re.ASCII)
Shown = Annotated[str | UnsetType | None, Meta(description="as a GET shows it; not looked at")]
_TIME: Final = {"type": ["number", "string", "null"]}


class ScheduleCallback(Struct, frozen=True, forbid_unknown_fields=True):
    """A callback of the schedule's own, in place of its biz_type's."""

    url: Url
    method: Method | None = None
    headers: dict[str, str | Mark | None] = {}
    timeout: TimeoutS | None = None


CronField = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=CRON_CHARACTERS_MAX,
        description="minute hour day-of-month month day-of-week, or seconds in front of these",
        examples=["0 9 * * MON", "*/10 * * * * *"],
    ),
]


class ScheduleFields(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    What PUT and PATCH both say. What a GET showed can be sent back: biz_type, name, version and
    schedule_id are taken as checks, the times of others' making are not looked at. Occurrences are
    in [start_after, end_before).
    """

    timezone: Annotated[
        str, Meta(max_length=64, description="IANA", examples=["Asia/Shanghai", "UTC"])
    ] = "UTC"
    enabled: bool = True
    biz_data: Annotated[
        Raw | UnsetType,
        Meta(description="the payload of each occurrence, any JSON, passed on as these bytes"),
    ] = UNSET
    biz_data_base64: Annotated[
        str | None, Meta(extra_json_schema={"contentEncoding": "base64"})
    ] = None
    content_type: str | None = None
    callback: ScheduleCallback | None = None
    start_after: Annotated[Raw | UnsetType, Meta(extra_json_schema=_TIME)] = UNSET
    end_before: Annotated[Raw | UnsetType, Meta(extra_json_schema=_TIME)] = UNSET
    misfire: Annotated[
        Misfire,
        Meta(
            description="which of those are called still that were not within misfire_after, "
            "whatever the reason: the last one, none, or all (the last 1,000)"
        ),
    ] = "once"
    misfire_after: Annotated[float, Meta(ge=0, le=POLICY_S_MAX, description="seconds")] = 60.0
    overlap: Annotated[
        Overlap, Meta(description="skip: not while the last occurrence is not settled")
    ] = "allow"
    jitter: Annotated[
        float,
        Meta(ge=0, le=POLICY_S_MAX, description="seconds over which each one's start is drawn"),
    ] = 0.0
    biz_type: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    version: Annotated[int, Meta(ge=1)] | UnsetType = UNSET
    schedule_id: UUID | UnsetType = UNSET
    next_time: Shown = UNSET
    create_time: Shown = UNSET
    update_time: Shown = UNSET

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class ScheduleIn(ScheduleFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A timer that comes back, the whole of it."""

    cron: CronField


class SchedulePatch(ScheduleFields, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Any part of it."""

    cron: CronField | UnsetType = UNSET


_SCHEDULE: Final = msgspec.json.Decoder(ScheduleIn)
_PATCH: Final = msgspec.json.Decoder(dict[str, Raw])
_CALLBACK: Final = msgspec.json.Decoder(Callback)


def is_name(name: str) -> bool:
    """Whether a schedule can be called so."""
    return _NAME.fullmatch(name) is not None


def decode_schedule(raw: bytes | Raw) -> ScheduleIn:
    """What a PUT says. Raises InvalidTask, or Refused (400) for no JSON."""
    return decode(_SCHEDULE, raw)


def read_schedule(
    given: ScheduleIn,
    biz: BizType,
    name: str,
    before: Schedule | None,
    *,
    body_bytes_max: int,
    guard: Guard,
) -> Schedule:
    """
    What `given` makes of `before` (None: it is new); ids, version and times are still before's.

    Raises InvalidTask with everything that is wrong, StaleVersion, PayloadTooLarge.
    """
    errors: list[FieldError] = []
    for field, said, is_so in (
        ("biz_type", given.biz_type, biz.biz_type),
        ("name", given.name, name),
    ):
        if said is not UNSET and said != is_so:
            errors.append(FieldError(f"the path says {is_so!r}", f"#/{field}"))
    if before is not None and given.schedule_id not in (UNSET, before.schedule_id):
        errors.append(FieldError("there is another one of this name now", "#/schedule_id"))
    stands = 0 if before is None else before.version
    if given.version is not UNSET and given.version != stands:
        raise StaleVersion(f"the schedule is at version {stands}, not {given.version}")
    errors += check_cron(given.cron, given.timezone)
    start_after = _moment(given.start_after, "start_after", errors)
    end_before = _moment(given.end_before, "end_before", errors)
    if start_after is not None and end_before is not None and start_after >= end_before:
        errors.append(FieldError("not after start_after", "#/end_before"))
    task = TaskIn("", biz_data=given.biz_data, biz_data_base64=given.biz_data_base64)
    biz_data = read_payload(task, body_bytes_max, errors)
    if given.content_type is not None:
        errors += check_content_type(given.content_type)
        if biz_data is None and not errors:
            errors.append(FieldError(NO_DATA, "#/content_type"))
    callback = _callback(given.callback, before, errors)
    if callback is not None:
        errors += guard.check(callback.url, biz.callback_allow, "#/callback/url")
        if not biz.allow_callback_override:
            errors.append(FieldError(CALLBACK_REFUSED.format(biz.biz_type), "#/callback"))
    elif biz.callback_url is None and given.callback is None and biz.delivery == "callback":
        detail = f"needed: the biz_type {biz.biz_type!r} has no callback_url"
        errors.append(FieldError(detail, "#/callback"))
    if errors:
        raise InvalidTask(errors)
    return Schedule(
        schedule_id=NIL if before is None else before.schedule_id,
        biz_type=biz.biz_type,
        name=name,
        shard=0 if before is None else before.shard,
        version=stands,
        cron=given.cron,
        timezone=given.timezone,
        enabled=given.enabled,
        misfire=given.misfire,
        misfire_after=_ms(given.misfire_after),
        overlap=given.overlap,
        jitter=_ms(given.jitter),
        start_after=start_after,
        end_before=end_before,
        next_time=None,
        content_type=given.content_type,
        callback=None if callback is None else msgspec.json.encode(callback).decode(),
        biz_data=biz_data,
        create_time=0,
        update_time=0,
    )


def patched(before: Schedule, body: bytes) -> ScheduleIn:
    """
    What a PUT would have to say for `before` to become what a PATCH asks for.

    Raises InvalidTask, or Refused (400) for no JSON.
    """
    patch = decode(_PATCH, body)
    # The decoder has passed over the values without looking into their strings.
    try:
        body.decode()
    except UnicodeDecodeError:
        raise invalid("the body is not UTF-8", status=400) from None
    if not nesting_is_within(body, NESTING_MAX):
        raise InvalidTask([FieldError(f"nested deeper than {NESTING_MAX}", "#")])
    unknown = [name for name in patch if name not in ScheduleIn.__struct_fields__]
    if unknown:
        raise InvalidTask([FieldError("unknown field", f"#/{escaped(name)}") for name in unknown])
    said = _said(before)
    if patch.keys() & {"biz_data", "biz_data_base64"}:
        said.pop("biz_data", None)
        said.pop("biz_data_base64", None)
    for name, value in patch.items():
        if bytes(value) == b"null":
            said.pop(name, None)
        elif name == "callback" and name in said:
            merged = _merged(msgspec.json.decode(said[name]), msgspec.json.decode(value))
            said[name] = Raw(msgspec.json.encode(merged))
        else:
            said[name] = value
    if "biz_data" not in said and "biz_data_base64" not in said and "content_type" not in patch:
        said.pop("content_type", None)
    return decode_schedule(msgspec.json.encode(said))


def _said(schedule: Schedule) -> dict[str, Raw]:
    """What a PUT of the schedule as it is would say, member by member."""
    shown = _PATCH.decode(msgspec.json.encode(schedule_out(schedule, 0)))
    return {
        name: shown[name]
        for name in ScheduleIn.__struct_fields__
        if name != "version" and name in shown and bytes(shown[name]) != b"null"
    }


def _merged(target: Any, patch: Any) -> Any:
    """RFC 7396; but a header's null is kept, for it takes a write-only value away."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if name == "headers" and isinstance(value, Mapping):
            headers = result.get("headers")
            result["headers"] = (headers if isinstance(headers, dict) else {}) | dict(value)
        elif value is None:
            result.pop(name, None)
        else:
            result[name] = value
    return result


def _callback(
    given: ScheduleCallback | None, before: Schedule | None, errors: list[FieldError]
) -> Callback | None:
    if given is None:
        return None
    stored: dict[str, str] = {}
    if before is not None and before.callback is not None:
        stored = _CALLBACK.decode(before.callback).headers
    headers = {name: value for name, value in stored.items() if is_write_only(name)}
    seen: set[str] = set()
    for name, value in given.headers.items():
        lower = name.lower()
        where = f"#/callback/headers/{escaped(name)}"
        if lower in seen:
            errors.append(FieldError("given twice", where))
        seen.add(lower)
        if isinstance(value, str):
            headers[lower] = value
        elif value is None or not value.set:
            headers.pop(lower, None)
        elif lower not in headers:
            errors.append(FieldError("there is no stored value to keep", where))
    callback = Callback(given.url, given.method, headers, given.timeout)
    errors += check_callback(callback)
    return callback


def _moment(raw: Raw | UnsetType, name: str, errors: list[FieldError]) -> int | None:
    if raw is UNSET or bytes(raw) == b"null":
        return None
    try:
        return parse_start_time(bytes(raw))
    except BadTime as error:
        errors.append(FieldError(str(error), f"#/{name}"))
        return None


def _ms(seconds: float) -> int:
    return math.ceil(round(seconds * 1000, 3))
