"""GET and PUT /v1/clock: the test's clock; only where the server was started with --test-clock."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from broker.api.context import Context
from broker.api.decoding import decode
from broker.api.operation import JSON, Answer, Operation, json_answer
from broker.api.outcomes import media_type, unsupported
from broker.api.times import BadTime, format_time, parse_delay, parse_start_time
from broker.api.view import Time
from broker.testclock import TestClock
from wheel_timer.errors import FieldError, InvalidTask
from wheel_timer.store.testclock import Outlook

# Beyond it the way there would lead over years of empty slots for one slip of the unit.
ADVANCE_MS_MAX: Final = 366 * 86_400_000

_TIME: Final = Meta(
    extra_json_schema={"type": ["number", "string"]},
    description="epoch seconds, or RFC 3339; not with advance",
)
_SECONDS: Final = Meta(
    extra_json_schema={"type": "number", "minimum": 0}, description="seconds; not with now"
)


class ClockIn(Struct, frozen=True, forbid_unknown_fields=True):
    """Where to, and whether it stands still there; what is left out stays as it is."""

    now: Annotated[Raw | UnsetType, _TIME] = UNSET
    advance: Annotated[Raw | UnsetType, _SECONDS] = UNSET
    freeze: bool | UnsetType = UNSET


class ClockOut(Struct):
    """held: tasks that are due and not called: a pause, a breaker or a limit holds them back."""

    now: Time
    frozen: bool
    held: int


_CLOCK: Final = msgspec.json.Decoder(ClockIn)


async def get_clock(context: Context, _: Request) -> Response:
    """What the clock shows."""
    shown = await _of(context).shown()
    return json_answer(ClockOut(format_time(shown.now_ms), shown.is_frozen, 0))


async def put_clock(context: Context, request: Request) -> Response:
    """Set it, and answer when what is due by then is done."""
    if media_type(request) not in ("", JSON):
        raise unsupported(JSON)
    given = decode(_CLOCK, await context.bodies.read(request))
    to_ms, by_ms = _where(given)
    shown, found = await _of(context).move(
        to_ms=to_ms, by_ms=by_ms, freeze=None if given.freeze is UNSET else given.freeze
    )
    return json_answer(ClockOut(format_time(shown.now_ms), shown.is_frozen, _held(found)))


def _held(found: Outlook) -> int:
    return found.due + found.held + found.paused


def _of(context: Context) -> TestClock:
    assert context.test_clock is not None, "these routes exist only with it"
    return context.test_clock


def _where(given: ClockIn) -> tuple[int | None, int]:
    """(to, by) in ms. Raises InvalidTask."""
    if given.now is not UNSET and given.advance is not UNSET:
        raise _wrong("now or advance, not both", "#/advance")
    if given.now is UNSET and given.advance is UNSET and given.freeze is UNSET:
        raise _wrong("one of now, advance and freeze", "#")
    pointer = "#/now"
    try:
        if given.now is not UNSET:
            return parse_start_time(bytes(given.now)), 0
        pointer = "#/advance"
        by_ms = 0 if given.advance is UNSET else parse_delay(bytes(given.advance))
    except BadTime as error:
        raise _wrong(str(error), pointer) from None
    if by_ms > ADVANCE_MS_MAX:
        raise _wrong("at most 366 days at a time; it is in seconds", "#/advance")
    return None, by_ms


def _wrong(detail: str, pointer: str) -> InvalidTask:
    return InvalidTask([FieldError(detail, pointer)])


OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/clock",
        handler=get_clock,
        name="getClock",
        scope="read",
        summary="What the test's clock shows",
        answers={200: Answer(text="The clock", body=ClockOut)},
        problems=("overloaded",),
    ),
    Operation(
        method="PUT",
        path="/v1/clock",
        handler=put_clock,
        name="putClock",
        scope="admin",
        summary="Set the test's clock",
        text="Goes over each moment at which something is due, and answers when all of it is "
        "settled or waiting for something else. Of two moves at once one waits for the other.",
        takes={JSON: ClockIn},
        answers={200: Answer(text="The clock as it is now", body=ClockOut)},
        problems=("invalid-request", "too-large", "overloaded"),
    ),
)
