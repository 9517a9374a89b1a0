"""
API keys: made, listed, rotated, revoked. A key is shown once, when it is made or rotated.

Whoever manages keys and is narrowed to some biz_types manages only keys that are narrowed to the
same or to less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from broker.api.actor import Actor, Scope, actor_of
from broker.api.context import Context
from broker.api.decoding import decode
from broker.api.operation import JSON, Answer, Operation, json_answer
from broker.api.outcomes import media_type, unsupported
from broker.api.paging import PAGING, after_of, cursor_of, limit_of
from broker.api.times import BadTime, format_time, parse_start_time
from broker.api.view import Time
from broker.keys import Made
from wheel_timer.bearer import covers
from wheel_timer.errors import FieldError, Forbidden, InvalidTask, NotFound
from wheel_timer.store.keys import KeyRow

OVERLAP_S_MAX: Final = 2_592_000  # 30 days
NAME_CHARACTERS_MAX: Final = 200
PATTERNS_MAX: Final = 100

Pattern = Annotated[
    str,
    Meta(
        pattern=r"^(\*|[a-z0-9][a-z0-9._-]{0,63}\*?)$",
        description="a biz_type, or the beginning of some and *",
    ),
]
KeyStatus = Literal["active", "expired", "revoked"]


class KeyIn(Struct, forbid_unknown_fields=True):
    """A key to be made."""

    name: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=NAME_CHARACTERS_MAX,
            pattern="^[^\\x00-\\x1f\\x7f]*$(?!\\n)",
            description="for people: who uses it, and where",
        ),
    ]
    scopes: Annotated[list[Scope], Meta(min_length=1, max_length=100)]
    biz_types: Annotated[tuple[Pattern, ...], Meta(min_length=1, max_length=PATTERNS_MAX)] = ("*",)
    expires: Annotated[
        Raw | UnsetType,
        Meta(
            description="when it ends by itself: epoch seconds or RFC 3339 with an offset",
            extra_json_schema={"type": ["number", "string", "null"]},
        ),
    ] = UNSET


class RotateIn(Struct, forbid_unknown_fields=True):
    """overlap: how long the secret before holds on, in seconds; 0 ends it at once."""

    overlap: Annotated[float, Meta(ge=0, le=OVERLAP_S_MAX, description="seconds")] = 86_400


class KeyOut(Struct):
    """A key without its secret. overlap_until: so long the secret before the rotation holds on."""

    key_id: str
    name: str
    status: KeyStatus
    scopes: list[str]
    biz_types: list[str]
    create_time: Time
    expires: Time | None
    rotate_time: Time | None
    overlap_until: Time | None
    revoke_time: Time | None


class KeyMade(KeyOut):
    """A key with its secret: the only time that it is shown."""

    key: str


class KeysOut(Struct):
    """A page of keys in the order of their ids."""

    items: list[KeyOut]
    next_cursor: Annotated[str | None, Meta(description="for the next page; null at the end")]


_KEY: Final = msgspec.json.Decoder(KeyIn)
_ROTATE: Final = msgspec.json.Decoder(RotateIn)
_UNKEPT: Final = {"Cache-Control": "no-store"}


async def create_key(context: Context, request: Request) -> Response:
    """Make a key."""
    given = decode(_KEY, await _body(context, request))
    made = await make(context, actor_of(request), given)
    return json_answer(made, 201, _UNKEPT | {"Location": f"/v1/keys/{made.key_id}"})


async def make(context: Context, actor: Actor, given: KeyIn) -> KeyMade:
    """Make a key for this actor. Raises InvalidTask, Forbidden."""
    expire_at_ms = _expiry(given, context.clock.now_ms())
    if not _may_manage(actor, given.biz_types):
        raise Forbidden("a key may make keys for its own biz_types only")
    made = await context.keys.create(
        actor.name,
        name=given.name,
        scopes=tuple(given.scopes),
        biz_types=tuple(dict.fromkeys(given.biz_types)),
        expire_at_ms=expire_at_ms,
    )
    return _made_out(context, made)


async def list_keys(context: Context, request: Request) -> Response:
    """All keys, page by page."""
    limit = limit_of(request.query_params.get("limit"))
    after = after_of(request.query_params.get("cursor"))
    return json_answer(await keys_of(context, actor_of(request), after, limit))


async def keys_of(context: Context, actor: Actor, after: str, limit: int) -> KeysOut:
    """A page of the keys that this actor may manage."""
    await context.keys.refresh()
    rows = [
        row
        for row in context.keys.rows()
        if row.key_id > after and _may_manage(actor, row.biz_types)
    ]
    now_ms = context.clock.now_ms()
    cursor = cursor_of(rows[limit - 1].key_id) if len(rows) > limit else None
    return KeysOut([_key_out(row, now_ms) for row in rows[:limit]], cursor)


async def get_key(context: Context, request: Request) -> Response:
    """One key."""
    return json_answer(await key_of(context, actor_of(request), _key_id(request)))


async def key_of(context: Context, actor: Actor, key_id: str) -> KeyOut:
    """One key that this actor may manage. Raises NotFound."""
    await context.keys.refresh()
    return _key_out(_row(context, actor, key_id), context.clock.now_ms())


async def rotate_key(context: Context, request: Request) -> Response:
    """A new secret for a key; the one before holds on for the overlap."""
    body = await _body(context, request)
    given = decode(_ROTATE, body) if body else RotateIn()
    made = await rotate(context, actor_of(request), _key_id(request), given)
    return json_answer(made, 200, _UNKEPT)


async def rotate(context: Context, actor: Actor, key_id: str, given: RotateIn) -> KeyMade:
    """Give a key a new secret. Raises NotFound."""
    await context.keys.refresh()
    row = _row(context, actor, key_id)
    made = await context.keys.rotate(actor.name, row.key_id, round(given.overlap * 1000))
    if made is None:
        raise NotFound("this key is revoked; make another")
    return _made_out(context, made)


async def revoke_key(context: Context, request: Request) -> Response:
    """End a key for good, everywhere within two seconds."""
    return json_answer(await revoke(context, actor_of(request), _key_id(request)))


async def revoke(context: Context, actor: Actor, key_id: str) -> KeyOut:
    """Revoke a key. Raises NotFound."""
    await context.keys.refresh()
    row = _row(context, actor, key_id)
    await context.keys.revoke(actor.name, row.key_id)
    return _key_out(_row(context, actor, key_id), context.clock.now_ms())


async def _body(context: Context, request: Request) -> bytes:
    if media_type(request) not in ("", JSON):
        raise unsupported(JSON)
    return await context.bodies.read(request)


def _expiry(given: KeyIn, now_ms: float) -> int | None:
    if given.expires is UNSET or bytes(given.expires) == b"null":
        return None
    try:
        expire_at_ms = parse_start_time(bytes(given.expires))
    except BadTime as error:
        raise InvalidTask([FieldError(str(error), "#/expires")]) from None
    if expire_at_ms <= now_ms:
        raise InvalidTask([FieldError("this moment is over", "#/expires")])
    return expire_at_ms


def _key_id(request: Request) -> str:
    key_id: str = request.path_params["key_id"]
    return key_id


def _row(context: Context, actor: Actor, key_id: str) -> KeyRow:
    row = context.keys.get(key_id)
    if row is None or not _may_manage(actor, row.biz_types):
        raise NotFound("there is no such key")
    return row


def _may_manage(actor: Actor, patterns: Sequence[str]) -> bool:
    """Whether these patterns name nothing beyond what the actor sees."""
    own = actor.biz_types
    return own is None or all(any(covers(one, p) for one in own) for p in patterns)


def _key_out(row: KeyRow, now_ms: float) -> KeyOut:
    status: KeyStatus = "active"
    if row.revoke_time is not None:
        status = "revoked"
    elif row.expire_at is not None and now_ms >= row.expire_at:
        status = "expired"
    is_overlapping = row.previous_until is not None and now_ms < row.previous_until
    return KeyOut(
        key_id=row.key_id,
        name=row.name,
        status=status,
        scopes=row.scopes,
        biz_types=row.biz_types,
        create_time=format_time(row.create_time),
        expires=_time(row.expire_at),
        rotate_time=_time(row.rotate_time),
        overlap_until=_time(row.previous_until) if is_overlapping else None,
        revoke_time=_time(row.revoke_time),
    )


def _time(moment_ms: int | None) -> str | None:
    return None if moment_ms is None else format_time(moment_ms)


def _made_out(context: Context, made: Made) -> KeyMade:
    row = context.keys.get(made.key_id)
    assert row is not None
    shown = _key_out(row, context.clock.now_ms())
    return KeyMade(**msgspec.structs.asdict(shown), key=made.text)


OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/v1/keys",
        handler=create_key,
        name="createKey",
        scope="admin",
        summary="Make an API key",
        text="The answer shows the key; nothing can show it again. What a key may not see, by its "
        "biz_types, is 404 to it; a scope that it lacks is 403.",
        takes={JSON: KeyIn},
        answers={201: Answer(text="Made", body=KeyMade, headers={"Location": "the key"})},
        problems=("invalid-request", "too-large", "overloaded"),
    ),
    Operation(
        method="GET",
        path="/v1/keys",
        handler=list_keys,
        name="listKeys",
        scope="admin",
        summary="All API keys, without their secrets",
        query=PAGING,
        answers={200: Answer(text="A page", body=KeysOut)},
        problems=("invalid-request", "overloaded"),
    ),
    Operation(
        method="GET",
        path="/v1/keys/{key_id}",
        handler=get_key,
        name="getKey",
        scope="admin",
        summary="An API key, without its secret",
        answers={200: Answer(text="The key", body=KeyOut)},
        problems=("not-found", "overloaded"),
    ),
    Operation(
        method="POST",
        path="/v1/keys/{key_id}/rotate",
        handler=rotate_key,
        name="rotateKey",
        scope="admin",
        summary="Give an API key a new secret",
        text="The id stays; the secret before holds on for `overlap` seconds (a day), so that its "
        "users can change over. Only the last secret before the present one does.",
        takes={JSON: RotateIn},
        needs_body=False,
        answers={200: Answer(text="The key with its new secret", body=KeyMade)},
        problems=("not-found", "invalid-request", "too-large", "overloaded"),
    ),
    Operation(
        method="DELETE",
        path="/v1/keys/{key_id}",
        handler=revoke_key,
        name="revokeKey",
        scope="admin",
        summary="Revoke an API key",
        text="For good, at every broker within two seconds. It stays in the list.",
        answers={200: Answer(text="The key, revoked", body=KeyOut)},
        problems=("not-found", "overloaded"),
    ),
)
