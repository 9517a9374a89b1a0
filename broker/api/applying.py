"""The schedules of POST /v1/apply: read, checked against the biz_types as they are to be, made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Raw, Struct
from starlette.requests import Request

from broker.api.actor import actor_of
from broker.api.context import Context
from broker.api.problems import moved_under
from broker.api.schedules import make_so, read
from broker.api.scheduling import NOT_A_NAME, ScheduleIn, decode_schedule, is_name
from wheel_timer.biz import BizType, is_biz_type
from wheel_timer.callback import escaped
from wheel_timer.errors import FieldError, InvalidTask
from wheel_timer.schedule import Schedule, recorded, same
from wheel_timer.store.schedule import load_all

SCHEDULES_MAX: Final = 1000

_NAMES: Final = msgspec.json.Decoder(dict[str, Raw])


class AppliedScheduleOut(Struct):
    """
    What became of one schedule. old, new: what differs, of a payload its length; old is null for
    one that is new. version: null where it would be new.
    """

    biz_type: str
    name: str
    action: Literal["created", "changed", "unchanged"]
    version: int | None
    old: dict[str, Any] | None
    new: dict[str, Any] | None


class Declared(NamedTuple):
    """One schedule of the request. says_enabled: whether it names that."""

    biz_type: str
    name: str
    given: ScheduleIn
    says_enabled: bool

    @property
    def root(self) -> str:
        """Where it stands in the request."""
        return root_of(self.biz_type, self.name)


def root_of(biz_type: str, name: str) -> str:
    """The JSON pointer of a schedule in the request."""
    return f"#/schedules/{escaped(biz_type)}/{escaped(name)}"


def read_declared(request: Request, given: Mapping[str, Mapping[str, Raw]]) -> list[Declared]:
    """Raises InvalidTask with everything that is wrong by itself, NotFound for what is hidden."""
    errors: list[FieldError] = []
    declared: list[Declared] = []
    for biz_type, schedules in given.items():
        if not is_biz_type(biz_type):
            errors.append(FieldError("not a biz_type", f"#/schedules/{escaped(biz_type)}"))
            continue
        actor_of(request).check_sees(biz_type)
        for name, raw in schedules.items():
            root = root_of(biz_type, name)
            if not is_name(name):
                errors.append(FieldError(NOT_A_NAME, root))
                continue
            try:
                one = decode_schedule(raw)
            except InvalidTask as error:
                errors += moved_under(error.errors, root)
                continue
            declared.append(Declared(biz_type, name, one, "enabled" in _NAMES.decode(raw)))
    if len(declared) > SCHEDULES_MAX:
        errors.append(FieldError(f"more than {SCHEDULES_MAX}", "#/schedules"))
    if errors:
        raise InvalidTask(errors)
    return declared


async def check_declared(
    context: Context, declared: list[Declared], biz_types: Mapping[str, BizType]
) -> list[AppliedScheduleOut]:
    """
    What an apply would do. biz_types: as they are to be. Raises InvalidTask with everything that is
    wrong, StaleVersion.
    """
    stored = await load_all(context.db, [(one.biz_type, one.name) for one in declared])
    errors: list[FieldError] = []
    found: list[AppliedScheduleOut] = []
    for one in declared:
        biz = biz_types.get(one.biz_type)
        before = stored.get((one.biz_type, one.name))
        if biz is None:
            errors.append(FieldError(f"there is no biz_type {one.biz_type!r}", one.root))
            continue
        try:
            found.append(_applied(before, _made(context, one, biz, before)))
        except InvalidTask as error:
            errors += moved_under(error.errors, one.root)
    if errors:
        raise InvalidTask(errors)
    return found


async def apply_declared(
    context: Context, declared: list[Declared], biz_types: Mapping[str, BizType], actor: str
) -> list[AppliedScheduleOut]:
    """Make each what it is declared to be, a transaction for each."""
    done: list[AppliedScheduleOut] = []
    for one in declared:
        biz = biz_types[one.biz_type]

        def make(before: Schedule | None, one: Declared = one, biz: BizType = biz) -> Schedule:
            return _made(context, one, biz, before)

        put = await make_so(
            context, one.biz_type, one.name, make, actor=actor, action="schedule.apply"
        )
        applied = _applied(put.before, put.schedule)
        applied.version = put.schedule.version
        done.append(applied)
    return done


def _made(context: Context, one: Declared, biz: BizType, before: Schedule | None) -> Schedule:
    made = read(context, one.given, biz, one.name, before)
    if one.says_enabled or before is None:
        return made
    # Somebody disabled it for a reason that no file knows.
    return msgspec.structs.replace(made, enabled=before.enabled)


def _applied(before: Schedule | None, after: Schedule) -> AppliedScheduleOut:
    old, new = recorded(before, after)
    action: Literal["created", "changed", "unchanged"] = "created"
    if before is not None:
        action = "unchanged" if same(before, after) else "changed"
    version = None if before is None else before.version
    return AppliedScheduleOut(after.biz_type, after.name, action, version, old, new)
