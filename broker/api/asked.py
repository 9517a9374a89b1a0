"""What an operation is asked to do: POST /v1/operations' body, and what is wrong with it. Pure."""

from __future__ import annotations

from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from broker.api.actor import Actor
from broker.api.intake import is_biz_id
from broker.api.times import BadTime, parse_delay, parse_start_time
from wheel_timer.biz import BIZ_TYPE_PATTERN, is_biz_type
from wheel_timer.errors import FieldError, InvalidTask
from wheel_timer.store.filter import Filter, StatusWord
from wheel_timer.store.operation import Action

RATE_MIN: Final = 0.01
RATE_MAX: Final = 100_000.0
OVER_S_MAX: Final = 2_592_000.0

# Which states an action is for; the first is meant where the filter names none.
STATUSES: Final[dict[Action, tuple[StatusWord, ...]]] = {
    "cancel": ("pending", "delivering", "failed"),
    "shift": ("pending",),
    "run": ("pending",),
    "replay": ("failed", "finished", "cancelled"),
    "purge": ("pending", "finished", "failed", "cancelled"),
}

_MOMENT: Final = {"type": ["number", "string", "null"]}


class WhichIn(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Which tasks. Times are epoch seconds or RFC 3339; an interval holds its beginning only."""

    biz_type: Annotated[
        str | None, Meta(extra_json_schema={"pattern": f"^{BIZ_TYPE_PATTERN}$"})
    ] = None
    status: Annotated[
        StatusWord | None, Meta(description="where left out, the states that the action is for")
    ] = None
    start_from: Annotated[Raw | UnsetType, Meta(extra_json_schema=_MOMENT)] = UNSET
    start_to: Annotated[Raw | UnsetType, Meta(extra_json_schema=_MOMENT)] = UNSET
    finish_from: Annotated[Raw | UnsetType, Meta(extra_json_schema=_MOMENT)] = UNSET
    finish_to: Annotated[Raw | UnsetType, Meta(extra_json_schema=_MOMENT)] = UNSET
    http_status: Annotated[int, Meta(ge=100, le=599)] | None = None
    biz_id_prefix: Annotated[str | None, Meta(description="needs biz_type")] = None
    schedule_id: UUID | None = None


class SetIn(Struct, forbid_unknown_fields=True):
    """What a shift sets."""

    delay: Annotated[
        Raw,
        Meta(
            description="seconds by which every start_time is moved; negative: earlier",
            extra_json_schema={"type": "number"},
        ),
    ]


class OperationIn(Struct, forbid_unknown_fields=True):
    """
    One change for all tasks that fit. cancel: pending ones (those being delivered or failed where
    the filter's status says so). shift: moves pending ones by set.delay. run: pending ones now.
    replay: failed ones, or others the filter names. purge: deletes what nobody is calling.
    """

    action: Action
    filter: WhichIn = msgspec.field(default_factory=WhichIn)
    set: SetIn | None = None
    rate: (
        Annotated[float, Meta(ge=RATE_MIN, le=RATE_MAX, description="tasks a second, at most")]
        | None
    ) = None
    over: (
        Annotated[float, Meta(ge=1, le=OVER_S_MAX, description="seconds to spread the tasks over")]
        | None
    ) = None
    dry_run: Annotated[bool, Meta(description="only say what is meant")] = False
    all: Annotated[bool, Meta(description="needed where the filter is empty")] = False


def checked(given: OperationIn, actor: Actor) -> tuple[Filter, int | None]:
    """The filter that is meant, and the ms of a shift. Raises InvalidTask with every fault."""
    errors: list[FieldError] = []
    members: dict[str, Any] = {"visible": actor.biz_types}
    wanted = given.filter
    for name in ("start_from", "start_to", "finish_from", "finish_to"):
        raw: Raw | UnsetType = getattr(wanted, name)
        if raw is not UNSET and bytes(raw) != b"null":
            try:
                members[name] = parse_start_time(bytes(raw))
            except BadTime as error:
                errors.append(FieldError(str(error), f"#/filter/{name}"))
    if wanted.biz_type is not None:
        if not is_biz_type(wanted.biz_type):
            errors.append(FieldError("not a biz_type", "#/filter/biz_type"))
        members["biz_type"] = wanted.biz_type
    if wanted.biz_id_prefix is not None:
        if not is_biz_id(wanted.biz_id_prefix):
            detail = "1-256 UTF-8 bytes without control characters"
            errors.append(FieldError(detail, "#/filter/biz_id_prefix"))
        if wanted.biz_type is None:
            errors.append(FieldError("needs biz_type beside it", "#/filter/biz_id_prefix"))
        members["biz_id_prefix"] = wanted.biz_id_prefix
    members["http_status"], members["schedule_id"] = wanted.http_status, wanted.schedule_id
    statuses = STATUSES[given.action]
    if wanted.status is not None and wanted.status not in statuses:
        detail = f"{given.action} is for tasks that are {' or '.join(statuses)}"
        errors.append(FieldError(detail, "#/filter/status"))
    # What is purged may be in any state; of every other action the first is meant.
    members["status"] = wanted.status
    if wanted.status is None and given.action != "purge":
        members["status"] = statuses[0]
    for what in ("start", "finish"):
        low, end = members.get(f"{what}_from"), members.get(f"{what}_to")
        if low is not None and end is not None and end < low:
            errors.append(FieldError(f"lies before {what}_from", f"#/filter/{what}_to"))
    is_empty = wanted == WhichIn()
    if is_empty and not given.all:
        detail = "an empty filter means every task there is: say so with all: true"
        errors.append(FieldError(detail, "#/filter"))
    if given.all and not is_empty:
        errors.append(FieldError("goes with an empty filter only", "#/all"))
    if given.rate is not None and given.over is not None:
        errors.append(FieldError("rate or over, not both", "#/over"))
    shift_ms = None
    if (given.action == "shift") != (given.set is not None):
        detail = "a shift needs it: {delay}" if given.set is None else "goes with shift only"
        errors.append(FieldError(detail, "#/set"))
    elif given.set is not None:
        try:
            shift_ms = _shift_ms(bytes(given.set.delay))
        except BadTime as error:
            errors.append(FieldError(str(error), "#/set/delay"))
    if errors:
        raise InvalidTask(errors)
    if wanted.biz_type is not None:
        actor.check_sees(wanted.biz_type)
    return Filter(**members), shift_ms


def _shift_ms(raw: bytes) -> int:
    """The delay of a shift, in ms, either way; fractions are rounded away from zero."""
    is_earlier = raw.startswith(b"-")
    delay_ms = parse_delay(raw.removeprefix(b"-"))
    if delay_ms == 0:
        raise BadTime("a shift by nothing")
    return -delay_ms if is_earlier else delay_ms
