"""Workers: reserve what is due, and report what came of it."""

from __future__ import annotations

import asyncio
import struct
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as BadBase64
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final, NoReturn, TypeVar
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from broker.api.actor import CHANGE_SCOPE, actor_of
from broker.api.bizverbs import biz_type_of
from broker.api.context import Context
from broker.api.decoding import decode
from broker.api.operation import JSON, Answer, Operation, json_answer
from broker.api.outcomes import media_type, unsupported
from broker.api.problems import Problem, Refused
from broker.api.times import START_TIME_MS_MAX, format_time
from broker.api.view import StatusName, TaskItem, Time, is_json, task_item
from broker.outcome import RELEASE_S_MAX
from wheel_timer.biz import is_biz_type
from wheel_timer.errors import FieldError, InvalidTask, NotFound
from wheel_timer.store.pull import Report, Verb
from wheel_timer.store.task import TaskRow, last_attempts
from wheel_timer.task import Claim
from wheel_timer.wheel import home_of, is_task_id

RESERVE_MAX: Final = 100
WAIT_S_MAX: Final = 30
TTR_S_DEFAULT: Final = 60
TTR_S_MAX: Final = 86_400
REASON_CHARACTERS_MAX: Final = 1_000

# version, task_id, start_time (its place), attempt, revision; then the biz_type
_CLAIM: Final = struct.Struct(">B16sqII")
_VERSION: Final = 1

TtrS = Annotated[float, Meta(ge=1, le=TTR_S_MAX, description="seconds")]
ClaimText = Annotated[str, Meta(max_length=200, description="as the reserve has returned it")]
T = TypeVar("T")


class ReserveIn(Struct, frozen=True, forbid_unknown_fields=True):
    """ttr: how long the tasks are this worker's, unless it touches them."""

    max: Annotated[int, Meta(ge=1, le=RESERVE_MAX, description="tasks at most")] = 1
    wait: Annotated[
        float, Meta(ge=0, le=WAIT_S_MAX, description="seconds to wait for the first one")
    ] = 0
    ttr: TtrS = TTR_S_DEFAULT


class ClaimToFinish(Struct, frozen=True, forbid_unknown_fields=True):
    """The claim of who holds the task."""

    claim: ClaimText


class ClaimToRelease(Struct, frozen=True, forbid_unknown_fields=True):
    """delay: seconds until the task is due again."""

    claim: ClaimText
    delay: Annotated[float, Meta(ge=0, le=RELEASE_S_MAX, description="seconds")] = 0


class ClaimToBury(Struct, frozen=True, forbid_unknown_fields=True):
    """reason: kept as the task's last_error."""

    claim: ClaimText
    reason: Annotated[str, Meta(max_length=REASON_CHARACTERS_MAX)] | None = None


class ClaimToTouch(Struct, frozen=True, forbid_unknown_fields=True):
    """ttr: from now on, in place of what is left."""

    claim: ClaimText
    ttr: TtrS = TTR_S_DEFAULT


class ReservedTask(Struct):
    """
    A task in a worker's hands. claim: shows who holds it. reserved_until: then it is due again.
    attempts counts this one; failures: reservations that ended without a word.
    """

    task_id: UUID
    biz_type: str
    biz_id: str | None
    status: StatusName
    claim: str
    reserved_until: Time
    start_time: Time
    create_time: Time
    life: int
    revision: int
    attempts: int
    failures: int
    content_type: str | None
    schedule_id: UUID | None
    traceparent: str | None
    biz_data: Raw | UnsetType = UNSET
    biz_data_base64: str | UnsetType = UNSET


class ReservedOut(Struct):
    """None where nothing came due in time."""

    tasks: list[ReservedTask]


_RESERVE: Final = msgspec.json.Decoder(ReserveIn)
_FINISH: Final = msgspec.json.Decoder(ClaimToFinish)
_RELEASE: Final = msgspec.json.Decoder(ClaimToRelease)
_BURY: Final = msgspec.json.Decoder(ClaimToBury)
_TOUCH: Final = msgspec.json.Decoder(ClaimToTouch)


async def reserve(context: Context, request: Request) -> Response:
    """What is due, for this worker alone; or nothing, after its wait."""
    name = biz_type_of(request)
    given = await _body(context, request, _RESERVE)
    gone = asyncio.create_task(_gone(request))
    try:
        claims = await context.pull.reserve(
            name, given.max, round(given.ttr * 1000), given.wait, gone
        )
    finally:
        gone.cancel()
    return json_answer(ReservedOut([_reserved(claim) for claim in claims]))


async def finish(context: Context, request: Request) -> Response:
    """Done."""
    given = await _body(context, request, _FINISH)
    return await _report(context, request, "finish", given.claim)


async def release(context: Context, request: Request) -> Response:
    """Not now."""
    given = await _body(context, request, _RELEASE)
    delay_ms = round(given.delay * 1000)
    return await _report(context, request, "release", given.claim, delay_ms)


async def bury(context: Context, request: Request) -> Response:
    """Not at all, until somebody replays it."""
    given = await _body(context, request, _BURY)
    reason = "buried" if given.reason is None else given.reason.replace("\0", "")
    return await _report(context, request, "bury", given.claim, reason=reason)


async def touch(context: Context, request: Request) -> Response:
    """Still at it."""
    given = await _body(context, request, _TOUCH)
    return await _report(context, request, "touch", given.claim, round(given.ttr * 1000))


async def _body(context: Context, request: Request, decoder: msgspec.json.Decoder[T]) -> T:
    if media_type(request) not in ("", JSON):
        raise unsupported(JSON)
    return decode(decoder, await context.bodies.read(request) or b"{}")


async def _gone(request: Request) -> None:
    """Returns when the client has closed the connection."""
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            return
        # A server that says the same body again: it has nothing else to say.
        await asyncio.Event().wait()


async def _report(
    context: Context,
    request: Request,
    verb: Verb,
    claim: str,
    delay_ms: int = 0,
    reason: str | None = None,
) -> Response:
    try:
        task_id = UUID(request.path_params["task_id"])
    except ValueError:
        raise NotFound("a task_id is a UUID") from None
    if not is_task_id(task_id) or home_of(task_id)[1] >= context.settings.shards:
        _not_found()
    said = _read_claim(claim, task_id, verb)
    said.delay_ms, said.reason = delay_ms, reason
    if not actor_of(request).sees(said.biz_type):
        _not_found()
    heard = await context.reports.report(said)
    if heard.task is None:
        _not_found()
    shown = await _shown(context, heard.task)
    if heard.verdict in ("lost", "missing"):
        detail = "it is no longer this worker's: its time was over, or the task was changed"
        raise Refused(Problem("claim-lost", detail, extra={"task": shown}))
    return json_answer(shown)


async def _shown(context: Context, row: TaskRow) -> TaskItem:
    # Only of one that waits the last attempt is told: why it does.
    last = None
    if row.next_at is not None and row.lease_until is None:
        last = (await last_attempts(context.db, [row.task_id])).get(row.task_id)
    return task_item(row, last, context.clock.now_ms())


def _not_found() -> NoReturn:
    raise NotFound("there is no such task, or its retention has ended")


def claim_text(
    task_id: UUID, start_time_ms: int, attempt: int, revision: int, biz_type: str
) -> str:
    """A claim as its worker gets it."""
    packed = _CLAIM.pack(_VERSION, task_id.bytes, start_time_ms, attempt, revision)
    return urlsafe_b64encode(packed + biz_type.encode()).decode().rstrip("=")


def _read_claim(text: str, task_id: UUID, verb: Verb) -> Report:
    """The report of who shows this claim. Raises InvalidTask: it is none, or of another task."""
    try:
        packed = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        version, of_task, start_ms, attempt, revision = _CLAIM.unpack_from(packed)
        biz_type = packed[_CLAIM.size :].decode()
    except (ValueError, BadBase64, struct.error):
        raise InvalidTask([FieldError("not a claim", "#/claim")]) from None
    is_sane = max(attempt, revision) < 2**31 and is_biz_type(biz_type)
    if version != _VERSION or of_task != task_id.bytes or not is_sane or not _is_place(start_ms):
        raise InvalidTask([FieldError("not a claim of this task", "#/claim")])
    return Report(task_id, start_ms, biz_type, verb, attempt, revision)


def _is_place(start_ms: int) -> bool:
    return 0 <= start_ms <= START_TIME_MS_MAX


def _reserved(claim: Claim) -> ReservedTask:
    shown = ReservedTask(
        task_id=claim.task_id,
        biz_type=claim.biz_type,
        biz_id=claim.biz_id,
        status="delivering",
        claim=claim_text(
            claim.task_id, claim.start_time_ms, claim.attempt, claim.revision, claim.biz_type
        ),
        reserved_until=format_time(claim.lease_until_ms),
        start_time=format_time(claim.start_time_ms),
        create_time=format_time(claim.create_time_ms),
        life=claim.life,
        revision=claim.revision,
        attempts=claim.attempt,
        failures=claim.failures,
        content_type=claim.content_type,
        schedule_id=claim.schedule_id,
        traceparent=claim.traceparent,
    )
    if claim.biz_data is not None:
        if is_json(claim.biz_data, claim.content_type):
            shown.biz_data = Raw(claim.biz_data)
        else:
            shown.biz_data_base64 = b64encode(claim.biz_data).decode()
    return shown


def _verb(
    name: str,
    handler: Callable[[Context, Request], Awaitable[Response]],
    takes: Any,
    summary: str,
    text: str,
) -> Operation:
    return Operation(
        method="POST",
        path=f"/v1/tasks/{{task_id}}/{name}",
        handler=handler,
        name=f"{name}Task",
        scope=CHANGE_SCOPE,
        summary=summary,
        text=text + " Safe to repeat. Who does not hold the task (any more) gets 409 claim-lost.",
        takes={JSON: takes},
        answers={200: Answer(text="The task, without its payload", body=TaskItem)},
        problems=("invalid-request", "not-found", "claim-lost", "too-large", "overloaded"),
    )


OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/v1/biz/{biz_type}/reserve",
        handler=reserve,
        name="reserveTasks",
        scope=CHANGE_SCOPE,
        summary="Take what is due",
        text="Of a biz_type with `delivery: pull`. What is answered is this worker's for `ttr` "
        "seconds, and nobody else's; then it is due again, and one failure is spent. As soon as "
        "anything is due it is answered, up to `max`; else after `wait` seconds, with no tasks.",
        takes={JSON: ReserveIn},
        needs_body=False,
        answers={200: Answer(text="The tasks, perhaps none", body=ReservedOut)},
        problems=("invalid-request", "not-found", "too-large", "overloaded"),
    ),
    _verb("finish", finish, ClaimToFinish, "A worker has done a task", "The task is finished."),
    _verb(
        "release",
        release,
        ClaimToRelease,
        "A worker gives a task back",
        "It is due again after `delay` seconds, for any worker; no failure is spent.",
    ),
    _verb(
        "bury",
        bury,
        ClaimToBury,
        "A worker gives a task up",
        "It is failed, with the reason, until somebody replays it.",
    ),
    _verb(
        "touch",
        touch,
        ClaimToTouch,
        "A worker needs more time",
        "The task is its for `ttr` seconds from now on.",
    ),
)
