"""GET of the forecast: calls a minute for the next hours, against the rate limit."""

from __future__ import annotations

import math
from typing import Annotated, Final

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from broker.api.actor import Actor, actor_of
from broker.api.bizverbs import existing
from broker.api.context import Context
from broker.api.intake import check_biz_type
from broker.api.lists import query_of
from broker.api.operation import Answer, Operation, json_answer
from broker.api.problems import invalid
from broker.api.times import format_time
from broker.api.view import Time
from broker.forecast import HOT_SECONDS_MAX, HotSecond, Minute
from wheel_timer.biz import BizType

HOURS: Final = 24
HOURS_MAX: Final = 72
HOUR_MS: Final = 3_600_000
# Without a rate limit, a second with more tasks is told of: so many calls of 50 ms each keep all
# slots of the default max_concurrency busy for it.
HOT_TASKS: Final = 1_000


class BucketOut(Struct):
    """
    One minute. tasks: pending, with start_time in it. limit: the calls that the rate limit lets
    through in a minute, of several biz_types together; null where there is none, or one of them has
    none. estimated: the quarter hour's tasks are right, how they lie in it is not known (yet).
    """

    start: Time
    tasks: int
    limit: float | None
    estimated: bool


class HotSecondOut(Struct):
    """
    A second that holds more tasks than may be called in it. limit: the biz_type's rate limit, a
    second; null: it has none, and the second holds more than HOT_TASKS.
    """

    start: Time
    biz_type: str
    tasks: int
    limit: float | None


class ForecastOut(Struct):
    """
    time: the database's clock. biz_type: null for all that the key sees. tasks: of all buckets.
    estimated: some buckets are, and hot seconds may be missing in them; asked again, more is known.
    """

    time: Time
    biz_type: str | None
    hours: int
    tasks: int
    estimated: bool
    buckets: Annotated[list[BucketOut], Meta(description="each minute, from the present one on")]
    hot_seconds: Annotated[
        list[HotSecondOut], Meta(description=f"the most crowded {HOT_SECONDS_MAX}, in order")
    ]


async def get_forecast(context: Context, request: Request) -> Response:
    """What is known of the next hours."""
    query = query_of(request)
    hours = hours_of(query.get("hours"))
    return json_answer(await forecast(context, actor_of(request), query.get("biz_type"), hours))


async def forecast(context: Context, actor: Actor, name: str | None, hours: int) -> ForecastOut:
    """What is known of the next hours. name: of this biz_type, None: of all that are seen."""
    if name is not None:
        check_biz_type(name)
        actor.check_sees(name)
    await context.registry.refresh()
    names = [one for one in context.registry.names() if actor.sees(one)] if name is None else [name]
    known = [existing(one, context.registry.get(one)) for one in names]
    now_ms = int(context.clock.now_ms())
    found = await context.forecaster.look(
        {biz.biz_type: hot_over(biz) for biz in known},
        context.registry.version,
        now_ms,
        now_ms + hours * HOUR_MS,
        are_all=name is None and not actor.is_narrowed,
    )
    rates = {biz.biz_type: biz.rate_limit for biz in known}
    limit = _limit(list(rates.values()))
    return ForecastOut(
        time=format_time(now_ms),
        biz_type=name,
        hours=hours,
        tasks=sum(minute.tasks for minute in found.minutes),
        estimated=any(minute.is_estimated for minute in found.minutes),
        buckets=[_bucket_out(minute, limit) for minute in found.minutes],
        hot_seconds=[_hot_out(hot, rates[hot.biz_type]) for hot in found.hot],
    )


def hot_over(biz: BizType) -> int:
    """A second with more tasks of the biz_type than this is hot."""
    if biz.rate_limit is None:
        return HOT_TASKS
    return max(1, math.floor(biz.rate_limit), biz.burst or 0)


def hours_of(text: str | None) -> int:
    """How far to look, by the query. Raises Refused."""
    if text is None:
        return HOURS
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= HOURS_MAX):
        raise invalid(f"hours: a number from 1 to {HOURS_MAX}")
    return int(text)


def _limit(rates: list[float | None]) -> float | None:
    """Calls a minute, together."""
    limited = [rate for rate in rates if rate is not None]
    return sum(limited) * 60 if limited and len(limited) == len(rates) else None


def _bucket_out(minute: Minute, limit: float | None) -> BucketOut:
    return BucketOut(format_time(minute.start_ms), minute.tasks, limit, minute.is_estimated)


def _hot_out(hot: HotSecond, rate: float | None) -> HotSecondOut:
    return HotSecondOut(format_time(hot.start_ms), hot.biz_type, hot.tasks, rate)


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/forecast",
        handler=get_forecast,
        name="getForecast",
        scope="read",
        summary="What is to be called in the next hours",
        text="By minutes of start_time, as the wheel holds it now: what is still to be submitted, "
        "waits for a retry or is late is not in it. How many tasks a quarter hour has is counted "
        "by the ledger; how they lie in it is read from the wheel, of which each look reads a "
        "bounded piece: what it did not reach yet is spread evenly and marked as estimated. What "
        "was read is kept, so later looks know more. Sums may be some seconds old where there are "
        "very many biz_types.",
        query={
            "biz_type": ({"type": "string"}, "of this biz_type; else of all that the key sees"),
            "hours": (
                {"type": "integer", "minimum": 1, "maximum": HOURS_MAX, "default": HOURS},
                "how far ahead",
            ),
        },
        answers={200: Answer(text="The forecast", body=ForecastOut)},
        problems=("invalid-request", "not-found", "overloaded"),
    ),
)
