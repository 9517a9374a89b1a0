"""The forecast: calls a minute in the next hours against the rate limit, and the hot seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from broker.api.forecast import BucketOut, HotSecondOut, forecast, hours_of
from broker.api.problems import Refused
from broker.console.chart import Column
from broker.console.page import Page
from broker.console.pages.search import linked
from broker.console.visit import Visit
from wheel_timer.errors import FieldError

HERE: Final = "/console/forecast"
HOURS: Final = (1, 3, 24, 72)
# So many columns at most: each is the busiest of some minutes.
COLUMNS_MAX: Final = 96
HOT_SHOWN: Final = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """
    What the page shows. minutes_a_column: of which a column shows the busiest. limit: calls a
    minute that the rate limits let through, 0 for none. over: minutes with more than that.
    """

    biz_type: str
    hours: int
    choices: Sequence[tuple[int, str]]
    tasks: int
    is_estimated: bool
    minutes_a_column: int
    columns: Sequence[Column]
    limit: float
    over: int
    hot: Sequence[HotSecondOut]
    hot_all: int
    errors: Sequence[FieldError]


async def show(visit: Visit) -> Response:
    """The page."""
    name = visit.query.get("biz_type", "").strip()
    hours = hours_of(visit.query.get("hours"))
    kept = {"biz_type": name} if name else {}
    choices = [(n, linked(HERE, kept | {"hours": str(n)})) for n in HOURS]
    try:
        found = await forecast(visit.context, visit.actor, name or None, hours)
    except Refused as refused:
        data = Shown(
            biz_type=name,
            hours=hours,
            choices=choices,
            tasks=0,
            is_estimated=False,
            minutes_a_column=1,
            columns=[],
            limit=0,
            over=0,
            hot=[],
            hot_all=0,
            errors=refused.problem.errors,
        )
        return visit.render("forecast.html", data, 422)
    buckets = found.buckets
    width = -(-len(buckets) // COLUMNS_MAX)
    limit = buckets[0].limit or 0 if buckets else 0
    data = Shown(
        biz_type=name,
        hours=hours,
        choices=choices,
        tasks=found.tasks,
        is_estimated=found.estimated,
        minutes_a_column=width,
        columns=[
            _column(buckets[n : n + width], is_labelled=n // width % 12 == 0)
            for n in range(0, len(buckets), width)
        ],
        limit=limit,
        over=sum(bool(limit) and bucket.tasks > limit for bucket in buckets),
        hot=found.hot_seconds[:HOT_SHOWN],
        hot_all=len(found.hot_seconds),
        errors=[],
    )
    return visit.render("forecast.html", data)


def _column(minutes: Sequence[BucketOut], *, is_labelled: bool) -> Column:
    busiest = max(minutes, key=lambda minute: minute.tasks)
    tasks = sum(minute.tasks for minute in minutes)
    at = minutes[0].start[11:16]
    title = f"{busiest.start[11:16]}: {busiest.tasks:,} in the minute"
    if len(minutes) > 1:
        title = f"{at}, {len(minutes)} min: {tasks:,}; most at {title}"
    if any(minute.estimated for minute in minutes):
        title += " (estimated)"
    is_over = any(minute.limit is not None and minute.tasks > minute.limit for minute in minutes)
    return Column(busiest.tasks, at if is_labelled else "", title, "over" if is_over else "")


PAGES: Final = (Page(path=HERE, scope="read", show=show, menu="Forecast"),)
