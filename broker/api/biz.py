"""GET and PUT of a biz_type, and the list of them."""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from broker.api.actor import actor_of
from broker.api.context import Context
from broker.api.decoding import decode
from broker.api.intake import check_biz_type
from broker.api.operation import JSON, Answer, Operation, json_answer
from broker.api.outcomes import media_type, unsupported
from broker.api.paging import PAGING, after_of, cursor_of, limit_of
from broker.api.problems import invalid
from wheel_timer.biz import BizType, BizTypeIn, BizTypeOut, shown
from wheel_timer.errors import NotFound, StaleVersion
from wheel_timer.store.biz import load

_ETAG: Final = re.compile(r'(?:W/)?"(\d{1,18})"', re.ASCII)
_ETAGS: Final = {"ETag": "the version"}
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
    """One biz_type, write-only values as marks."""
    name: str = request.path_params["biz_type"]
    await context.registry.refresh()
    biz = context.registry.get(name)
    if biz is None:
        raise NotFound(f"there is no biz_type {name[:64]!r}")
    return _biz_answer(biz, 200)


async def put_biz_type(context: Context, request: Request) -> Response:
    """Create a biz_type, or put a whole configuration in the place of the one it has."""
    name: str = request.path_params["biz_type"]
    check_biz_type(name)
    if media_type(request) not in ("", JSON):
        raise unsupported(JSON)
    given = decode(_BIZ, await context.bodies.read(request))
    expected = await _expected(context, request, name, given)
    put = await context.registry.put(name, given, expected)
    return _biz_answer(put.biz, 201 if put.created else 200)


def _biz_answer(biz: BizType, status: int) -> Response:
    headers = {"ETag": f'"{biz.version}"'}
    if status == 201:
        headers["Location"] = f"/v1/biz/{biz.biz_type}"
    return json_answer(shown(biz), status, headers)


async def _expected(context: Context, request: Request, name: str, given: BizTypeIn) -> int | None:
    """The version that the caller has seen, by If-Match or by the body; None: any will do."""
    said = given.version if isinstance(given.version, int) else None
    condition = request.headers.get("if-match")
    if condition is None:
        return said
    if condition.strip() == "*":
        stored = await load(context.db, name)
        if stored is None:
            raise StaleVersion(f"the biz_type {name!r} does not exist")
        version = stored.version
    else:
        found = _ETAG.fullmatch(condition.strip())
        if found is None:
            raise invalid('If-Match is one version as the ETag has it: "12"')
        version = int(found[1])
    if said is not None and said != version:
        raise StaleVersion(f"If-Match says version {version}, the body {said}")
    return version


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
        answers={200: Answer(text="The configuration", body=BizTypeOut, headers=_ETAGS)},
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
        headers={"If-Match": "the ETag that was seen; 412 where it is no longer the newest"},
        takes={JSON: BizTypeIn},
        answers={
            200: Answer(text="Replaced", body=BizTypeOut, headers=_ETAGS),
            201: Answer(
                text="Created", body=BizTypeOut, headers=_ETAGS | {"Location": "the biz_type"}
            ),
        },
        problems=("invalid-request", "stale-version", "too-large", "overloaded"),
    ),
)
