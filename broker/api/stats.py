"""GET /v1/biz/{biz_type}/stats: how it goes, in bounded time."""

from __future__ import annotations

import logging
from typing import Annotated, Final

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from broker.api.bizverbs import biz_type_of, existing
from broker.api.context import Context
from broker.api.operation import Answer, Operation, json_answer
from broker.api.times import START_TIME_MS_MIN, format_time
from broker.api.view import Time
from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.store.ledger import pending
from wheel_timer.store.stats import (
    DEAD_MAX,
    LOOK_ROWS,
    Window,
    dead_count,
    window,
)

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000

log = logging.getLogger(__name__)


class CountOut(Struct):
    """is_complete: false where there are more than were counted."""

    tasks: int
    is_complete: bool


class MinuteOut(Struct):
    """
    The tasks whose start_time lies in the last minute, as they are now. again: called more than
    once. lateness: of the first call, from the later of start_time and create_time.
    """

    due: int
    pending: int
    delivering: int
    finished: int
    failed: int
    cancelled: int
    again: int
    lateness_p50_ms: int | None
    lateness_p99_ms: int | None
    is_complete: Annotated[bool, Meta(description=f"false where only {LOOK_ROWS} were looked at")]


class RatesOut(Struct):
    """A second, over the last minute."""

    due: float
    called: float
    finished: float


class StatsOut(Struct):
    """
    How a biz_type goes. pending: how many tasks are, exactly, by the ledger; max_pending counts by
    it. failed: dead letters. in_flight, depth: of its lane in the event center,
    null while that is away. secrets: how many sign at present.
    """

    biz_type: str
    version: int
    time: Time
    is_paused: Annotated[bool, Meta(description="by its own setting, or by the brake")]
    pending: int
    failed: CountOut
    depth: int | None
    in_flight: int | None
    last_minute: MinuteOut
    next_hour: CountOut
    rates: RatesOut
    secrets: int


async def get_stats(context: Context, request: Request) -> Response:
    """Count what can be counted quickly."""
    return json_answer(await stats_of(context, biz_type_of(request)))


async def stats_of(context: Context, name: str, look_rows: int | None = None) -> StatsOut:
    """
    How this biz_type goes. look_rows: so many tasks of each span are looked at, in place of
    LOOK_ROWS. Raises NotFound.
    """
    await context.registry.refresh()
    biz = existing(name, context.registry.get(name))
    now_ms = max(int(context.clock.now_ms()), START_TIME_MS_MIN + MINUTE_MS)
    past = await window(context.db, name, now_ms - MINUTE_MS, now_ms, now_ms, look_rows)
    ahead = await window(context.db, name, now_ms, now_ms + HOUR_MS, now_ms, look_rows)
    dead = await dead_count(context.db, name)
    depth = in_flight = None
    try:
        depth, in_flight = (await context.event_center.depths([name]))[name][:2]
    except EventCenterUnavailable as error:
        log.warning("the lane of %s could not be counted: %s", name, error)
    return StatsOut(
        biz_type=name,
        version=biz.version,
        time=format_time(now_ms),
        is_paused=biz.paused or context.registry.brake is not None,
        pending=await pending(context.db, name),
        failed=CountOut(dead, dead < DEAD_MAX),
        depth=depth,
        in_flight=in_flight,
        last_minute=_minute_out(past),
        next_hour=CountOut(ahead.due, ahead.is_complete),
        rates=RatesOut(past.due / 60, past.called / 60, past.finished / 60),
        secrets=sum(one.until_ms is None or now_ms < one.until_ms for one in biz.secrets),
    )


def _minute_out(past: Window) -> MinuteOut:
    return MinuteOut(
        due=past.due,
        pending=past.pending,
        delivering=past.delivering,
        finished=past.finished,
        failed=past.failed,
        cancelled=past.cancelled,
        again=past.again,
        lateness_p50_ms=past.lateness_p50_ms,
        lateness_p99_ms=past.lateness_p99_ms,
        is_complete=past.is_complete,
    )


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/biz/{biz_type}/stats",
        handler=get_stats,
        name="getBizTypeStats",
        scope="read",
        summary="How a biz_type goes",
        text="Counted in bounded time, whatever the wheel holds; what may be cut off says whether "
        "it is complete.",
        answers={200: Answer(text="The figures", body=StatsOut)},
        problems=("not-found", "overloaded"),
    ),
)
