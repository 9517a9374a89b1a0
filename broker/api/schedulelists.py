"""Schedules, listed."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from broker.api.actor import Actor, actor_of
from broker.api.context import Context
from broker.api.cursor import decode_cursor, encode_cursor
from broker.api.operation import Answer, Operation, json_answer
from broker.api.paging import PAGING, limit_of
from broker.api.problems import invalid
from broker.api.schedules import biz_of, now_of
from broker.api.scheduleview import ScheduleItem, schedule_item
from broker.api.scheduling import is_name
from wheel_timer.biz import BIZ_TYPE_PATTERN, is_biz_type
from wheel_timer.store import schedule as store


class SchedulesOut(Struct):
    """A page of schedules by biz_type and name."""

    items: list[ScheduleItem]
    next_cursor: Annotated[str | None, Meta(description="for the next page; null at the end")]


class _After(Struct, forbid_unknown_fields=True):
    """Where a page ended."""

    biz_type: str
    name: str


async def list_schedules(
    context: Context, request: Request, *, of_biz_type: bool = False
) -> Response:
    """Schedules, of all biz_types that the key sees or of one."""
    query = dict(request.query_params)
    biz_type: str | None = query.get("biz_type")
    if of_biz_type:
        biz_type = (await biz_of(context, request.path_params["biz_type"])).biz_type
    elif biz_type is not None:
        if not is_biz_type(biz_type):
            raise invalid(f"biz_type: {BIZ_TYPE_PATTERN}")
        actor_of(request).check_sees(biz_type)
    limit = limit_of(query.get("limit"))
    return json_answer(await schedules_of(context, actor_of(request), biz_type, query, limit))


async def schedules_of(
    context: Context, actor: Actor, biz_type: str | None, query: dict[str, str], limit: int
) -> SchedulesOut:
    """A page of the schedules that this actor sees; biz_type: of this one. query: its cursor."""
    query = dict(query)
    after = _After("", "")
    query["biz_type"] = biz_type or ""
    if "cursor" in query:
        after = decode_cursor(query, query["cursor"], _After)
        if not (is_biz_type(after.biz_type) and is_name(after.name)):
            raise invalid("cursor: not one that a list has given")
    seen: list[str] | None = None
    if biz_type is not None:
        seen = [biz_type]
    elif actor.is_narrowed:
        seen = [name for name in context.registry.names() if actor.sees(name)]
    found = await store.page(context.db, seen, (after.biz_type, after.name), limit + 1)
    cursor = None
    if len(found) > limit:
        cursor = encode_cursor(query, _After(found[limit - 1].biz_type, found[limit - 1].name))
    now_ms = now_of(context)
    items = [schedule_item(one, now_ms) for one in found[:limit]]
    return SchedulesOut(items, cursor)


_BIZ_TYPE: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "biz_type": ({"type": "string"}, "of this biz_type")
}

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/schedules",
        handler=list_schedules,
        name="listSchedules",
        scope="read",
        summary="All schedules",
        query=_BIZ_TYPE | PAGING,
        answers={200: Answer(text="A page", body=SchedulesOut)},
        problems=("invalid-request", "not-found", "overloaded"),
    ),
    Operation(
        method="GET",
        path="/v1/biz/{biz_type}/schedules",
        handler=partial(list_schedules, of_biz_type=True),
        name="listSchedulesOfBizType",
        scope="read",
        summary="The schedules of a biz_type",
        query=PAGING,
        answers={200: Answer(text="A page", body=SchedulesOut)},
        problems=("invalid-request", "not-found", "overloaded"),
    ),
)
