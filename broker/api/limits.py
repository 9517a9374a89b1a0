"""GET /v1/limits: every limit that a request meets."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from broker.api.actor import ANY_SCOPE
from broker.api.apply import BIZ_TYPES_MAX
from broker.api.applying import SCHEDULES_MAX
from broker.api.batch import BATCH_TASKS_MAX
from broker.api.bizverbs import GRACE_S_MAX
from broker.api.brake import REASON_CHARACTERS_MAX
from broker.api.context import Context
from broker.api.decoding import NESTING_MAX
from broker.api.intake import BIZ_ID_BYTES_MAX, SPREAD_S_MAX
from broker.api.operation import Answer, Operation, json_answer
from broker.api.paging import LIMIT_MAX
from broker.api.pull import RESERVE_MAX, TTR_S_MAX, WAIT_S_MAX
from broker.api.scheduleverbs import COUNT_MAX
from broker.api.scheduling import NAME_PATTERN, POLICY_S_MAX
from broker.api.times import START_TIME_MS_MAX, START_TIME_MS_MIN, format_time
from broker.api.view import Time
from broker.probe import TIMEOUT_MS_MAX
from wheel_timer import biz
from wheel_timer.callback import (
    HEADER_BYTES_MAX,
    HEADERS_MAX,
    TIMEOUT_S_MAX,
    TIMEOUT_S_MIN,
    URL_CHARACTERS_MAX,
)
from wheel_timer.cron import CRON_CHARACTERS_MAX
from wheel_timer.schedule import MISSED_MAX


class LimitsOut(Struct):
    """Every limit that a request meets. *_s: seconds."""

    biz_type_pattern: str
    biz_id_bytes: int
    biz_data_bytes: Annotated[int, Meta(description="MAX_BODY")]
    request_bytes: Annotated[int, Meta(description="MAX_REQUEST; of NDJSON, one line")]
    batch_tasks: int
    nesting: int
    start_time_from: Time
    start_time_to: Time
    spread_s: Annotated[int, Meta(description="of a submit")]
    url_characters: int
    headers: int
    header_bytes: int
    timeout_s_from: float
    timeout_s_to: float
    retry_attempts: int
    retry_delay_s: int
    retry_ladder_steps: int
    policy_s: Annotated[int, Meta(description="max_age, max_past, retention")]
    max_concurrency: int
    max_pending: int
    rate_from: Annotated[float, Meta(description="a second: rate_limit, submit_rate_limit")]
    rate_to: float
    burst: int
    biz_type_spread_s: int
    callback_allow_networks: int
    apply_biz_types: int
    apply_schedules: int
    schedule_name_pattern: str
    cron_characters: int
    schedule_policy_s: Annotated[int, Meta(description="jitter, misfire_after")]
    schedule_missed: Annotated[int, Meta(description="occurrences made up for by misfire all")]
    upcoming_count: int
    reserve_tasks: int
    reserve_wait_s: int
    ttr_s: int
    secret_grace_s: int
    test_timeout_s: Annotated[float, Meta(description="of a test call")]
    pause_reason_characters: int
    list_items: int


async def get_limits(context: Context, _: Request) -> Response:
    """What this server takes."""
    return json_answer(
        LimitsOut(
            biz_type_pattern=biz.BIZ_TYPE_PATTERN,
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
            retry_attempts=biz.ATTEMPTS_MAX,
            retry_delay_s=biz.RETRY_DELAY_S_MAX,
            retry_ladder_steps=biz.LADDER_STEPS_MAX,
            policy_s=biz.POLICY_S_MAX,
            max_concurrency=biz.CONCURRENCY_MAX,
            max_pending=biz.PENDING_MAX,
            rate_from=biz.RATE_PER_S_MIN,
            rate_to=biz.RATE_PER_S_MAX,
            burst=biz.BURST_MAX,
            biz_type_spread_s=biz.SPREAD_S_MAX,
            callback_allow_networks=biz.NETWORKS_MAX,
            apply_biz_types=BIZ_TYPES_MAX,
            apply_schedules=SCHEDULES_MAX,
            schedule_name_pattern=NAME_PATTERN,
            cron_characters=CRON_CHARACTERS_MAX,
            schedule_policy_s=POLICY_S_MAX,
            schedule_missed=MISSED_MAX,
            upcoming_count=COUNT_MAX,
            reserve_tasks=RESERVE_MAX,
            reserve_wait_s=WAIT_S_MAX,
            ttr_s=TTR_S_MAX,
            secret_grace_s=GRACE_S_MAX,
            test_timeout_s=TIMEOUT_MS_MAX / 1000,
            pause_reason_characters=REASON_CHARACTERS_MAX,
            list_items=LIMIT_MAX,
        )
    )


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/limits",
        handler=get_limits,
        name="getLimits",
        scope=ANY_SCOPE,
        summary="The limits of this server",
        answers={200: Answer(text="The limits", body=LimitsOut)},
    ),
)
