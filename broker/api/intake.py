"""
From the JSON of a task to a Submission, with every rule on the way. Pure.

The types say what a task looks like (and become the OpenAPI document); `read_task` says what types
cannot. biz_data is never parsed into objects: its bytes are what the callback will carry.
"""

from __future__ import annotations

import math
import re
from base64 import b64decode
from binascii import Error as BadBase64
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from broker.api.decoding import NESTING_MAX, decode
from broker.api.problems import PayloadTooLarge
from broker.api.times import START_TIME_MS_MAX, BadTime, parse_delay, parse_start_time
from broker.submission import OnDuplicate, Submission
from wheel_timer.biz import BIZ_TYPE_PATTERN, BizType, MaxAgeS, RetryIn, check_retry, is_biz_type
from wheel_timer.callback import Callback, check_headers, check_url
from wheel_timer.errors import FieldError, InvalidTask

BIZ_ID_BYTES_MAX: Final = 256
CONTENT_TYPE_CHARACTERS_MAX: Final = 255
SPREAD_S_MAX: Final = 31_536_000  # one year
NO_DATA: Final = "there is no biz_data that it could describe"
CALLBACK_REFUSED: Final = "the biz_type {!r} does not allow it (allow_callback_override)"

_TIME_EXAMPLES: Final = ["2027-01-15T09:00:00+08:00", 1800000000, 1800000000.25]
_CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")
_CONTENT_TYPE: Final = re.compile(r"[\w!#$&^.+-]+/[\w!#$&^.+-]+(?:[\t ]*;[\t -~]*)?", re.ASCII)
# No version ff, no trace and no span that is all zeros.
_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII
)
_IN_STRINGS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_BRACKETS_AS_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_NOT_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))


class TaskIn(Struct, forbid_unknown_fields=True, gc=False):
    """
    A task to be stored: `start_time` or `delay`, never both.

    A start_time in the past means now. Optional fields may be null, which is as if they were left
    out; only a biz_data of null is a payload. Of a field that comes twice, the last counts.
    """

    biz_type: Annotated[
        str,
        Meta(
            description="the line of business; says where and how the callback goes",
            extra_json_schema={"pattern": f"^{BIZ_TYPE_PATTERN}$"},
        ),
    ]
    biz_id: Annotated[
        str | None,
        Meta(
            description="the business's own id, unique within the biz_type; makes it safe to send "
            "the same submit again. 1-256 UTF-8 bytes without control characters"
        ),
    ] = None
    start_time: Annotated[
        Raw | UnsetType,
        Meta(
            description="when to call: epoch seconds (a fraction is rounded up to the ms) or "
            "RFC 3339 with an offset; 2000-01-01 to the year 9999",
            extra_json_schema={"type": ["number", "string", "null"], "examples": _TIME_EXAMPLES},
        ),
    ] = UNSET
    delay: Annotated[
        Raw | UnsetType,
        Meta(
            description="seconds from the insert, by the database's clock; 0 for now",
            extra_json_schema={"type": ["number", "null"], "minimum": 0, "examples": [1800]},
        ),
    ] = UNSET
    biz_data: Annotated[
        Raw | UnsetType,
        Meta(description="the payload, any JSON; the callback's body is these very bytes"),
    ] = UNSET
    biz_data_base64: Annotated[
        str | None,
        Meta(
            description="the payload in base64 where it is not JSON",
            extra_json_schema={"contentEncoding": "base64"},
        ),
    ] = None
    content_type: Annotated[
        str | None,
        Meta(description="the callback's content-type; application/json where left out"),
    ] = None
    callback: Annotated[
        Callback | None,
        Meta(description="only where the biz_type says allow_callback_override"),
    ] = None
    retry: RetryIn | None = None
    max_age: MaxAgeS | None = None
    spread: (
        Annotated[
            float,
            Meta(
                ge=0,
                le=SPREAD_S_MAX,
                description="seconds; the server draws start_time in [start_time, start_time + "
                "spread); where left out, the biz_type's",
            ),
        ]
        | None
    ) = None
    on_duplicate: Annotated[
        OnDuplicate | None,
        Meta(
            description="what to do where the biz_id is taken. keep: nothing, the answer is the "
            "existing task; reject: 409; replace: the existing task gets this moment and data, and "
            "a new life where it was settled or is being delivered; earliest, latest: of a pending "
            "task the submit whose time wins brings its data, any other is kept"
        ),
    ] = "keep"


_TASK: Final = msgspec.json.Decoder(TaskIn)


class RefusedByBizType(InvalidTask):
    """The biz_type's configuration does not allow this task; a newer one may."""


def is_biz_id(text: str) -> bool:
    """Whether a text may be a biz_id, or the beginning of one."""
    return 1 <= len(text.encode()) <= BIZ_ID_BYTES_MAX and not _CONTROL.search(text)


def decode_task(raw: bytes | Raw) -> TaskIn:
    """The task of one JSON text. Raises InvalidTask (a rule of its types), or 400: not JSON."""
    return decode(_TASK, raw)


def read_task(
    task: TaskIn,
    biz: BizType,
    *,
    now_ms: float,
    body_bytes_max: int,
    default_biz_id: str | None = None,
    traceparent: str | None = None,
    actor: str | None = None,
) -> Submission:
    """
    The submission that a task means. now_ms: the database's clock, for max_past and far delays.

    default_biz_id: the Idempotency-Key, used where the task has no biz_id. Raises InvalidTask with
    everything that is wrong, RefusedByBizType where only the configuration is against it, or
    PayloadTooLarge.
    """
    errors: list[FieldError] = []
    start_time_ms, delay_ms = read_moment(task, errors)
    biz_id = default_biz_id if task.biz_id is None else task.biz_id
    if biz_id is not None:
        _check_biz_id(biz_id, errors)
    biz_data = read_payload(task, body_bytes_max, errors)
    if task.content_type is not None:
        errors += check_content_type(task.content_type) or _check_described(task)
    callback = _callback(task, errors)
    retry = None
    if task.retry is not None:
        errors += check_retry(task.retry, "#/retry")
        retry = msgspec.json.encode(task.retry)
    spread = biz.spread if task.spread is None else task.spread
    spread_ms = 0 if spread is None else math.ceil(round(spread * 1000, 3))
    moment_ms = math.ceil(now_ms) + delay_ms if start_time_ms is None else start_time_ms
    if moment_ms + spread_ms > START_TIME_MS_MAX:
        where = "#/spread" if spread_ms else "#/delay"
        errors.append(FieldError("beyond the year 9999; it is in seconds", where))
    if errors:
        raise InvalidTask(errors)
    if refusals := _refusals(task, biz, moment_ms, now_ms):
        raise RefusedByBizType(refusals)
    return Submission(
        task.biz_type,
        start_time_ms,
        delay_ms,
        spread_ms,
        biz_id,
        biz_data,
        task.content_type,
        callback,
        retry,
        None if task.max_age is None else math.ceil(round(task.max_age * 1000, 3)),
        traceparent,
        task.on_duplicate or "keep",
        actor,
    )


def check_biz_type(name: str) -> None:
    """Raises InvalidTask where this can be no biz_type's name."""
    if not is_biz_type(name):
        detail = f"a biz_type is {BIZ_TYPE_PATTERN}"
        raise InvalidTask([FieldError(detail, "#/biz_type")])


def valid_traceparent(value: str | None) -> str | None:
    """The header as it is to be passed on; by W3C Trace Context a malformed one is ignored."""
    return value if value is not None and _TRACEPARENT.fullmatch(value) else None


def nesting_is_within(raw: bytes, depth_max: int) -> bool:
    """Whether a valid JSON text nests no deeper than depth_max. No recursion, little Python."""
    if raw.count(b"[") + raw.count(b"{") <= depth_max:
        return True
    brackets = _IN_STRINGS.sub(b"", raw).translate(_BRACKETS_AS_SQUARE, _NOT_BRACKETS)
    # Each pass takes the innermost pairs away: as many passes as there are levels.
    for _ in range(depth_max):
        if not brackets:
            return True
        brackets = brackets.replace(b"[]", b"")
    return not brackets


def read_moment(task: TaskIn, errors: list[FieldError]) -> tuple[int | None, int]:
    """(start_time_ms or None, delay_ms)."""
    start = b"null" if task.start_time is UNSET else bytes(task.start_time)
    delay = b"null" if task.delay is UNSET else bytes(task.delay)
    if (start == b"null") == (delay == b"null"):
        said = "neither is given" if start == b"null" else "both are given"
        errors.append(FieldError(f"start_time or delay: {said}", "#/start_time"))
        return None, 0
    try:
        if delay == b"null":
            return parse_start_time(start), 0
        return None, parse_delay(delay)
    except BadTime as error:
        pointer = "#/start_time" if delay == b"null" else "#/delay"
        errors.append(FieldError(str(error), pointer))
        return None, 0


def _check_biz_id(biz_id: str, errors: list[FieldError]) -> None:
    if not 1 <= len(biz_id.encode()) <= BIZ_ID_BYTES_MAX:
        errors.append(FieldError(f"1 to {BIZ_ID_BYTES_MAX} UTF-8 bytes", "#/biz_id"))
    elif _CONTROL.search(biz_id):
        errors.append(FieldError("no control characters", "#/biz_id"))


def read_payload(task: TaskIn, body_bytes_max: int, errors: list[FieldError]) -> bytes | None:
    """The bytes of biz_data or biz_data_base64. Raises PayloadTooLarge."""
    if task.biz_data is UNSET:
        if task.biz_data_base64 is None:
            return None
        pointer = "#/biz_data_base64"
        try:
            data = b64decode(task.biz_data_base64, validate=True)
        except (BadBase64, ValueError):
            errors.append(FieldError("not base64", pointer))
            return None
    else:
        pointer = "#/biz_data"
        data = bytes(task.biz_data)
        if task.biz_data_base64 is not None:
            errors.append(FieldError("biz_data or biz_data_base64, not both", pointer))
        # The decoder has passed over it without looking into its strings.
        if not data.isascii():
            try:
                data.decode()
            except UnicodeDecodeError:
                errors.append(FieldError("not UTF-8", pointer))
                return None
        if not nesting_is_within(data, NESTING_MAX):
            errors.append(FieldError(f"nested deeper than {NESTING_MAX}", pointer))
    if len(data) > body_bytes_max:
        raise PayloadTooLarge(len(data), body_bytes_max, pointer)
    return data


def check_content_type(value: str) -> list[FieldError]:
    """What is wrong with the payload's content-type."""
    if len(value) > CONTENT_TYPE_CHARACTERS_MAX or not _CONTENT_TYPE.fullmatch(value):
        return [FieldError("not a media type such as text/plain", "#/content_type")]
    return []


def _check_described(task: TaskIn) -> list[FieldError]:
    has_data = task.biz_data is not UNSET or task.biz_data_base64 is not None
    return [] if has_data else [FieldError(NO_DATA, "#/content_type")]


def check_callback(callback: Callback) -> list[FieldError]:
    """What is wrong with a task's own callback beyond its types."""
    return [
        *check_url(callback.url, "#/callback/url"),
        *check_headers(callback.headers, "#/callback/headers"),
    ]


def _callback(task: TaskIn, errors: list[FieldError]) -> bytes | None:
    if task.callback is None:
        return None
    errors += check_callback(task.callback)
    return msgspec.json.encode(task.callback)


def _refusals(task: TaskIn, biz: BizType, moment_ms: int, now_ms: float) -> list[FieldError]:
    """What is right in itself, but not for this biz_type."""
    refusals = []
    if task.callback is None and biz.callback_url is None and biz.delivery == "callback":
        detail = f"needed: the biz_type {biz.biz_type!r} has no callback_url"
        refusals.append(FieldError(detail, "#/callback"))
    if task.callback is not None and not biz.allow_callback_override:
        refusals.append(FieldError(CALLBACK_REFUSED.format(biz.biz_type), "#/callback"))
    if biz.max_past is not None and moment_ms < now_ms - biz.max_past * 1000:
        detail = f"more than {biz.max_past:g} s in the past (max_past of the biz_type)"
        refusals.append(FieldError(detail, "#/start_time"))
    return refusals
