"""GET of what operators look at: the hands of the wheel, and its lanes."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from broker.api.actor import actor_of
from broker.api.brake import BrakeOut, brake_out
from broker.api.context import Context
from broker.api.jump import ClockJumpOut, clock_jump
from broker.api.operation import Answer, Operation, json_answer
from broker.api.times import format_time
from broker.api.view import Time
from wheel_timer.biz import BizType
from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.eventcenter import Depth
from wheel_timer.store.ledger import Total, totals_now
from wheel_timer.store.wheel import Shard, shards
from wheel_timer.waits import LaneWait

log = logging.getLogger(__name__)


class ShardOut(Struct):
    """
    One shard. leader: null where no lease runs. lag_ms: how far the due hand is behind what it
    should have published by now.
    """

    shard: int
    leader: str | None
    epoch: int
    closed_to: Time
    current_time: Time
    lag_ms: int
    sweep_time: Time
    reap_time: Time


class LaneOut(Struct):
    """
    One biz_type's lane in the event center. depth: references waiting to be read; in_flight: in
    the hands of brokers, before their moment or being called. oldest_due: when what has been there
    for longest was, or is, to be called. null: the event center is away, or there is nothing.
    rate_limit: a second, null for none. breaker: of a broker that has it open, half-open too; null
    while the event center is away. pending: tasks to be called yet, whenever. dead: failed ones.
    """

    biz_type: str
    pending: int
    dead: int
    depth: int | None
    in_flight: int | None
    oldest_due: Time | None
    max_concurrency: int
    rate_limit: float | None
    priority: int
    paused: bool
    breaker: Literal["closed", "open"] | None


class WheelOut(Struct):
    """
    now: the database's clock. brake: null where it is off. clock_jump: while hands and calls are
    held because that clock has jumped, else null. pending: tasks to be called yet, of all biz_types
    that the key sees; dead: those that failed.
    """

    now: Time
    brake: BrakeOut | None
    clock_jump: ClockJumpOut | None
    pending: int
    dead: int
    shards: list[ShardOut]
    lanes: list[LaneOut]


async def get_wheel(context: Context, request: Request) -> Response:
    """The hands, the lanes and the brake."""
    await context.registry.refresh()
    found = await shards(context.db)
    sees = actor_of(request).sees
    totals = {name: one for name, one in (await totals_now(context.db)).items() if sees(name)}
    names = [name for name in context.registry.names() if sees(name)]
    now_ms = found[0].now_ms if found else int(context.clock.now_ms())
    lanes = await lanes_out(context, names, totals, now_ms)
    brake = brake_out(context.registry.brake)
    return json_answer(
        WheelOut(
            now=format_time(now_ms),
            brake=brake,
            clock_jump=await clock_jump(context),
            pending=sum(one.pending for one in totals.values()),
            dead=sum(one.dead for one in totals.values()),
            shards=[shard_out(shard) for shard in found],
            lanes=lanes,
        )
    )


async def lanes_out(
    context: Context, names: Sequence[str], totals: Mapping[str, Total], now_ms: int
) -> list[LaneOut]:
    """The lanes of those of these biz_types that are known, each with what it holds."""
    depths: dict[str, Depth] = {}
    waits: dict[str, LaneWait] | None = None
    try:
        depths = await context.event_center.depths(names)
        waits = await context.event_center.waits(names, now_ms)
    except EventCenterUnavailable as error:
        log.warning("the lanes could not be counted: %s", error)
    known = [biz for name in names if (biz := context.registry.get(name)) is not None]
    return [
        _lane_out(biz, totals.get(biz.biz_type), depths.get(biz.biz_type), waits) for biz in known
    ]


def _lane_out(
    biz: BizType, total: Total | None, counted: Depth | None, waits: Mapping[str, LaneWait] | None
) -> LaneOut:
    depth, in_flight, first_ms = (None, None, None) if counted is None else counted
    breaker: Literal["closed", "open"] | None = None
    if waits is not None:
        wait = waits.get(biz.biz_type)
        is_open = wait is not None and wait.reason == "breaker_open"
        breaker = "open" if is_open else "closed"
    return LaneOut(
        biz_type=biz.biz_type,
        pending=0 if total is None else total.pending,
        dead=0 if total is None else total.dead,
        depth=depth,
        in_flight=in_flight,
        oldest_due=None if first_ms is None else format_time(first_ms),
        max_concurrency=biz.max_concurrency,
        rate_limit=biz.rate_limit,
        priority=biz.priority,
        paused=biz.paused,
        breaker=breaker,
    )


def shard_out(shard: Shard) -> ShardOut:
    """A shard as it is shown."""
    return ShardOut(
        shard=shard.shard,
        leader=shard.leader if shard.is_led else None,
        epoch=shard.epoch,
        closed_to=format_time(shard.closed_to_ms),
        current_time=format_time(shard.current_time_ms),
        lag_ms=shard.lag_ms,
        sweep_time=format_time(shard.sweep_time_ms),
        reap_time=format_time(shard.reap_time_ms),
    )


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/wheel",
        handler=get_wheel,
        name="getWheel",
        scope="read",
        summary="The wheel: its hands and its lanes",
        answers={200: Answer(text="The wheel", body=WheelOut)},
        problems=("overloaded",),
    ),
)
