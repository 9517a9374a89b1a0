"""Schedules: all of them, and one: what comes of it next, and what is done with it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlencode

from starlette.responses import Response

from broker.api.schedulelists import schedules_of
from broker.api.schedules import delete, named, now_of
from broker.api.scheduleverbs import enable, run
from broker.api.scheduleview import ScheduleItem, ScheduleOut, schedule_out
from broker.console.page import Page
from broker.console.visit import Confirmation, Visit
from wheel_timer.biz import is_biz_type
from wheel_timer.cron import zone_of
from wheel_timer.schedule import Schedule, upcoming

HERE: Final = "/console/schedules"
ROWS: Final = 50
COMING: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Time:
    """A moment, and what the clock of the schedule's zone shows then."""

    at_ms: int
    wall: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedules:
    """A page of schedules. wrong: why there is none."""

    items: Sequence[ScheduleItem]
    biz_type: str
    wrong: str
    onward: str | None
    now_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class One:
    """One schedule. coming: its next times, or those that it would have if it were enabled."""

    schedule: ScheduleOut
    coming: Sequence[Time]
    data: str
    path: str
    now_ms: int


def path_of(biz_type: str, name: str) -> str:
    """The page of a schedule."""
    return f"{HERE}/{quote(biz_type, safe='')}/{quote(name, safe='')}"


def time_of(at_ms: int, timezone: str) -> Time:
    """A moment in a zone."""
    at = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone(zone_of(timezone))
    return Time(at_ms=at_ms, wall=f"{at:%a %Y-%m-%d %H:%M:%S}")


async def show(visit: Visit) -> Response:
    """The list."""
    biz_type = visit.query.get("biz_type", "").strip()
    query = {name: text for name, text in visit.query.items() if name == "cursor"}
    items: Sequence[ScheduleItem] = []
    onward, wrong = None, ""
    if biz_type and not (is_biz_type(biz_type) and visit.actor.sees(biz_type)):
        wrong = "There is no such biz_type."
    else:
        asked = query | {"biz_type": biz_type}
        found = await schedules_of(visit.context, visit.actor, biz_type or None, asked, ROWS)
        items = found.items
        if found.next_cursor is not None:
            onward = f"{HERE}?{urlencode({'biz_type': biz_type, 'cursor': found.next_cursor})}"
    now_ms = now_of(visit.context)
    data = Schedules(items=items, biz_type=biz_type, wrong=wrong, onward=onward, now_ms=now_ms)
    return visit.render("schedules.html", data)


async def show_one(visit: Visit) -> Response:
    """One schedule."""
    schedule = await found_of(visit)
    now_ms = now_of(visit.context)
    # Ten leap days in a rare zone take some milliseconds: beside what else there is to do.
    coming = await asyncio.to_thread(upcoming, schedule, now_ms, COMING)
    shown = schedule_out(schedule, now_ms)
    data = ""
    if schedule.biz_data is not None:
        data = schedule.biz_data[:4_000].decode("utf-8", "replace")
    return visit.render(
        "schedule.html",
        One(
            schedule=shown,
            coming=[time_of(one.start, schedule.timezone) for one in coming],
            data=data,
            path=path_of(schedule.biz_type, schedule.name),
            now_ms=now_ms,
        ),
    )


async def ask_enable(visit: Visit) -> Response:
    """Whether it is to come due."""
    schedule = await found_of(visit)
    return visit.confirm(
        Confirmation(
            title=f"Enable the schedule {schedule.name}?",
            sentences=["It comes due from now on. What it missed meanwhile is not made up for."],
            facts=_facts(schedule),
            button="Enable it",
            back=path_of(schedule.biz_type, schedule.name),
        )
    )


async def enable_it(visit: Visit) -> Response:
    """Enable it."""
    schedule = await enable(visit.context, await found_of(visit), visit.actor, enabled=True)
    return visit.done(path_of(schedule.biz_type, schedule.name), "It is enabled.")


async def ask_disable(visit: Visit) -> Response:
    """Whether it is to come due no more."""
    schedule = await found_of(visit)
    return visit.confirm(
        Confirmation(
            title=f"Disable the schedule {schedule.name}?",
            sentences=[
                "None of its occurrences starts any more, not even one that is due and waits."
                " What was called goes on, its retries too."
            ],
            facts=_facts(schedule),
            button="Disable it",
            back=path_of(schedule.biz_type, schedule.name),
        )
    )


async def disable_it(visit: Visit) -> Response:
    """Disable it."""
    schedule = await enable(visit.context, await found_of(visit), visit.actor, enabled=False)
    return visit.done(path_of(schedule.biz_type, schedule.name), "It is disabled.")


async def ask_run(visit: Visit) -> Response:
    """Whether it is to have one more occurrence."""
    schedule = await found_of(visit)
    return visit.confirm(
        Confirmation(
            title=f"Run the schedule {schedule.name} now?",
            sentences=["One more occurrence, called now, whatever its cron says."],
            facts=_facts(schedule),
            button="Run it",
            back=path_of(schedule.biz_type, schedule.name),
        )
    )


async def run_it(visit: Visit) -> Response:
    """Make the occurrence."""
    made = await run(visit.context, await found_of(visit), visit.actor)
    return visit.done(f"/console/tasks/{made.task_id}", "It is called now.")


async def ask_delete(visit: Visit) -> Response:
    """Whether it is to go."""
    schedule = await found_of(visit)
    return visit.confirm(
        Confirmation(
            title=f"Delete the schedule {schedule.name}?",
            sentences=[
                "It goes for good, with those of its occurrences that were not called yet. What was"
                " called goes on, its retries too."
            ],
            facts=_facts(schedule),
            button="Delete it",
            back=path_of(schedule.biz_type, schedule.name),
            is_danger=True,
        )
    )


async def delete_it(visit: Visit) -> Response:
    """Delete it."""
    schedule = await found_of(visit)
    await delete(visit.context, schedule, visit.actor)
    return visit.done(HERE, f"The schedule {schedule.name} is deleted.")


async def found_of(visit: Visit) -> Schedule:
    """The schedule of the path. Raises NotFound."""
    return await named(visit.context, visit.params["biz_type"], visit.params["name"])


def _facts(schedule: Schedule) -> list[tuple[str, str]]:
    return [("Of", schedule.biz_type), ("Cron", f"{schedule.cron} ({schedule.timezone})")]


ONE: Final = f"{HERE}/{{biz_type}}/{{name}}"
PAGES: Final = (
    Page(path=HERE, scope="read", show=show, menu="Schedules"),
    Page(path=ONE, scope="read", show=show_one),
    Page(path=f"{ONE}/enable", scope="operate", show=ask_enable, act=enable_it),
    Page(path=f"{ONE}/disable", scope="operate", show=ask_disable, act=disable_it),
    Page(path=f"{ONE}/run", scope="operate", show=ask_run, act=run_it),
    Page(path=f"{ONE}/delete", scope="configure", show=ask_delete, act=delete_it),
)
