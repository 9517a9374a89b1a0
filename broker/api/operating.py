"""/v1/operations: one change for all tasks that fit a filter."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Annotated, Any, Final, get_args
from uuid import UUID, uuid4

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from broker.api.actor import Actor, actor_of
from broker.api.asked import RATE_MAX, RATE_MIN, OperationIn, checked
from broker.api.context import Context
from broker.api.cursor import decode_cursor, encode_cursor
from broker.api.decoding import decode
from broker.api.operation import JSON, Answer, Operation, json_answer
from broker.api.outcomes import media_type, unsupported
from broker.api.paging import PAGING, limit_of
from broker.api.times import format_time
from broker.api.verb import read_nothing
from broker.api.view import TaskItem, Time, task_item
from wheel_timer.errors import FieldError, InvalidTask, NotFound
from wheel_timer.store import operation as store
from wheel_timer.store.filter import Filter
from wheel_timer.store.operation import Action, OperationRow, State
from wheel_timer.store.selection import Key, rows_of, select_places
from wheel_timer.store.task import last_attempts

SAMPLE_ITEMS: Final = 10
# A dry run counts so long; beyond that `matched` is a lower bound.
COUNT_S_MAX: Final = 5.0
COUNT_ROWS: Final = 500
# Partitions looked into between two looks at the time.
COUNT_PIECES: Final = 10
KEY_FIRST: Final = (1 << 53, UUID(int=(1 << 128) - 1))


class DryRunOut(Struct):
    """
    What an operation would meet now. matched is complete, unless counting took too long: then it
    is a lower bound. sample: some of the tasks.
    """

    matched: int
    complete: bool
    sample: list[TaskItem]


class OperationOut(Struct):
    """
    An operation. matched: tasks it has come by; of these done were changed, skipped were not to be
    changed any more, and errors could not be.
    """

    operation_id: UUID
    action: Action
    filter: dict[str, Any]
    set: dict[str, float] | None
    rate: float | None
    over: float | None
    state: State
    matched: int
    done: int
    skipped: int
    errors: int
    error: str | None
    actor: str
    create_time: Time
    finish_time: Time | None


class OperationsOut(Struct):
    """A page of operations, newest first. It may be short, or empty, and still have a next one."""

    items: list[OperationOut]
    next_cursor: Annotated[str | None, Meta(description="for the next page; null at the end")]


class Place(Struct, forbid_unknown_fields=True):
    """Where a page ended."""

    time_ms: Annotated[int, Meta(ge=0, le=1 << 53)]
    operation_id: UUID


_OPERATION: Final = msgspec.json.Decoder(OperationIn)


async def start_operation(context: Context, request: Request) -> Response:
    """Begin an operation, or say what it would meet."""
    if media_type(request) not in ("", JSON):
        raise unsupported(JSON)
    given = decode(_OPERATION, await context.bodies.read(request))
    actor = actor_of(request)
    if given.dry_run:
        filter_, _ = checked(given, actor)
        return json_answer(await dry_run(context, filter_))
    return begun(await begin(context, actor, given))


async def begin(context: Context, actor: Actor, given: OperationIn) -> OperationRow:
    """Begin an operation. Raises InvalidTask or NotFound."""
    filter_, shift_ms = checked(given, actor)
    rate = given.rate
    if given.over is not None:
        count = await dry_run(context, filter_)
        if not count.complete:
            detail = "too many tasks to be counted for it; give rate in its place"
            raise InvalidTask([FieldError(detail, "#/over")])
        rate = min(RATE_MAX, max(RATE_MIN, count.matched / given.over))
    return await store.create(
        context.db,
        uuid4(),
        given.action,
        filter_,
        actor=actor.name,
        recorded=msgspec.json.encode(
            {"action": given.action, "filter": _shown(filter_)}
            | ({} if shift_ms is None else {"set": {"delay": shift_ms / 1000}})
        ),
        shift_ms=shift_ms,
        rate=rate,
        over_ms=None if given.over is None else round(given.over * 1000),
    )


def begun(row: OperationRow) -> Response:
    """The answer to who began an operation."""
    location = f"/v1/operations/{row.operation_id}"
    return json_answer(operation_out(row), 202, {"Location": location})


async def get_operation(context: Context, request: Request) -> Response:
    """How far an operation is."""
    actor, operation_id = actor_of(request), request.path_params["operation_id"]
    return json_answer(await operation_of(context, actor, operation_id))


async def operation_of(context: Context, actor: Actor, operation_id: str) -> OperationOut:
    """One operation that this actor sees. Raises NotFound."""
    return operation_out(await _found(context, actor, operation_id))


async def list_operations(context: Context, request: Request) -> Response:
    """All operations, newest first."""
    query = dict(request.query_params)
    limit = limit_of(query.get("limit"))
    return json_answer(await operations_of(context, actor_of(request), query, limit))


async def operations_of(
    context: Context, actor: Actor, query: Mapping[str, str], limit: int
) -> OperationsOut:
    """A page of what this actor sees of the operations."""
    place = Place(*KEY_FIRST)
    if "cursor" in query:
        place = decode_cursor(query, query["cursor"], Place)
    rows = await store.page(context.db, place.time_ms, place.operation_id, limit + 1)
    cursor = None
    if len(rows) > limit:
        last = rows[limit - 1]
        cursor = encode_cursor(query, Place(last.create_time, last.operation_id))
    items = [operation_out(row) for row in rows[:limit] if _sees(actor, row)]
    return OperationsOut(items, cursor)


async def stop_operation(context: Context, request: Request) -> Response:
    """Stop an operation; what it has done stays."""
    await read_nothing(context, request)
    actor, operation_id = actor_of(request), request.path_params["operation_id"]
    return json_answer(await stop(context, actor, operation_id))


async def stop(context: Context, actor: Actor, operation_id: str) -> OperationOut:
    """Stop an operation that this actor sees. Raises NotFound."""
    row = await _found(context, actor, operation_id)
    await store.stop(context.db, row.operation_id, actor.name)
    return operation_out(await _found(context, actor, operation_id))


async def _found(context: Context, actor: Actor, operation_id: str) -> OperationRow:
    try:
        wanted = UUID(operation_id)
    except ValueError:
        raise NotFound("an operation_id is a UUID") from None
    row = await store.get(context.db, wanted)
    if row is None or not _sees(actor, row):
        raise NotFound("there is no such operation")
    return row


def _sees(actor: Actor, row: OperationRow) -> bool:
    """A narrowed key sees its own operations, and those on a biz_type that it sees."""
    biz_type = row.filter.biz_type
    return (
        not actor.is_narrowed
        or row.actor == actor.name
        or (biz_type is not None and actor.sees(biz_type))
    )


async def dry_run(context: Context, filter_: Filter, count_s_max: float | None = None) -> DryRunOut:
    """What an operation would meet now, as far as it is counted in that time (COUNT_S_MAX)."""
    count_s_max = COUNT_S_MAX if count_s_max is None else count_s_max
    began_s = time.monotonic()
    now_ms = context.clock.now_ms()
    first: list[UUID] = []
    matched = 0
    key: Key | None = Key()
    while key is not None and time.monotonic() - began_s < count_s_max:
        page = await select_places(
            context.db,
            filter_,
            key,
            COUNT_ROWS,
            now_ms=now_ms,
            shards=context.settings.shards,
            pieces_max=COUNT_PIECES,
        )
        matched += page.rows
        for part in page.parts:
            if len(first) < SAMPLE_ITEMS:
                first += part.ids()[: SAMPLE_ITEMS - len(first)]
        key = page.key
    rows = await rows_of(context.db, first)
    last = await last_attempts(context.db, first)
    items = [
        task_item(rows[task_id], last.get(task_id), now_ms) for task_id in first if task_id in rows
    ]
    return DryRunOut(matched, key is None, items)


def operation_out(row: OperationRow) -> OperationOut:
    """An operation as it is shown."""
    return OperationOut(
        operation_id=row.operation_id,
        action=row.action,
        filter=_shown(row.filter),
        set=None if row.shift_ms is None else {"delay": row.shift_ms / 1000},
        rate=row.rate,
        over=None if row.over_ms is None else row.over_ms / 1000,
        state=row.state,
        matched=row.matched,
        done=row.done,
        skipped=row.skipped,
        errors=row.errors,
        error=row.error,
        actor=row.actor,
        create_time=format_time(row.create_time),
        finish_time=None if row.finish_time is None else format_time(row.finish_time),
    )


def _shown(filter_: Filter) -> dict[str, Any]:
    """A filter as it is shown: what was given, times as texts."""
    members: dict[str, Any] = msgspec.to_builtins(filter_)
    members.pop("visible", None)
    for name in ("start_from", "start_to", "finish_from", "finish_to"):
        if name in members:
            members[name] = format_time(members[name])
    return members


LOCATION: Final = {"Location": "the operation"}

OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/v1/operations",
        handler=start_operation,
        name="startOperation",
        scope="operate",
        summary="Change all tasks that fit a filter",
        text="Done in chunks by the daemon, which goes on after any restart. Meant is what was "
        "there when it was asked for: what is submitted, moved or replayed later is left alone. "
        "What becomes due by it queues behind first attempts. Actions: "
        + ", ".join(f"`{action}`" for action in get_args(Action))
        + ".",
        takes={JSON: OperationIn},
        answers={
            202: Answer(text="It is under way", body=OperationOut, headers=LOCATION),
            200: Answer(text="dry_run: what it would meet now", body=DryRunOut),
        },
        problems=("invalid-request", "not-found", "too-large", "overloaded"),
    ),
    Operation(
        method="GET",
        path="/v1/operations",
        handler=list_operations,
        name="listOperations",
        scope="read",
        summary="Operations, newest first",
        query=dict(PAGING),
        answers={200: Answer(text="A page", body=OperationsOut)},
        problems=("invalid-request", "overloaded"),
    ),
    Operation(
        method="GET",
        path="/v1/operations/{operation_id}",
        handler=get_operation,
        name="getOperation",
        scope="read",
        summary="An operation, and how far it is",
        answers={200: Answer(text="The operation", body=OperationOut)},
        problems=("not-found", "overloaded"),
    ),
    Operation(
        method="DELETE",
        path="/v1/operations/{operation_id}",
        handler=stop_operation,
        name="stopOperation",
        scope="operate",
        summary="Stop an operation",
        text="What it has changed stays changed. One that has ended stays as it is.",
        answers={200: Answer(text="The operation", body=OperationOut)},
        problems=("not-found", "invalid-request", "overloaded"),
    ),
)
