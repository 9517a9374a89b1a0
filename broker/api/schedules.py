"""Schedules of a biz_type: made, shown, changed, deleted; how every change of one is made."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from broker.api.actor import Actor, actor_of
from broker.api.bizverbs import MERGE_PATCH
from broker.api.context import Context
from broker.api.operation import JSON, Answer, Operation, json_answer
from broker.api.outcomes import media_type, unsupported
from broker.api.scheduleview import ScheduleOut, schedule_out
from broker.api.scheduling import (
    NOT_A_NAME,
    ScheduleIn,
    SchedulePatch,
    decode_schedule,
    is_name,
    patched,
    read_schedule,
)
from broker.api.verb import read_nothing
from wheel_timer import metrics
from wheel_timer.biz import BizType, is_biz_type
from wheel_timer.errors import FieldError, InvalidTask, NotFound
from wheel_timer.schedule import Schedule
from wheel_timer.store import schedule as store
from wheel_timer.store.schedule import Make, Put, Wheel, missing

log: Final = logging.getLogger(__name__)

# What a broker had claimed when its schedule was changed is called within this: claims are granted
# 20 ms ahead of their moment, and for what can start in 0.1 s at their lane's pace.
STARTING_S: Final = 0.15


async def get_schedule(context: Context, request: Request) -> Response:
    """One schedule."""
    return answer(context, await named(context, *path_of(request)))


async def put_schedule(context: Context, request: Request) -> Response:
    """Create a schedule, or put a whole one in the place of the one that there is."""
    if media_type(request) not in ("", JSON):
        raise unsupported(JSON)
    biz_type, name = request.path_params["biz_type"], request.path_params["name"]
    body = await context.bodies.read(request)
    biz = await biz_of(context, biz_type)
    if not is_name(name):
        raise InvalidTask([FieldError(NOT_A_NAME, "#/name")])
    given = decode_schedule(body)
    put = await make_so(
        context,
        biz_type,
        name,
        lambda before: read(context, given, biz, name, before),
        actor=actor_of(request).name,
        action="schedule.put",
    )
    return answer(context, put.schedule, 201 if put.before is None else 200)


async def patch_schedule(context: Context, request: Request) -> Response:
    """Change some of a schedule."""
    if media_type(request) not in ("", JSON, MERGE_PATCH):
        raise unsupported(f"{JSON}, {MERGE_PATCH}")
    body = await context.bodies.read(request)
    found = await named(context, *path_of(request))
    return answer(context, await patch(context, found, body, actor_of(request)))


async def patch(context: Context, found: Schedule, body: bytes, actor: Actor) -> Schedule:
    """The schedule that a PATCH makes of one. Raises InvalidTask, NotFound, StaleVersion."""
    biz = await biz_of(context, found.biz_type)

    def make(before: Schedule | None) -> Schedule:
        stands = existing(found, before)
        return read(context, patched(stands, body), biz, stands.name, stands)

    put = await make_so(
        context, found.biz_type, found.name, make, actor=actor.name, action="schedule.patch"
    )
    return put.schedule


async def delete_schedule(context: Context, request: Request) -> Response:
    """Delete a schedule and what of it was not called yet."""
    await read_nothing(context, request)
    found = await named(context, *path_of(request))
    await delete(context, found, actor_of(request))
    return Response(status_code=204)


async def delete(context: Context, found: Schedule, actor: Actor) -> None:
    """Once this returns, no occurrence of it starts any more. Raises NotFound."""
    under_way = await store.delete(
        context.db,
        found.biz_type,
        found.name,
        actor=actor.name,
        lookahead_ms=wheel_of(context).lookahead_ms,
    )
    await _let_start(under_way)


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
    await know_the_time(context)
    put = await store.change(
        context.db, biz_type, name, make, wheel_of(context), actor=actor, action=action
    )
    if put.changed:
        log.info("%s is at version %d (%s)", put.schedule, put.schedule.version, action)
    if put.occurrences:
        metrics.tasks_submitted(biz_type, put.occurrences)
    if put.near:
        context.submitter.publish_soon(put.near)
    await _let_start(put.under_way)
    return put


async def know_the_time(context: Context) -> None:
    """What comes next is counted from the database's now. Raises DatabaseUnavailable."""
    if context.clock.is_test or not context.clock.is_known():
        await context.clock.measure()


async def _let_start(under_way: int) -> None:
    """What was claimed already starts now, if it does; it was stopped after that."""
    if under_way:
        await asyncio.sleep(STARTING_S)


def path_of(request: Request) -> tuple[str, str]:
    """The biz_type and the name in the path."""
    return request.path_params["biz_type"], request.path_params["name"]


async def named(context: Context, biz_type: str, name: str) -> Schedule:
    """A schedule by its name. Raises NotFound."""
    found = None
    if is_biz_type(biz_type) and is_name(name):
        found = await store.load(context.db, biz_type, name)
    if found is None:
        raise missing(biz_type, name)
    return found


async def biz_of(context: Context, name: str) -> BizType:
    """The biz_type as the database has it now. Raises NotFound."""
    await context.registry.refresh()
    biz = context.registry.get(name)
    if biz is None:
        raise NotFound(f"there is no biz_type {name[:64]!r}")
    return biz


def now_of(context: Context) -> int:
    """The database's clock in ms."""
    return int(context.clock.now_ms())


def answer(context: Context, schedule: Schedule, status: int = 200) -> Response:
    headers = {}
    if status == 201:
        headers["Location"] = f"/v1/biz/{schedule.biz_type}/schedules/{schedule.name}"
    return json_answer(schedule_out(schedule, now_of(context)), status, headers)


ONE: Final = "/v1/biz/{biz_type}/schedules/{name}"
SHOWN: Final = {200: Answer(text="The schedule", body=ScheduleOut)}
OPERATIONS: Final = (
    Operation(
        method="GET",
        path=ONE,
        handler=get_schedule,
        name="getSchedule",
        scope="read",
        summary="A schedule",
        answers=SHOWN,
        problems=("not-found", "overloaded"),
    ),
    Operation(
        method="PUT",
        path=ONE,
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
        path=ONE,
        handler=patch_schedule,
        name="patchSchedule",
        scope="configure",
        summary="Change some of a schedule",
        text="RFC 7396 over what GET shows: what is left out stays, null gives the default.",
        takes={JSON: SchedulePatch, MERGE_PATCH: SchedulePatch},
        answers=SHOWN,
        problems=("not-found", "stale-version", "too-large", "overloaded"),
    ),
    Operation(
        method="DELETE",
        path=ONE,
        handler=delete_schedule,
        name="deleteSchedule",
        scope="configure",
        summary="Delete a schedule",
        text="After the answer no occurrence starts. What was called goes on: its retries, too.",
        answers={204: Answer(text="It is gone")},
        problems=("not-found", "overloaded"),
    ),
)
