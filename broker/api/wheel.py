"""GET of what operators look at: the wheel, the limits, the audits."""

from __future__ import annotations

import logging
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from broker.api.actor import ANY_SCOPE, Actor, actor_of
from broker.api.batch import BATCH_TASKS_MAX
from broker.api.brake import BrakeOut, brake_out
from broker.api.context import Context
from broker.api.decoding import NESTING_MAX
from broker.api.intake import BIZ_ID_BYTES_MAX, SPREAD_S_MAX
from broker.api.operation import Answer, Operation, json_answer
from broker.api.paging import LIMIT_MAX
from broker.api.times import START_TIME_MS_MAX, START_TIME_MS_MIN, format_time
from broker.api.view import Time
from wheel_timer.biz import (
    ATTEMPTS_MAX,
    BIZ_TYPE_PATTERN,
    CONCURRENCY_MAX,
    POLICY_S_MAX,
    RETRY_DELAY_S_MAX,
)
from wheel_timer.callback import (
    HEADER_BYTES_MAX,
    HEADERS_MAX,
    TIMEOUT_S_MAX,
    TIMEOUT_S_MIN,
    URL_CHARACTERS_MAX,
)
from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.store.audit import Audit, run_audits
from wheel_timer.store.wheel import Shard, shards

AUDIT_ROWS_MAX: Final = 1000

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
    the hands of brokers, before their moment or being called. null: the event center is away.
    """

    biz_type: str
    depth: int | None
    in_flight: int | None
    max_concurrency: int


class WheelOut(Struct):
    """now: the database's clock. brake: null where it is off."""

    now: Time
    brake: BrakeOut | None
    shards: list[ShardOut]
    lanes: list[LaneOut]


class LimitsOut(Struct):
    """Every limit that a request meets."""

    biz_type_pattern: str
    biz_id_bytes: int
    biz_data_bytes: Annotated[int, Meta(description="MAX_BODY")]
    request_bytes: Annotated[int, Meta(description="MAX_REQUEST; of NDJSON, one line")]
    batch_tasks: int
    nesting: int
    start_time_from: Time
    start_time_to: Time
    spread_s: int
    url_characters: int
    headers: int
    header_bytes: int
    timeout_s_from: float
    timeout_s_to: float
    retry_attempts: int
    retry_delay_s: int
    policy_s: Annotated[int, Meta(description="max_age, max_past, retention")]
    max_concurrency: int
    list_items: int


class AuditOut(Struct):
    """
    One audit. A violation's rows are wrong, each of them; a report's rows are figures. holds:
    false where a violation has rows.
    """

    name: str
    kind: Literal["violation", "report"]
    holds: bool
    columns: list[str]
    rows: Annotated[list[list[Any]], Meta(description=f"the first {AUDIT_ROWS_MAX}")]


class AuditsOut(Struct):
    """holds: whether every audit does."""

    holds: bool
    items: list[AuditOut]


async def get_wheel(context: Context, request: Request) -> Response:
    """The hands, the lanes and the brake."""
    await context.registry.refresh()
    found = await shards(context.db)
    names = [name for name in context.registry.names() if actor_of(request).sees(name)]
    try:
        depths = await context.event_center.depths(names)
    except EventCenterUnavailable as error:
        log.warning("the lanes could not be counted: %s", error)
        depths = {}
    lanes = []
    for name in names:
        biz = context.registry.get(name)
        depth, in_flight = depths.get(name, (None, None))
        lanes.append(LaneOut(name, depth, in_flight, biz.max_concurrency if biz else 0))
    now_ms = found[0].now_ms if found else int(context.clock.now_ms())
    brake = brake_out(context.registry.brake)
    return json_answer(WheelOut(format_time(now_ms), brake, [_shard_out(s) for s in found], lanes))


async def get_limits(context: Context, _: Request) -> Response:
    """What this server takes."""
    return json_answer(
        LimitsOut(
            biz_type_pattern=BIZ_TYPE_PATTERN,
            biz_id_bytes=BIZ_ID_BYTES_MAX,
            biz_data_bytes=context.settings.max_body,
            request_bytes=context.settings.max_request,
            batch_tasks=BATCH_TASKS_MAX,
            nesting=NESTING_MAX,
            start_time_from=format_time(START_TIME_MS_MIN),
            start_time_to=format_time(START_TIME_MS_MAX),
            spread_s=SPREAD_S_MAX,
            url_characters=URL_CHARACTERS_MAX,
            headers=HEADERS_MAX,
            header_bytes=HEADER_BYTES_MAX,
            timeout_s_from=TIMEOUT_S_MIN,
            timeout_s_to=TIMEOUT_S_MAX,
            retry_attempts=ATTEMPTS_MAX,
            retry_delay_s=RETRY_DELAY_S_MAX,
            policy_s=POLICY_S_MAX,
            max_concurrency=CONCURRENCY_MAX,
            list_items=LIMIT_MAX,
        )
    )


async def get_audits(context: Context, request: Request) -> Response:
    """Run every audit now, on the database."""
    actor = actor_of(request)
    items = []
    for audit in await run_audits(context.db):
        rows = _seen(audit, actor)
        holds = audit.kind != "violation" or not rows
        shown = [list(row) for row in rows[:AUDIT_ROWS_MAX]]
        items.append(AuditOut(audit.name, audit.kind, holds, list(audit.columns), shown))
    return json_answer(AuditsOut(all(item.holds for item in items), items))


def _seen(audit: Audit, actor: Actor) -> list[tuple[Any, ...]]:
    """An audit's rows; for a narrowed key those of its biz_types, where they tell theirs."""
    if not actor.is_narrowed:
        return audit.rows
    if "biz_type" not in audit.columns:
        return []
    place = audit.columns.index("biz_type")
    return [row for row in audit.rows if row[place] is not None and actor.sees(row[place])]


def _shard_out(shard: Shard) -> ShardOut:
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
    Operation(
        method="GET",
        path="/v1/limits",
        handler=get_limits,
        name="getLimits",
        scope=ANY_SCOPE,
        summary="The limits of this server",
        answers={200: Answer(text="The limits", body=LimitsOut)},
    ),
    Operation(
        method="GET",
        path="/v1/audits",
        handler=get_audits,
        name="getAudits",
        scope="read",
        summary="Run the audits",
        text="They read the database in bounded time and change nothing. A key that is narrowed to "
        "some biz_types gets the rows that are theirs.",
        answers={200: Answer(text="What they found", body=AuditsOut)},
        problems=("overloaded",),
    ),
)
