"""What is done with a schedule that exists: enabled, disabled, run now; what comes of it next."""

from __future__ import annotations

import asyncio
import math
from functools import partial
from typing import Final
from uuid import UUID

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from broker.api.actor import Actor, actor_of
from broker.api.context import Context
from broker.api.operation import Answer, Operation, json_answer
from broker.api.problems import invalid
from broker.api.schedules import (
    ONE,
    SHOWN,
    answer,
    biz_of,
    existing,
    know_the_time,
    make_so,
    named,
    now_of,
    path_of,
    wheel_of,
)
from broker.api.times import format_time
from broker.api.verb import read_nothing
from broker.api.view import Time
from wheel_timer import metrics
from wheel_timer.schedule import Schedule, upcoming
from wheel_timer.store import schedule as store

COUNT_DEFAULT: Final = 10
COUNT_MAX: Final = 1000


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


async def set_enabled(context: Context, request: Request, *, enabled: bool) -> Response:
    """Let it come due from now on, or no more."""
    await read_nothing(context, request)
    found = await named(context, *path_of(request))
    return answer(context, await enable(context, found, actor_of(request), enabled=enabled))


async def enable(context: Context, found: Schedule, actor: Actor, *, enabled: bool) -> Schedule:
    """The schedule, enabled or disabled. Raises NotFound."""
    await biz_of(context, found.biz_type)
    put = await make_so(
        context,
        found.biz_type,
        found.name,
        lambda before: msgspec.structs.replace(existing(found, before), enabled=enabled),
        actor=actor.name,
        action="schedule.enable" if enabled else "schedule.disable",
    )
    return put.schedule


async def run_schedule(context: Context, request: Request) -> Response:
    """One more occurrence, now."""
    await read_nothing(context, request)
    found = await named(context, *path_of(request))
    made = await run(context, found, actor_of(request))
    return json_answer(made, 201, {"Location": f"/v1/tasks/{made.task_id}"})


async def run(context: Context, found: Schedule, actor: Actor) -> RunOut:
    """One more occurrence of it, now."""
    await know_the_time(context)
    ref = await store.run(
        context.db,
        found,
        math.ceil(context.clock.now_ms()),
        actor=actor.name,
        lookahead_ms=wheel_of(context).lookahead_ms,
    )
    metrics.tasks_submitted(found.biz_type, 1)
    context.submitter.publish_soon([ref])
    return RunOut(ref.task_id, format_time(ref.start_time_ms), found.schedule_id)


async def get_upcoming(context: Context, request: Request) -> Response:
    """The next occurrences."""
    text = request.query_params.get("count")
    if text is not None and not (
        text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= COUNT_MAX
    ):
        raise invalid(f"count: a number from 1 to {COUNT_MAX}")
    count = COUNT_DEFAULT if text is None else int(text)
    found = await named(context, *path_of(request))
    # A thousand leap days are half a second's work: beside what else there is to do.
    coming = await asyncio.to_thread(upcoming, found, now_of(context), count)
    items = [
        OccurrenceOut(format_time(one.scheduled), format_time(one.start), one.task_id)
        for one in coming
    ]
    return json_answer(UpcomingOut(found.enabled, items))


OPERATIONS: Final = (
    Operation(
        method="POST",
        path=f"{ONE}/enable",
        handler=partial(set_enabled, enabled=True),
        name="enableSchedule",
        scope="operate",
        summary="Let a schedule come due from now on",
        text="Safe to repeat. What it missed while it was disabled is not made up for.",
        answers=SHOWN,
        problems=("not-found", "overloaded"),
    ),
    Operation(
        method="POST",
        path=f"{ONE}/disable",
        handler=partial(set_enabled, enabled=False),
        name="disableSchedule",
        scope="operate",
        summary="Take a schedule's occurrences back",
        text="After the answer none starts, not even one that is due and waits in its lane. What "
        "was called goes on: its retries, too. Safe to repeat.",
        answers=SHOWN,
        problems=("not-found", "overloaded"),
    ),
    Operation(
        method="POST",
        path=f"{ONE}/run",
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
        path=f"{ONE}/upcoming",
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
