"""GET /v1/tasks: the tasks that fit a query, page by page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, get_args
from uuid import UUID

from msgspec import Meta, Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from broker.api.actor import Actor, actor_of
from broker.api.context import Context
from broker.api.cursor import decode_cursor, encode_cursor
from broker.api.intake import BIZ_ID_BYTES_MAX, check_biz_type, is_biz_id
from broker.api.operation import Answer, Operation, json_answer
from broker.api.paging import PAGING, limit_of
from broker.api.problems import invalid
from broker.api.times import BadTime, parse_start_time
from broker.api.view import TaskItem, is_due, task_item
from broker.api.waiting import held_lanes
from wheel_timer.store.filter import TIME_MS_MAX, TIME_MS_MIN, Filter, StatusWord
from wheel_timer.store.selection import Key, select_page
from wheel_timer.store.task import TaskRow, last_attempts

DAY_MS: Final = 86_400_000
_NUMBER: Final = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
# A plus sign that was not percent-encoded arrives as a space.
_LOST_PLUS: Final = re.compile(r" (\d\d:\d\d)$", re.ASCII)
_TIMES: Final = ("start_from", "start_to", "finish_from", "finish_to")


class TasksOut(Struct):
    """A page. It may be short, or empty, and still have a next one."""

    items: list[TaskItem]
    next_cursor: Annotated[str | None, Meta(description="for the next page; null at the end")]


class Place(Struct, forbid_unknown_fields=True):
    """Where a page ended; and the times that the first page was asked for, or got by default."""

    start_from: int | None
    start_to: int | None
    key: Key


async def list_tasks(context: Context, request: Request) -> Response:
    """One page."""
    return json_answer(await tasks_page(context, actor_of(request), query_of(request)))


async def tasks_page(
    context: Context, actor: Actor, query: Mapping[str, str], looked_max: int | None = None
) -> TasksOut:
    """
    The page that a query asks for, of the tasks that the actor sees. looked_max: as select_page
    takes it. Raises Refused.
    """
    limit = limit_of(query.get("limit"))
    filter_ = replace(read_filter(query), visible=actor.biz_types)
    if filter_.biz_type is not None:
        actor.check_sees(filter_.biz_type)
    now_ms = context.clock.now_ms()
    if "cursor" in query:
        place = decode_cursor(query, query["cursor"], Place)
        _check_place(place)
        filter_ = replace(filter_, start_from=place.start_from, start_to=place.start_to)
        key = place.key
    else:
        filter_, key = _bounded(filter_, int(now_ms)), Key()
    page = await select_page(
        context.db,
        filter_,
        key,
        limit,
        now_ms=now_ms,
        shards=context.settings.shards,
        looked_max=looked_max,
    )
    items = await items_of(context, page.rows)
    next_cursor = None
    if page.key is not None:
        ended = Place(filter_.start_from, filter_.start_to, page.key)
        next_cursor = encode_cursor(query, ended)
    return TasksOut(items, next_cursor)


async def items_of(context: Context, rows: Sequence[TaskRow]) -> list[TaskItem]:
    """Tasks as a list shows them, each with what it waits for now."""
    now_ms = context.clock.now_ms()
    waiting = [row.task_id for row in rows if row.next_at is not None]
    last = await last_attempts(context.db, waiting) if waiting else {}
    due = {row.biz_type for row in rows if is_due(row, now_ms)}
    held = await held_lanes(context, due, now_ms) if due else {}
    return [task_item(row, last.get(row.task_id), now_ms, held.get(row.biz_type)) for row in rows]


def _check_place(place: Place) -> None:
    """A cursor is not signed: what it says must not be more than the database can take."""
    numbers = (place.start_from, place.start_to, place.key.time_ms, place.key.slot)
    if not all(n is None or TIME_MS_MIN <= n <= TIME_MS_MAX for n in numbers) or (
        len(place.key.biz_id) > BIZ_ID_BYTES_MAX or "\0" in place.key.biz_id
    ):
        raise invalid("cursor: not one that a list has given")


def query_of(request: Request) -> dict[str, str]:
    """The query's names and values. Raises Refused where a name is given twice."""
    pairs = request.query_params.multi_items()
    query = dict(pairs)
    if len(query) != len(pairs):
        raise invalid("a query name is given twice")
    return query


def read_filter(query: Mapping[str, str]) -> Filter:
    """The filter that a query's values mean. Raises Refused with the name of what is wrong."""
    given: dict[str, Any] = {name: _time(name, query[name]) for name in _TIMES if name in query}
    if (status := query.get("status")) is not None:
        if status not in get_args(StatusWord):
            raise invalid(f"status: one of {', '.join(get_args(StatusWord))}")
        given["status"] = status
    if (biz_type := query.get("biz_type")) is not None:
        check_biz_type(biz_type)
        given["biz_type"] = biz_type
    for name in ("biz_id", "biz_id_prefix"):
        if name in query:
            given[name] = _biz_id(name, query[name])
            if biz_type is None:
                raise invalid(f"{name}: needs biz_type beside it")
    if (code := query.get("http_status")) is not None:
        if not re.fullmatch(r"[1-5]\d\d", code, re.ASCII):
            raise invalid("http_status: a number from 100 to 599")
        given["http_status"] = int(code)
    if (schedule_id := query.get("schedule_id")) is not None:
        try:
            given["schedule_id"] = UUID(schedule_id)
        except ValueError:
            raise invalid("schedule_id: a UUID") from None
    filter_ = Filter(**given)
    check_filter(filter_)
    return filter_


def check_filter(filter_: Filter) -> None:
    """Raises Refused where two members of a filter do not go together."""
    if filter_.biz_id is not None and filter_.biz_id_prefix is not None:
        raise invalid("biz_id or biz_id_prefix, not both")
    for what in ("start", "finish"):
        low, end = getattr(filter_, f"{what}_from"), getattr(filter_, f"{what}_to")
        if low is not None and end is not None and end < low:
            raise invalid(f"{what}_to lies before {what}_from")


def _bounded(filter_: Filter, now_ms: int) -> Filter:
    """With both ends of start_time, where the list is one by start_time."""
    if filter_.status == "failed" or filter_.biz_id is not None:
        return filter_
    if filter_.biz_id_prefix is not None:
        return filter_
    low, end = filter_.start_from, filter_.start_to
    return replace(
        filter_,
        start_from=min(now_ms, now_ms if end is None else end) - DAY_MS if low is None else low,
        start_to=max(now_ms, now_ms if low is None else low) + DAY_MS if end is None else end,
    )


def _time(name: str, text: str) -> int:
    try:
        if _NUMBER.fullmatch(text):
            return parse_start_time(text.encode())
        return parse_start_time(b'"' + _LOST_PLUS.sub(r"+\1", text).encode() + b'"')
    except BadTime as error:
        raise invalid(f"{name}: {error}") from None


def _biz_id(name: str, text: str) -> str:
    if not is_biz_id(text):
        raise invalid(f"{name}: 1 to {BIZ_ID_BYTES_MAX} bytes, no control characters")
    return text


_TIME_SCHEMA: Final = {"type": "string"}
_TIME_TEXT: Final = "epoch seconds or RFC 3339; "

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/tasks",
        handler=list_tasks,
        name="listTasks",
        scope="read",
        summary="Tasks",
        text="In the order of biz_id where biz_id or biz_id_prefix is given; of finish_time for "
        "status=failed, complete however many there are; else of start_time. Then start_from or "
        "start_to should be given: what is left out is 24 hours before or after now (or before "
        "or after the other one, where that lies beyond). A page looks at a bounded number of "
        "tasks: it may be short, or empty, and still have a next_cursor. Payloads and attempts "
        "are in GET /v1/tasks/{task_id}.",
        query={
            "biz_type": ({"type": "string"}, "of this biz_type"),
            "status": ({"type": "string", "enum": list(get_args(StatusWord))}, "in this state"),
            "start_from": (_TIME_SCHEMA, _TIME_TEXT + "start_time at or after"),
            "start_to": (_TIME_SCHEMA, _TIME_TEXT + "start_time before"),
            "finish_from": (_TIME_SCHEMA, _TIME_TEXT + "settled at or after"),
            "finish_to": (_TIME_SCHEMA, _TIME_TEXT + "settled before"),
            "http_status": (
                {"type": "integer", "minimum": 100, "maximum": 599},
                "of the last attempt's answer",
            ),
            "biz_id": ({"type": "string"}, "of this biz_id; needs biz_type"),
            "biz_id_prefix": ({"type": "string"}, "a biz_id that begins so; needs biz_type"),
            "schedule_id": ({"type": "string", "format": "uuid"}, "of this schedule"),
            **PAGING,
        },
        answers={200: Answer(text="A page", body=TasksOut)},
        problems=("invalid-request", "overloaded"),
    ),
)
