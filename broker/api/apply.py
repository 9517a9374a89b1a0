"""POST /v1/apply: biz_types as a file declares them, all or none, and their schedules."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Raw, Struct
from starlette.requests import Request
from starlette.responses import Response

from broker.api.actor import actor_of
from broker.api.applying import (
    SCHEDULES_MAX,
    AppliedScheduleOut,
    apply_declared,
    check_declared,
    read_declared,
)
from broker.api.biz import check_reference
from broker.api.context import Context
from broker.api.decoding import decode
from broker.api.operation import JSON, Answer, Operation, json_answer
from broker.api.outcomes import media_type, unsupported
from broker.api.problems import moved_under
from broker.api.scheduling import ScheduleIn
from wheel_timer.amend import differing
from wheel_timer.biz import BIZ_TYPE_PATTERN, BizType, BizTypeIn, is_biz_type, merged
from wheel_timer.callback import escaped
from wheel_timer.errors import FieldError, InvalidTask, StaleVersion
from wheel_timer.store.biz import Make, Put

BIZ_TYPES_MAX: Final = 1000


class DeclarationIn(Struct, frozen=True, forbid_unknown_fields=True):
    """
    What there is to be: name -> what a PUT of it would say; of schedules biz_type -> name -> that.
    Others are left alone.
    """

    biz_types: Annotated[dict[str, BizTypeIn], Meta(max_length=BIZ_TYPES_MAX)]
    schedules: Annotated[
        dict[str, dict[str, ScheduleIn]],
        Meta(description=f"at most {SCHEDULES_MAX} in all", max_length=BIZ_TYPES_MAX),
    ] = {}
    dry_run: bool = False


class _ApplyRaw(Struct, frozen=True, forbid_unknown_fields=True):
    """The same, each one still to be read: so that an error says of which one it is."""

    biz_types: Annotated[dict[str, Raw], Meta(max_length=BIZ_TYPES_MAX)]
    schedules: Annotated[dict[str, dict[str, Raw]], Meta(max_length=BIZ_TYPES_MAX)] = {}
    dry_run: bool = False


class AppliedOut(Struct):
    """
    What became of one biz_type. old, new: the settings that differ, write-only ones as marks; old
    is null for one that is new. version: null where it would be new.
    """

    biz_type: str
    action: Literal["created", "changed", "unchanged"]
    version: int | None
    old: dict[str, Any] | None
    new: dict[str, Any]


class ApplyOut(Struct):
    """In the order of the request. dry_run: nothing was written; this is what would be."""

    dry_run: bool
    changes: list[AppliedOut]
    schedules: list[AppliedScheduleOut]


_APPLY: Final = msgspec.json.Decoder(_ApplyRaw)
_BIZ: Final = msgspec.json.Decoder(BizTypeIn)
_NAMES: Final = msgspec.json.Decoder(dict[str, Raw])


async def apply(context: Context, request: Request) -> Response:
    """Make every biz_type what it is declared to be, or change nothing; then the schedules."""
    if media_type(request) not in ("", JSON):
        raise unsupported(JSON)
    asked = decode(_APPLY, await context.bodies.read(request))
    makes = _makes(request, asked)
    declared = read_declared(request, asked.schedules)
    actor = actor_of(request).name

    async def applied(*, dry_run: bool) -> list[Put]:
        return await context.registry.apply(makes, actor=actor, dry_run=dry_run, root=_root)

    schedules: list[AppliedScheduleOut] = []
    if asked.dry_run or declared:
        # Whatever is wrong with a schedule is said before anything is written.
        puts = await applied(dry_run=True)
        await context.registry.refresh()
        schedules = await check_declared(context, declared, _as_they_will_be(context, puts))
    if not asked.dry_run:
        puts = await applied(dry_run=False)
        schedules = await apply_declared(context, declared, _as_they_will_be(context, puts), actor)
    return json_answer(ApplyOut(asked.dry_run, [_applied_out(put) for put in puts], schedules))


def _as_they_will_be(context: Context, puts: list[Put]) -> dict[str, BizType]:
    known = {name: context.registry.get(name) for name in context.registry.names()}
    made = {put.biz.biz_type: put.biz for put in puts}
    return {name: biz for name, biz in (known | made).items() if biz is not None}


def _makes(request: Request, asked: _ApplyRaw) -> dict[str, tuple[Make, int | None]]:
    """Raises InvalidTask with everything that is wrong by itself, NotFound for what is hidden."""
    errors: list[FieldError] = []
    makes: dict[str, tuple[Make, int | None]] = {}
    for name, raw in asked.biz_types.items():
        if not is_biz_type(name):
            errors.append(FieldError(f"a biz_type is {BIZ_TYPE_PATTERN}", _root(name)))
            continue
        actor_of(request).check_sees(name)
        try:
            given = decode(_BIZ, raw)
            check_reference(actor_of(request), given.on_failed)
        except InvalidTask as error:
            errors += moved_under(error.errors, _root(name))
            continue
        says_paused = "paused" in _NAMES.decode(raw)
        version = given.version if isinstance(given.version, int) else None
        if version is not None and version < 1:
            raise StaleVersion(f"there is no version {version} of {name!r}")
        makes[name] = (partial(_merged, name, given, says_paused), version)
    if errors:
        raise InvalidTask(errors)
    return makes


def _merged(name: str, given: BizTypeIn, says_paused: bool, before: BizType | None) -> BizType:
    made = merged(name, given, before)
    if says_paused or before is None:
        return made
    # Somebody paused it for a reason that no file knows.
    return msgspec.structs.replace(made, paused=before.paused)


def _root(name: str) -> str:
    return f"#/biz_types/{escaped(name)}"


def _applied_out(put: Put) -> AppliedOut:
    old, new = differing(put.before, put.biz)
    assert new is not None
    action: Literal["created", "changed", "unchanged"] = "unchanged"
    if put.changed or put.created:
        action = "created" if put.created else "changed"
    return AppliedOut(put.biz.biz_type, action, put.biz.version or None, old, new)


OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/v1/apply",
        handler=apply,
        name="apply",
        scope="configure",
        summary="Make several biz_types, and their schedules, what a file declares",
        text="As a PUT of each, in one transaction: all of it, or nothing where anything is wrong. "
        "But a biz_type whose declaration does not name paused stays paused, or not, as it is. "
        "An on_failed may name one of the same request. Then the schedules, each in a transaction "
        "of its own; nothing at all is written where one of them is wrong, and one whose "
        "declaration does not name enabled stays enabled, or not, as it is. What stands as "
        "declared is not written again. With dry_run everything is checked and nothing written.",
        takes={JSON: DeclarationIn},
        answers={200: Answer(text="What was changed, or would be", body=ApplyOut)},
        problems=("not-found", "stale-version", "too-large", "overloaded"),
    ),
)
