"""/v1/operations: one change for all tasks that fit a filter."""

from __future__ import annotations

import time
from typing import Annotated, Any, Final, get_args
from uuid import UUID, uuid4

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from broker.api.actor import Actor, actor_of
from broker.api.context import Context
from broker.api.cursor import decode_cursor, encode_cursor
from broker.api.decoding import decode
from broker.api.intake import is_biz_id
from broker.api.operation import JSON, Answer, Operation, json_answer
from broker.api.outcomes import media_type, unsupported
from broker.api.paging import PAGING, limit_of
from broker.api.times import BadTime, format_time, parse_delay, parse_start_time
from broker.api.verb import read_nothing
from broker.api.view import TaskItem, Time, task_item
from wheel_timer.biz import BIZ_TYPE_PATTERN, is_biz_type
from wheel_timer.errors import FieldError, InvalidTask, NotFound
from wheel_timer.store import operation as store
from wheel_timer.store.filter import Filter, StatusWord
from wheel_timer.store.operation import Action, OperationRow, State
from wheel_timer.store.selection import Key, rows_of, select_places
from wheel_timer.store.task import last_attempts

RATE_MIN: Final = 0.01
RATE_MAX: Final = 100_000.0
OVER_S_MAX: Final = 2_592_000.0
SAMPLE_ITEMS: Final = 10
# A dry run counts so long; beyond that `matched` is a lower bound.
COUNT_S_MAX: Final = 5.0
COUNT_ROWS: Final = 500
KEY_FIRST: Final = (1 << 53, UUID(int=(1 << 128) - 1))

# Which states an action is for; the first is meant where the filter names none.
STATUSES: Final[dict[Action, tuple[StatusWord, ...]]] = {
    "cancel": ("pending", "delivering", "failed"),
    "shift": ("pending",),
    "run": ("pending",),
    "replay": ("failed", "finished", "cancelled"),
    "purge": ("pending", "finished", "failed", "cancelled"),
}

_MOMENT: Final = {"type": ["number", "string", "null"]}


class WhichIn(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Which tasks. Times are epoch seconds or RFC 3339; an interval holds its beginning only."""

    biz_type: Annotated[
        str | None, Meta(extra_json_schema={"pattern": f"^{BIZ_TYPE_PATTERN}$"})
    ] = None
    status: Annotated[
        StatusWord | None, Meta(description="where left out, the states that the action is for")
    ] = None
    start_from: Annotated[Raw | UnsetType, Meta(extra_json_schema=_MOMENT)] = UNSET
    start_to: Annotated[Raw | UnsetType, Meta(extra_json_schema=_MOMENT)] = UNSET
    finish_from: Annotated[Raw | UnsetType, Meta(extra_json_schema=_MOMENT)] = UNSET
    finish_to: Annotated[Raw | UnsetType, Meta(extra_json_schema=_MOMENT)] = UNSET
    http_status: Annotated[int, Meta(ge=100, le=599)] | None = None
    biz_id_prefix: Annotated[str | None, Meta(description="needs biz_type")] = None
    schedule_id: UUID | None = None


class SetIn(Struct, forbid_unknown_fields=True):
    """What a shift sets."""

    delay: Annotated[
        Raw,
        Meta(
            description="seconds by which every start_time is moved; negative: earlier",
            extra_json_schema={"type": "number"},
        ),
    ]


class OperationIn(Struct, forbid_unknown_fields=True):
    """
    One change for all tasks that fit. cancel: pending ones (those being delivered or failed where
    the filter's status says so). shift: moves pending ones by set.delay. run: pending ones now.
    replay: failed ones, or others the filter names. purge: deletes what nobody is calling.
    """

    action: Action
    filter: WhichIn = msgspec.field(default_factory=WhichIn)
    set: SetIn | None = None
    rate: (
        Annotated[float, Meta(ge=RATE_MIN, le=RATE_MAX, description="tasks a second, at most")]
        | None
    ) = None
    over: (
        Annotated[float, Meta(ge=1, le=OVER_S_MAX, description="seconds to spread the tasks over")]
        | None
    ) = None
    dry_run: Annotated[bool, Meta(description="only say what is meant")] = False
    all: Annotated[bool, Meta(description="needed where the filter is empty")] = False


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
    filter_, shift_ms = _checked(given, actor)
    if given.dry_run:
        return json_answer(await _dry_run(context, filter_))
    rate = given.rate
    if given.over is not None:
        count = await _dry_run(context, filter_)
        if not count.complete:
            detail = "too many tasks to be counted for it; give rate in its place"
            raise InvalidTask([FieldError(detail, "#/over")])
        rate = min(RATE_MAX, max(RATE_MIN, count.matched / given.over))
    row = await store.create(
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
    return begun(row)


def begun(row: OperationRow) -> Response:
    """The answer to who began an operation."""
    location = f"/v1/operations/{row.operation_id}"
    return json_answer(_operation_out(row), 202, {"Location": location})


async def get_operation(context: Context, request: Request) -> Response:
    """How far an operation is."""
    return json_answer(_operation_out(await _found(context, request)))


async def list_operations(context: Context, request: Request) -> Response:
    """All operations, newest first."""
    query = dict(request.query_params)
    limit = limit_of(query.get("limit"))
    place = Place(*KEY_FIRST)
    if "cursor" in query:
        place = decode_cursor(query, query["cursor"], Place)
    rows = await store.page(context.db, place.time_ms, place.operation_id, limit + 1)
    actor = actor_of(request)
    cursor = None
    if len(rows) > limit:
        last = rows[limit - 1]
        cursor = encode_cursor(query, Place(last.create_time, last.operation_id))
    items = [_operation_out(row) for row in rows[:limit] if _sees(actor, row)]
    return json_answer(OperationsOut(items, cursor))


async def stop_operation(context: Context, request: Request) -> Response:
    """Stop an operation; what it has done stays."""
    await read_nothing(context, request)
    row = await _found(context, request)
    await store.stop(context.db, row.operation_id, actor_of(request).name)
    return json_answer(_operation_out(await _found(context, request)))


async def _found(context: Context, request: Request) -> OperationRow:
    try:
        operation_id = UUID(request.path_params["operation_id"])
    except ValueError:
        raise NotFound("an operation_id is a UUID") from None
    row = await store.get(context.db, operation_id)
    if row is None or not _sees(actor_of(request), row):
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


def _checked(given: OperationIn, actor: Actor) -> tuple[Filter, int | None]:
    """The filter that is meant, and the ms of a shift. Raises InvalidTask with every fault."""
    errors: list[FieldError] = []
    members: dict[str, Any] = {"visible": actor.biz_types}
    wanted = given.filter
    for name in ("start_from", "start_to", "finish_from", "finish_to"):
        raw: Raw | UnsetType = getattr(wanted, name)
        if raw is not UNSET and bytes(raw) != b"null":
            try:
                members[name] = parse_start_time(bytes(raw))
            except BadTime as error:
                errors.append(FieldError(str(error), f"#/filter/{name}"))
    if wanted.biz_type is not None:
        if not is_biz_type(wanted.biz_type):
            errors.append(FieldError("not a biz_type", "#/filter/biz_type"))
        members["biz_type"] = wanted.biz_type
    if wanted.biz_id_prefix is not None:
        if not is_biz_id(wanted.biz_id_prefix):
            detail = "1-256 UTF-8 bytes without control characters"
            errors.append(FieldError(detail, "#/filter/biz_id_prefix"))
        if wanted.biz_type is None:
            errors.append(FieldError("needs biz_type beside it", "#/filter/biz_id_prefix"))
        members["biz_id_prefix"] = wanted.biz_id_prefix
    members["http_status"], members["schedule_id"] = wanted.http_status, wanted.schedule_id
    statuses = STATUSES[given.action]
    if wanted.status is not None and wanted.status not in statuses:
        detail = f"{given.action} is for tasks that are {' or '.join(statuses)}"
        errors.append(FieldError(detail, "#/filter/status"))
    # What is purged may be in any state; of every other action the first is meant.
    members["status"] = wanted.status
    if wanted.status is None and given.action != "purge":
        members["status"] = statuses[0]
    for what in ("start", "finish"):
        low, end = members.get(f"{what}_from"), members.get(f"{what}_to")
        if low is not None and end is not None and end < low:
            errors.append(FieldError(f"lies before {what}_from", f"#/filter/{what}_to"))
    is_empty = wanted == WhichIn()
    if is_empty and not given.all:
        detail = "an empty filter means every task there is: say so with all: true"
        errors.append(FieldError(detail, "#/filter"))
    if given.all and not is_empty:
        errors.append(FieldError("goes with an empty filter only", "#/all"))
    if given.rate is not None and given.over is not None:
        errors.append(FieldError("rate or over, not both", "#/over"))
    shift_ms = None
    if (given.action == "shift") != (given.set is not None):
        detail = "a shift needs it: {delay}" if given.set is None else "goes with shift only"
        errors.append(FieldError(detail, "#/set"))
    elif given.set is not None:
        try:
            shift_ms = _shift_ms(bytes(given.set.delay))
        except BadTime as error:
            errors.append(FieldError(str(error), "#/set/delay"))
    if errors:
        raise InvalidTask(errors)
    if wanted.biz_type is not None:
        actor.check_sees(wanted.biz_type)
    return Filter(**members), shift_ms


def _shift_ms(raw: bytes) -> int:
    """The delay of a shift, in ms, either way; fractions are rounded away from zero."""
    is_earlier = raw.startswith(b"-")
    delay_ms = parse_delay(raw.removeprefix(b"-"))
    if delay_ms == 0:
        raise BadTime("a shift by nothing")
    return -delay_ms if is_earlier else delay_ms


async def _dry_run(context: Context, filter_: Filter) -> DryRunOut:
    began_s = time.monotonic()
    now_ms = context.clock.now_ms()
    first: list[UUID] = []
    matched = 0
    key: Key | None = Key()
    while key is not None and time.monotonic() - began_s < COUNT_S_MAX:
        page = await select_places(
            context.db, filter_, key, COUNT_ROWS, now_ms=now_ms, shards=context.settings.shards
        )
        matched += len(page.found)
        first += [found.task_id for found in page.found[: SAMPLE_ITEMS - len(first)]]
        key = page.key
    rows = await rows_of(context.db, first)
    last = await last_attempts(context.db, first)
    items = [
        task_item(rows[task_id], last.get(task_id), now_ms) for task_id in first if task_id in rows
    ]
    return DryRunOut(matched, key is None, items)


def _operation_out(row: OperationRow) -> OperationOut:
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
