"""Schedules of a biz_type: made, changed, enabled, disabled, deleted, run now; what comes next."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import Annotated, Any, Final
from uuid import UUID

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from broker.api.actor import actor_of
from broker.api.bizverbs import MERGE_PATCH
from broker.api.context import Context
from broker.api.cursor import decode_cursor, encode_cursor
from broker.api.operation import JSON, Answer, Operation, json_answer
from broker.api.outcomes import media_type, unsupported
from broker.api.paging import PAGING, limit_of
from broker.api.problems import invalid
from broker.api.scheduling import (
    ScheduleIn,
    ScheduleItem,
    ScheduleOut,
    decode_schedule,
    is_name,
    patched,
    read_schedule,
    schedule_item,
    schedule_out,
)
from broker.api.times import format_time
from broker.api.verb import read_nothing
from broker.api.view import Time
from wheel_timer.biz import BizType, is_biz_type
from wheel_timer.errors import NotFound
from wheel_timer.schedule import Schedule, upcoming
from wheel_timer.store import schedule as store
from wheel_timer.store.schedule import Make, Put, Wheel, missing

COUNT_DEFAULT: Final = 10
COUNT_MAX: Final = 1000
# What a broker had claimed when its schedule was changed is called within this: claims are granted
# 20 ms ahead of their moment.
STARTING_S: Final = 0.05


class SchedulesOut(Struct):
    """A page of schedules by biz_type and name. It may be short and still have a next one."""

    items: list[ScheduleItem]
    next_cursor: Annotated[str | None, Meta(description="for the next page; null at the end")]


class OccurrenceOut(Struct):
    """One time that it comes due. start_time: with its jitter."""

    scheduled_time: Time
    start_time: Time
    task_id: UUID


class UpcomingOut(Struct):
    """What comes next. Of a schedule that is not enabled: what would, if it were."""

    enabled: bool
    items: list[OccurrenceOut]


class RunOut(Struct):
    """The task that was made."""

    task_id: UUID
    start_time: Time
    schedule_id: UUID


class _After(Struct, forbid_unknown_fields=True):
    """Where a page ended."""

    biz_type: str
    name: str


async def list_schedules(
    context: Context, request: Request, *, of_biz_type: bool = False
) -> Response:
    """Schedules, of all biz_types that the key sees or of one."""
    query = dict(request.query_params)
    biz_type = request.path_params["biz_type"] if of_biz_type else query.get("biz_type")
    if biz_type is not None:
        actor_of(request).check_sees(biz_type)
        if of_biz_type:
            await _biz(context, biz_type)
    limit = limit_of(query.get("limit"))
    after = _After("", "")
    query["biz_type"] = biz_type or ""
    if "cursor" in query:
        after = decode_cursor(query, query["cursor"], _After)
    found = await store.page(context.db, biz_type, (after.biz_type, after.name), limit + 1)
    cursor = None
    if len(found) > limit:
        cursor = encode_cursor(query, _After(found[limit - 1].biz_type, found[limit - 1].name))
    now_ms = _now_ms(context)
    actor = actor_of(request)
    items = [schedule_item(one, now_ms) for one in found[:limit] if actor.sees(one.biz_type)]
    return json_answer(SchedulesOut(items, cursor))


async def get_schedule(context: Context, request: Request) -> Response:
    """One schedule."""
    return _answer(context, await _found(context, request))


async def put_schedule(context: Context, request: Request) -> Response:
    """Create a schedule, or put a whole one in the place of the one that there is."""
    if media_type(request) not in ("", JSON):
        raise unsupported(JSON)
    biz_type, name = request.path_params["biz_type"], request.path_params["name"]
    body = await context.bodies.read(request)
    biz = await _biz(context, biz_type)
    given = decode_schedule(body)
    put = await _change(
        context,
        request,
        biz,
        lambda before: read(context, given, biz, name, before),
        "schedule.put",
    )
    return _answer(context, put.schedule, 201 if put.before is None else 200)


async def patch_schedule(context: Context, request: Request) -> Response:
    """Change some of a schedule."""
    if media_type(request) not in ("", JSON, MERGE_PATCH):
        raise unsupported(f"{JSON}, {MERGE_PATCH}")
    body = await context.bodies.read(request)
    found = await _found(context, request)
    biz = await _biz(context, found.biz_type)

    def make(before: Schedule | None) -> Schedule:
        stands = existing(found, before)
        return read(context, patched(stands, body), biz, stands.name, stands)

    put = await _change(context, request, biz, make, "schedule.patch")
    return _answer(context, put.schedule)


async def set_enabled(context: Context, request: Request, *, enabled: bool) -> Response:
    """Let it come due from now on, or no more."""
    await read_nothing(context, request)
    found = await _found(context, request)
    biz = await _biz(context, found.biz_type)
    put = await _change(
        context,
        request,
        biz,
        lambda before: msgspec.structs.replace(existing(found, before), enabled=enabled),
        "schedule.enable" if enabled else "schedule.disable",
    )
    return _answer(context, put.schedule)


async def delete_schedule(context: Context, request: Request) -> Response:
    """Delete a schedule and what of it was not called yet."""
    await read_nothing(context, request)
    found = await _found(context, request)
    under_way = await store.delete(
        context.db,
        found.biz_type,
        found.name,
        actor=actor_of(request).name,
        lookahead_ms=wheel_of(context).lookahead_ms,
    )
    await _let_start(under_way)
    return Response(status_code=204)


async def run_schedule(context: Context, request: Request) -> Response:
    """One more occurrence, now."""
    await read_nothing(context, request)
    found = await _found(context, request)
    await _know_the_time(context)
    ref = await store.run(
        context.db,
        found,
        math.ceil(context.clock.now_ms()),
        actor=actor_of(request).name,
        lookahead_ms=wheel_of(context).lookahead_ms,
    )
    context.submitter.publish_soon([ref])
    answer = RunOut(ref.task_id, format_time(ref.start_time_ms), found.schedule_id)
    return json_answer(answer, 201, {"Location": f"/v1/tasks/{ref.task_id}"})


async def get_upcoming(context: Context, request: Request) -> Response:
    """The next occurrences."""
    text = request.query_params.get("count")
    if text is not None and not (
        text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= COUNT_MAX
    ):
        raise invalid(f"count: a number from 1 to {COUNT_MAX}")
    count = COUNT_DEFAULT if text is None else int(text)
    found = await _found(context, request)
    items = [
        OccurrenceOut(format_time(one.scheduled), format_time(one.start), one.task_id)
        for one in upcoming(found, _now_ms(context), count)
    ]
    return json_answer(UpcomingOut(found.enabled, items))


def read(
    context: Context, given: ScheduleIn, biz: BizType, name: str, before: Schedule | None
) -> Schedule:
    """What a schedule is to become. Raises InvalidTask, StaleVersion, PayloadTooLarge."""
    return read_schedule(
        given, biz, name, before, body_bytes_max=context.settings.max_body, guard=context.guard
    )


def wheel_of(context: Context) -> Wheel:
    """The wheel that the occurrences go to."""
    settings = context.settings
    return Wheel(
        shards=settings.shards,
        now_ms=context.clock.now_ms,
        horizon_ms=round(settings.schedule_horizon * 1000),
        lookahead_ms=round(settings.lookahead * 1000),
    )


def existing(found: Schedule, before: Schedule | None) -> Schedule:
    """The schedule as it is now. Raises NotFound where it is gone."""
    if before is None:
        raise missing(found.biz_type, found.name)
    return before


async def make_so(
    context: Context, biz_type: str, name: str, make: Make, *, actor: str, action: str
) -> Put:
    """Change a schedule; once this returns, no occurrence of the version before starts any more."""
    await _know_the_time(context)
    put = await store.change(
        context.db, biz_type, name, make, wheel_of(context), actor=actor, action=action
    )
    if put.near:
        context.submitter.publish_soon(put.near)
    await _let_start(put.under_way)
    return put


async def _change(context: Context, request: Request, biz: BizType, make: Make, action: str) -> Put:
    name: str = request.path_params["name"]
    actor = actor_of(request).name
    return await make_so(context, biz.biz_type, name, make, actor=actor, action=action)


async def _know_the_time(context: Context) -> None:
    """What comes next is counted from the database's now. Raises DatabaseUnavailable."""
    if context.clock.is_test or not context.clock.is_known():
        await context.clock.measure()


async def _let_start(under_way: int) -> None:
    """What was claimed already starts now, if it does; it was stopped after that."""
    if under_way:
        await asyncio.sleep(STARTING_S)


async def _found(context: Context, request: Request) -> Schedule:
    biz_type, name = request.path_params["biz_type"], request.path_params["name"]
    found = None
    if is_biz_type(biz_type) and is_name(name):
        found = await store.load(context.db, biz_type, name)
    if found is None:
        raise missing(biz_type, name)
    return found


async def _biz(context: Context, name: str) -> BizType:
    await context.registry.refresh()
    biz = context.registry.get(name)
    if biz is None:
        raise NotFound(f"there is no biz_type {name[:64]!r}")
    return biz


def _now_ms(context: Context) -> int:
    return int(context.clock.now_ms())


def _answer(context: Context, schedule: Schedule, status: int = 200) -> Response:
    headers = {}
    if status == 201:
        headers["Location"] = f"/v1/biz/{schedule.biz_type}/schedules/{schedule.name}"
    return json_answer(schedule_out(schedule, _now_ms(context)), status, headers)


_ONE: Final = "/v1/biz/{biz_type}/schedules/{name}"
_SHOWN: Final = {200: Answer(text="The schedule", body=ScheduleOut)}
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
    Operation(
        method="GET",
        path=_ONE,
        handler=get_schedule,
        name="getSchedule",
        scope="read",
        summary="A schedule",
        answers=_SHOWN,
        problems=("not-found", "overloaded"),
    ),
    Operation(
        method="PUT",
        path=_ONE,
        handler=put_schedule,
        name="putSchedule",
        scope="configure",
        summary="Create or replace a schedule",
        text="Its occurrences are tasks with its schedule_id, called as any others. A change "
        "replaces those to come in one transaction; what came due before goes on as it was. Fixed "
        "times (neither the minute nor the hour begins with *) come once for each time of a day: "
        "one that the clocks skip at the moment of the change, one that they repeat the first time "
        "only. Others go by what the wall clock shows: a skipped time does not come, a repeated "
        "one twice. Putting what is there already changes nothing.",
        takes={JSON: ScheduleIn},
        answers={
            200: Answer(text="Replaced", body=ScheduleOut),
            201: Answer(text="Created", body=ScheduleOut, headers={"Location": "the schedule"}),
        },
        problems=("not-found", "stale-version", "too-large", "overloaded"),
    ),
    Operation(
        method="PATCH",
        path=_ONE,
        handler=patch_schedule,
        name="patchSchedule",
        scope="configure",
        summary="Change some of a schedule",
        text="RFC 7396 over what GET shows: what is left out stays, null gives the default.",
        takes={JSON: ScheduleIn, MERGE_PATCH: ScheduleIn},
        answers=_SHOWN,
        problems=("not-found", "stale-version", "too-large", "overloaded"),
    ),
    Operation(
        method="DELETE",
        path=_ONE,
        handler=delete_schedule,
        name="deleteSchedule",
        scope="configure",
        summary="Delete a schedule",
        text="After the answer no occurrence starts. What was called goes on: its retries, too.",
        answers={204: Answer(text="It is gone")},
        problems=("not-found", "overloaded"),
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/enable",
        handler=partial(set_enabled, enabled=True),
        name="enableSchedule",
        scope="operate",
        summary="Let a schedule come due from now on",
        text="Safe to repeat. What it missed while it was disabled is not made up for.",
        answers=_SHOWN,
        problems=("not-found", "overloaded"),
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/disable",
        handler=partial(set_enabled, enabled=False),
        name="disableSchedule",
        scope="operate",
        summary="Take a schedule's occurrences back",
        text="After the answer none starts, not even one that is due and waits in its lane. What "
        "was called goes on: its retries, too. Safe to repeat.",
        answers=_SHOWN,
        problems=("not-found", "overloaded"),
    ),
    Operation(
        method="POST",
        path=f"{_ONE}/run",
        handler=run_schedule,
        name="runSchedule",
        scope="operate",
        summary="One more occurrence, now",
        text="Whatever its cron, and whether it is enabled. Sent twice it is two.",
        answers={
            201: Answer(text="The task", body=RunOut, headers={"Location": "the task"}),
        },
        problems=("not-found", "overloaded"),
    ),
    Operation(
        method="GET",
        path=f"{_ONE}/upcoming",
        handler=get_upcoming,
        name="getUpcoming",
        scope="read",
        summary="The next occurrences of a schedule",
        query={
            "count": (
                {"type": "integer", "minimum": 1, "maximum": COUNT_MAX, "default": COUNT_DEFAULT},
                "so many",
            )
        },
        answers={200: Answer(text="In the order of their moments", body=UpcomingOut)},
        problems=("invalid-request", "not-found", "overloaded"),
    ),
)
