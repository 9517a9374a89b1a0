"""GET and PUT of a biz_type, and the list of them."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from broker.api.actor import Actor, actor_of
from broker.api.condition import (
    IF_MATCH,
    IF_NONE_MATCH,
    UNLESS_SEEN,
    expected_version,
    has_seen,
)
from broker.api.context import Context
from broker.api.decoding import decode
from broker.api.intake import check_biz_type
from broker.api.operation import JSON, Answer, Operation, json_answer
from broker.api.outcomes import media_type, unsupported
from broker.api.paging import PAGING, after_of, cursor_of, limit_of
from wheel_timer.biz import BizType, BizTypeIn, BizTypeOut, shown
from wheel_timer.errors import NotFound
from wheel_timer.store.biz import unknown_on_failed

ETAGS: Final = {"ETag": "the version"}
_BIZ: Final = msgspec.json.Decoder(BizTypeIn)


class BizTypesOut(Struct):
    """A page of biz_types in the order of their names."""

    items: list[BizTypeOut]
    next_cursor: Annotated[str | None, Meta(description="for the next page; null at the end")]


async def list_biz_types(context: Context, request: Request) -> Response:
    """All biz_types, page by page."""
    limit = limit_of(request.query_params.get("limit"))
    after = after_of(request.query_params.get("cursor"))
    await context.registry.refresh()
    actor = actor_of(request)
    names = [name for name in context.registry.names() if name > after and actor.sees(name)]
    found = [context.registry.get(name) for name in names[:limit]]
    page = BizTypesOut([shown(biz) for biz in found if biz is not None], None)
    if len(names) > limit:
        page.next_cursor = cursor_of(names[limit - 1])
    return json_answer(page)


async def get_biz_type(context: Context, request: Request) -> Response:
    """One biz_type, write-only values as marks; nothing where the caller has seen this version."""
    name: str = request.path_params["biz_type"]
    await context.registry.refresh()
    biz = context.registry.get(name)
    if biz is None:
        raise NotFound(f"there is no biz_type {name[:64]!r}")
    if has_seen(request, biz.version):
        return Response(status_code=304, headers={"ETag": f'"{biz.version}"'})
    return biz_answer(biz, 200)


async def put_biz_type(context: Context, request: Request) -> Response:
    """Create a biz_type, or put a whole configuration in the place of the one it has."""
    name: str = request.path_params["biz_type"]
    check_biz_type(name)
    if media_type(request) not in ("", JSON):
        raise unsupported(JSON)
    given = decode(_BIZ, await context.bodies.read(request))
    check_reference(actor_of(request), given.on_failed)
    expected = await expected_version(context, request, name, given.version)
    put = await context.registry.put(name, given, expected, actor=actor_of(request).name)
    return biz_answer(put.biz, 201 if put.created else 200)


def check_reference(actor: Actor, on_failed: object) -> None:
    """A narrowed key names no biz_type that it does not see: its dead would become tasks there."""
    if isinstance(on_failed, str) and not actor.sees(on_failed):
        raise unknown_on_failed(on_failed)


def biz_answer(biz: BizType, status: int) -> Response:
    headers = {"ETag": f'"{biz.version}"'}
    if status == 201:
        headers["Location"] = f"/v1/biz/{biz.biz_type}"
    return json_answer(shown(biz), status, headers)


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/biz",
        handler=list_biz_types,
        name="listBizTypes",
        scope="read",
        summary="All biz_types",
        query=PAGING,
        answers={200: Answer(text="A page", body=BizTypesOut)},
        problems=("invalid-request", "overloaded"),
    ),
    Operation(
        method="GET",
        path="/v1/biz/{biz_type}",
        handler=get_biz_type,
        name="getBizType",
        scope="read",
        summary="A biz_type's configuration",
        text='Secrets and header values that are credentials are shown as {"set": true}.',
        headers=UNLESS_SEEN,
        answers={
            200: Answer(text="The configuration", body=BizTypeOut, headers=ETAGS),
            304: Answer(text="It is still the version of If-None-Match", headers=ETAGS),
        },
        problems=("not-found", "overloaded"),
    ),
    Operation(
        method="PUT",
        path="/v1/biz/{biz_type}",
        handler=put_biz_type,
        name="putBizType",
        scope="configure",
        summary="Create or replace a biz_type's configuration",
        text="What is left out gets its default; but secret and header values that are credentials "
        "stay as they are, and are removed by null. Holds within two seconds at every broker, for "
        "what already waits too. Putting what is there already changes nothing.",
        headers=IF_MATCH | IF_NONE_MATCH,
        takes={JSON: BizTypeIn},
        answers={
            200: Answer(text="Replaced", body=BizTypeOut, headers=ETAGS),
            201: Answer(
                text="Created", body=BizTypeOut, headers=ETAGS | {"Location": "the biz_type"}
            ),
        },
        problems=("invalid-request", "stale-version", "too-large", "overloaded"),
    ),
)
