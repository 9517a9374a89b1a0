"""
GET /v1/export: every task of one day, a line each, before the reap hand takes them.

The day is that of start_time, in UTC, where a task is now: the day that the ledger counts it under.
So the lines of a day are what timer_ledger_view says of its quarter hours, less what was reaped.
Read page by page while it is sent, so a day of any length takes the memory of one page.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from broker.api.actor import actor_of
from broker.api.context import Context
from broker.api.lists import DAY_MS, items_of, query_of, read_filter
from broker.api.operation import NDJSON, Answer, Operation
from broker.api.problems import invalid
from broker.api.times import BadTime, parse_start_time
from broker.api.view import TaskItem
from wheel_timer.store.filter import Filter
from wheel_timer.store.selection import Key, select_page

PAGE_ROWS: Final = 500

log = logging.getLogger(__name__)


async def get_export(context: Context, request: Request) -> Response:
    """All lines of a day, of the biz_types that the key sees."""
    query = query_of(request)
    from_ms = _day(query.pop("day", None))
    filter_ = msgspec.structs.replace(
        read_filter(query),
        visible=actor_of(request).biz_types,
        start_from=from_ms,
        start_to=from_ms + DAY_MS,
    )
    if filter_.biz_type is not None:
        actor_of(request).check_sees(filter_.biz_type)
    pages = _pages(context, filter_)
    # Before the answer begins: a database out of reach is a problem, not an answer that breaks off.
    first = await anext(pages)
    return StreamingResponse(_sent(first, pages, request), media_type=NDJSON)


async def _pages(context: Context, filter_: Filter) -> AsyncIterator[bytes]:
    key: Key | None = Key()
    encoder = msgspec.json.Encoder()
    while key is not None:
        page = await select_page(
            context.db,
            filter_,
            key,
            PAGE_ROWS,
            now_ms=context.clock.now_ms(),
            shards=context.settings.shards,
        )
        yield encoder.encode_lines(await items_of(context, page.rows))
        key = page.key


async def _sent(
    first: bytes, pages: AsyncIterator[bytes], request: Request
) -> AsyncIterator[bytes]:
    """The pages, as long as somebody is there to read them."""
    yield first
    async for page in pages:
        if await request.is_disconnected():
            log.debug("who asked for an export has gone")
            return
        yield page


def _day(text: str | None) -> int:
    """The first moment of a day in UTC, in ms. Raises Refused."""
    if text is None or not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        raise invalid("day: a day of UTC such as 2026-01-31")
    try:
        return parse_start_time(f'"{text}T00:00:00Z"'.encode())
    except BadTime as error:
        raise invalid(f"day: {error}") from None


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/export",
        handler=get_export,
        name="exportTasks",
        scope="read",
        summary="All tasks of a day",
        text="One line a task, in order of start_time: those whose start_time, as it is now, lies "
        "in that day of UTC, in whatever state. So the lines are what timer_ledger_view counts for "
        "the quarter hours of the day, less what was reaped: export a day before the shortest "
        "retention of its tasks is over. Without payloads and attempts. Each page is read when its "
        "turn comes; a task that is moved meanwhile may be missing, or come twice. An answer that "
        "breaks off is not whole.",
        query={
            "day": ({"type": "string", "format": "date"}, "of UTC; must be given"),
            "biz_type": ({"type": "string"}, "of this biz_type"),
        },
        answers={200: Answer(text="The tasks", body=TaskItem, media_type=NDJSON)},
        problems=("invalid-request", "overloaded"),
    ),
)
