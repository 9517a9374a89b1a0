"""What is done to a biz_type that exists: PATCH, pause, resume, rotation of its secret."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from functools import partial
from secrets import token_bytes
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from broker.api.actor import Actor, actor_of
from broker.api.biz import ETAGS, biz_answer, check_reference
from broker.api.condition import IF_MATCH, expected_version
from broker.api.context import Context
from broker.api.decoding import NESTING_MAX, decode
from broker.api.intake import nesting_is_within
from broker.api.operation import JSON, Answer, Operation, json_answer
from broker.api.outcomes import media_type, unsupported
from broker.api.times import format_time
from broker.api.verb import read_nothing
from broker.api.view import Time
from wheel_timer.amend import patched, rotated
from wheel_timer.biz import BizType, BizTypeIn, BizTypeOut, check_secret, is_biz_type, merged
from wheel_timer.callback import Mark
from wheel_timer.errors import FieldError, InvalidTask, NotFound
from wheel_timer.signing import SECRET_PREFIX

MERGE_PATCH: Final = "application/merge-patch+json"
GRACE_S_DEFAULT: Final = 86_400
GRACE_S_MAX: Final = 2_592_000
SECRET_BYTES: Final = 32

_PATCH: Final = msgspec.json.Decoder(dict[str, Any])
_WHOLE: Final = msgspec.json.Decoder(BizTypeIn)


class RotateIn(Struct, frozen=True, forbid_unknown_fields=True):
    """secret: the new one; made here where it is left out. grace: how long the old one signs on."""

    secret: str | None = None
    grace: Annotated[float, Meta(ge=0, le=GRACE_S_MAX, description="seconds")] = GRACE_S_DEFAULT

    def __repr__(self) -> str:
        return "RotateIn()"


class RotateOut(Struct):
    """
    secret: in clear where it was made here, and never again. previous_until: the last of the older
    secrets signs up to here; null where there is none.
    """

    biz_type: str
    version: int
    secret: str | Mark
    previous_until: Time | None


_ROTATE: Final = msgspec.json.Decoder(RotateIn)


async def patch_biz_type(context: Context, request: Request) -> Response:
    """Change some settings: RFC 7396 over what a GET shows."""
    name = biz_type_of(request)
    if media_type(request) not in ("", JSON, MERGE_PATCH):
        raise unsupported(f"{JSON}, {MERGE_PATCH}")
    body = await context.bodies.read(request)
    patch = decode(_PATCH, body)
    # No setting nests as deep; what does is not to be walked through.
    if not nesting_is_within(body, NESTING_MAX):
        raise InvalidTask([FieldError(f"nested deeper than {NESTING_MAX}", "#")])
    check_reference(actor_of(request), patch.get("on_failed"))
    expected = await expected_version(context, request, name, patch.get("version"))
    put = await context.registry.change(
        name,
        lambda before: with_patch(existing(name, before), patch),
        expected,
        actor=actor_of(request).name,
        action="biz.patch",
    )
    return biz_answer(put.biz, 200)


def with_patch(before: BizType, patch: Mapping[str, Any]) -> BizType:
    """The biz_type that a PATCH makes of one. Raises InvalidTask."""
    said = msgspec.json.encode(patched(before, patch))
    return merged(before.biz_type, decode(_WHOLE, said), before)


async def set_paused(context: Context, request: Request, *, paused: bool) -> Response:
    """Hold the biz_type's callbacks, or let them go."""
    name = biz_type_of(request)
    await read_nothing(context, request)
    expected = await expected_version(context, request, name)
    biz = await pause_or_resume(context, name, expected, paused=paused, actor=actor_of(request))
    return biz_answer(biz, 200)


async def pause_or_resume(
    context: Context, name: str, expected: int | None, *, paused: bool, actor: Actor
) -> BizType:
    """The biz_type as it is then. Raises NotFound, StaleVersion."""

    def make(before: BizType | None) -> BizType:
        return msgspec.structs.replace(existing(name, before), paused=paused)

    action = "biz.pause" if paused else "biz.resume"
    put = await context.registry.change(name, make, expected, actor=actor.name, action=action)
    return put.biz


async def rotate_secret(context: Context, request: Request) -> Response:
    """Sign with a new secret, and for a grace with the old one too."""
    name = biz_type_of(request)
    if media_type(request) not in ("", JSON):
        raise unsupported(JSON)
    given = decode(_ROTATE, await context.bodies.read(request) or b"{}")
    expected = await expected_version(context, request, name)
    answer = await rotate(context, name, given, expected, actor_of(request))
    return json_answer(answer, 200, {"ETag": f'"{answer.version}"', "Cache-Control": "no-store"})


async def rotate(
    context: Context, name: str, given: RotateIn, expected: int | None, actor: Actor
) -> RotateOut:
    """Rotate a biz_type's secret. Raises InvalidTask, NotFound, StaleVersion."""
    secret = given.secret
    if secret is None:
        secret = SECRET_PREFIX + b64encode(token_bytes(SECRET_BYTES)).decode()
    errors = check_secret(secret, "#/secret")
    if errors:
        raise InvalidTask(errors)
    grace_ms = round(given.grace * 1000)

    def make(before: BizType | None) -> BizType:
        now_ms = int(context.clock.now_ms())
        return rotated(existing(name, before), secret, grace_ms=grace_ms, now_ms=now_ms)

    action = "biz.rotate-secret"
    put = await context.registry.change(name, make, expected, actor=actor.name, action=action)
    biz = put.biz
    ends = [one.until_ms for one in biz.secrets if one.until_ms is not None]
    return RotateOut(
        biz_type=name,
        version=biz.version,
        secret=secret if given.secret is None else Mark(),
        previous_until=format_time(max(ends)) if ends else None,
    )


def biz_type_of(request: Request) -> str:
    """The name in the path. Raises NotFound where nothing can have it: Postgres is not asked."""
    name: str = request.path_params["biz_type"]
    if not is_biz_type(name):
        raise NotFound(f"there is no biz_type {name[:64]!r}")
    return name


def existing(name: str, biz: BizType | None) -> BizType:
    """The biz_type. Raises NotFound where there is none."""
    if biz is None:
        raise NotFound(f"there is no biz_type {name!r}")
    return biz


_CHANGED: Final = {200: Answer(text="The biz_type as it is now", body=BizTypeOut, headers=ETAGS)}
_PROBLEMS: Final = ("not-found", "stale-version", "overloaded")

OPERATIONS: Final = (
    Operation(
        method="PATCH",
        path="/v1/biz/{biz_type}",
        handler=patch_biz_type,
        name="patchBizType",
        scope="configure",
        summary="Change some settings of a biz_type",
        text="RFC 7396 over what GET shows: what is left out stays, null gives a setting its "
        "default and removes a write-only value. Of retry's backoff and ladder one takes the place "
        "of the other. Holds within two seconds at every broker, for what already waits too.",
        headers=IF_MATCH,
        takes={JSON: BizTypeIn, MERGE_PATCH: BizTypeIn},
        answers=_CHANGED,
        problems=(*_PROBLEMS, "too-large"),
    ),
    Operation(
        method="POST",
        path="/v1/biz/{biz_type}/pause",
        handler=partial(set_paused, paused=True),
        name="pauseBizType",
        scope="operate",
        summary="Call nothing of a biz_type",
        text="Calls under way end, submits go on. Safe to repeat.",
        headers=IF_MATCH,
        answers=_CHANGED,
        problems=_PROBLEMS,
    ),
    Operation(
        method="POST",
        path="/v1/biz/{biz_type}/resume",
        handler=partial(set_paused, paused=False),
        name="resumeBizType",
        scope="operate",
        summary="Call again what came due in a pause",
        text="Safe to repeat.",
        headers=IF_MATCH,
        answers=_CHANGED,
        problems=_PROBLEMS,
    ),
    Operation(
        method="POST",
        path="/v1/biz/{biz_type}/rotate-secret",
        handler=rotate_secret,
        name="rotateSecret",
        scope="configure",
        summary="Sign with a new secret",
        text="Until the grace is over, by the database's clock and so for all brokers at the same "
        "moment, every callback carries a signature by each of them. A secret that is left out is "
        "made here and shown in this answer only. A grace of 0 ends all older ones at once. Saying "
        "the current secret again changes nothing, but a shorter grace counts.",
        headers=IF_MATCH,
        takes={JSON: RotateIn},
        needs_body=False,
        answers={
            200: Answer(text="It signs from now on", body=RotateOut, headers=ETAGS),
        },
        problems=(*_PROBLEMS, "too-large"),
    ),
)
