"""
From the JSON of a PATCH (RFC 7396) to a change of one task, under the rules of a submit.

What is left out stays; null takes away what a task may be without. `callback` and `retry` are
merged member by member with what the task has; `biz_data` is nobody's to look into and is replaced
as a whole.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from broker.api.decoding import decode
from broker.api.intake import (
    CALLBACK_REFUSED,
    NO_DATA,
    TaskIn,
    check_callback,
    check_content_type,
    read_moment,
    read_payload,
)
from broker.api.problems import moved_under
from broker.api.times import START_TIME_MS_MAX
from wheel_timer.biz import BizType, MaxAgeS, RetryIn, check_retry
from wheel_timer.callback import Callback
from wheel_timer.errors import FieldError, InvalidTask
from wheel_timer.store.change import Change
from wheel_timer.store.task import TaskRow

_TIME: Final = {"type": ["number", "string"], "examples": ["2027-01-15T09:00:00+08:00", 1800000000]}
_CALLBACK: Final = msgspec.json.Decoder(Callback)
_RETRY: Final = msgspec.json.Decoder(RetryIn)


class TaskPatch(Struct, forbid_unknown_fields=True):
    """
    What is to change of a task: RFC 7396, what is left out stays. `start_time` or `delay`, never
    both. null takes away the payload, and the task's own callback, retry and max_age.
    """

    start_time: Annotated[Raw | UnsetType, Meta(extra_json_schema=_TIME)] = UNSET
    delay: Annotated[
        Raw | UnsetType,
        Meta(
            description="seconds from the change, by the database's clock",
            extra_json_schema={"type": "number", "minimum": 0, "examples": [1800]},
        ),
    ] = UNSET
    biz_data: Annotated[
        Raw | UnsetType,
        Meta(description="the payload, replaced as a whole; null: no payload"),
    ] = UNSET
    biz_data_base64: Annotated[
        str | UnsetType | None,
        Meta(extra_json_schema={"contentEncoding": "base64"}),
    ] = UNSET
    content_type: str | UnsetType | None = UNSET
    callback: Annotated[
        Raw | UnsetType,
        Meta(
            description="merged with the task's own, member by member",
            extra_json_schema={"type": ["object", "null"]},
        ),
    ] = UNSET
    retry: Annotated[
        Raw | UnsetType,
        Meta(
            description="merged with the task's own, member by member",
            extra_json_schema={"type": ["object", "null"]},
        ),
    ] = UNSET
    max_age: MaxAgeS | UnsetType | None = UNSET


_PATCH: Final = msgspec.json.Decoder(TaskPatch)


class Wanted(NamedTuple):
    """
    A patch, checked as far as it goes without its task. needs_task: callback or retry are to be
    merged with what is there. has_time: the biz_type's max_past has a say.
    """

    patch: TaskPatch
    change: Change
    delay_ms: int | None
    needs_task: bool
    has_time: bool
    is_empty: bool


def read_patch(body: bytes, change: Change, *, now_ms: float, body_bytes_max: int) -> Wanted:
    """
    Put what a PATCH says into `change`.

    Raises InvalidTask with everything that is wrong, Refused (400) for no JSON, PayloadTooLarge.
    """
    patch = decode(_PATCH, body)
    errors: list[FieldError] = []
    delay_ms = _moment(patch, change, now_ms, errors)
    _payload(patch, change, body_bytes_max, errors)
    if patch.max_age is not UNSET:
        change.has_max_age = True
        if patch.max_age is not None:
            change.max_age_ms = math.ceil(round(patch.max_age * 1000, 3))
    if errors:
        raise InvalidTask(errors)
    change.has_callback = patch.callback is not UNSET
    change.has_retry = patch.retry is not UNSET
    has_time = change.to_time_ms is not None or delay_ms is not None
    merges = change.has_callback or change.has_retry
    changes = has_time or merges or change.has_data or change.has_content_type or change.has_max_age
    return Wanted(patch, change, delay_ms, merges, has_time, not changes)


def merge(wanted: Wanted, task: TaskRow) -> Change:
    """The change with the task's callback and retry merged in. Raises InvalidTask."""
    patch, change = wanted.patch, wanted.change
    errors: list[FieldError] = []
    if patch.callback is not UNSET:
        merged = _merged(task.callback, patch.callback)
        change.callback = None
        if merged is not None:
            callback = _decoded(_CALLBACK, merged, "#/callback", errors)
            if callback is not None:
                errors += check_callback(callback)
                change.callback = msgspec.json.encode(callback)
    if patch.retry is not UNSET:
        merged = _merged(task.retry, patch.retry)
        change.retry = None
        if merged is not None:
            retry = _decoded(_RETRY, merged, "#/retry", errors)
            if retry is not None:
                errors += check_retry(retry, "#/retry")
                change.retry = msgspec.json.encode(retry)
    if errors:
        raise InvalidTask(errors)
    change.revision = task.revision
    return change


def refusals(wanted: Wanted, biz: BizType, now_ms: float) -> list[FieldError]:
    """What is right in itself, but not for this biz_type."""
    change = wanted.change
    found = []
    has_none = change.has_callback and change.callback is None and biz.callback_url is None
    if has_none and biz.delivery == "callback":
        detail = f"needed: the biz_type {biz.biz_type!r} has no callback_url"
        found.append(FieldError(detail, "#/callback"))
    if change.callback is not None and not biz.allow_callback_override:
        found.append(FieldError(CALLBACK_REFUSED.format(biz.biz_type), "#/callback"))
    start_ms = change.to_time_ms
    if biz.max_past is not None and start_ms is not None and start_ms < now_ms - biz.max_past * 1e3:
        detail = f"more than {biz.max_past:g} s in the past (max_past of the biz_type)"
        found.append(FieldError(detail, "#/start_time"))
    return found


def _moment(
    patch: TaskPatch, change: Change, now_ms: float, errors: list[FieldError]
) -> int | None:
    """Sets the new start_time; returns the delay, where one is given in its place."""
    for name, value in (("start_time", patch.start_time), ("delay", patch.delay)):
        if value is not UNSET and bytes(value) == b"null":
            errors.append(FieldError("a task is never without it", f"#/{name}"))
            return None
    if patch.start_time is UNSET and patch.delay is UNSET:
        return None
    given = TaskIn("", start_time=patch.start_time, delay=patch.delay)
    start_ms, delay_ms = read_moment(given, errors)
    if patch.delay is UNSET:
        change.to_time_ms = start_ms
        return None
    if now_ms + delay_ms > START_TIME_MS_MAX:
        errors.append(FieldError("beyond the year 9999; it is in seconds", "#/delay"))
    return delay_ms


def _payload(
    patch: TaskPatch, change: Change, body_bytes_max: int, errors: list[FieldError]
) -> None:
    """Sets biz_data and content_type where they are given."""
    is_json = patch.biz_data is not UNSET
    is_base64 = patch.biz_data_base64 is not UNSET
    if is_json and is_base64:
        errors.append(FieldError("biz_data or biz_data_base64, not both", "#/biz_data"))
        return
    is_taken = patch.biz_data_base64 is None or (
        patch.biz_data is not UNSET and bytes(patch.biz_data) == b"null"
    )
    content_type = patch.content_type
    if is_json or is_base64:
        change.has_data = True
    if is_taken:
        change.has_content_type = True
        if content_type is not UNSET and content_type is not None:
            errors.append(FieldError(NO_DATA, "#/content_type"))
        return
    if change.has_data:
        base64 = None if patch.biz_data_base64 is UNSET else patch.biz_data_base64
        given = TaskIn("", biz_data=patch.biz_data, biz_data_base64=base64)
        change.biz_data = read_payload(given, body_bytes_max, errors)
    if content_type is not UNSET:
        change.has_content_type = True
        change.content_type = content_type
        if content_type is not None:
            errors += check_content_type(content_type)


def _merged(stored: str | None, given: Raw) -> bytes | None:
    """RFC 7396's MergePatch of two JSON texts; None where nothing is left."""
    target = None if stored is None else msgspec.json.decode(stored)
    merged = _merge(target, msgspec.json.decode(given))
    return None if merged is None else msgspec.json.encode(merged)


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged.pop(name, None)
        else:
            merged[name] = _merge(merged.get(name), value)
    return merged


def _decoded(
    decoder: msgspec.json.Decoder[Any], merged: bytes, pointer: str, errors: list[FieldError]
) -> Any:
    try:
        return decode(decoder, merged)
    except InvalidTask as error:
        errors += moved_under(error.errors, pointer)
        return None
