"""
The brake of the whole wheel: while it is on, no new callback starts anywhere; submits go on.

It stands in Postgres, so it survives every restart, and reaches each broker by the clock's pulse,
within two seconds.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from broker.api.actor import Actor, actor_of
from broker.api.context import Context
from broker.api.decoding import decode
from broker.api.operation import JSON, Answer, Operation, json_answer
from broker.api.outcomes import media_type, unsupported
from broker.api.times import format_time
from broker.api.verb import read_nothing
from broker.api.view import Time
from wheel_timer.errors import FieldError, Forbidden, InvalidTask
from wheel_timer.store.brake import Brake

REASON_CHARACTERS_MAX: Final = 500


class PauseIn(Struct, frozen=True, forbid_unknown_fields=True):
    """Why nothing is to be called: whoever finds the wheel paused reads it."""

    reason: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=REASON_CHARACTERS_MAX,
            description="printable, not only spaces",
        ),
    ]


class BrakeOut(Struct):
    """The brake that is on: why, since when, and by whom."""

    reason: str
    since: Time
    actor: str


class BrakeStateOut(Struct):
    """brake: null where it is off."""

    brake: BrakeOut | None


_PAUSE: Final = msgspec.json.Decoder(PauseIn)


def brake_out(brake: Brake | None) -> BrakeOut | None:
    """The brake as it is shown."""
    if brake is None:
        return None
    return BrakeOut(brake.reason, format_time(brake.since_ms), brake.actor)


async def pause_wheel(context: Context, request: Request) -> Response:
    """Put the brake on, or give it another reason."""
    check_sees_all(actor_of(request))
    if media_type(request) not in ("", JSON):
        raise unsupported(JSON)
    reason = reason_of(decode(_PAUSE, await context.bodies.read(request)).reason)
    brake = await context.registry.pull_brake(reason, actor=actor_of(request).name)
    return json_answer(BrakeStateOut(brake_out(brake)))


async def resume_wheel(context: Context, request: Request) -> Response:
    """Take the brake off."""
    check_sees_all(actor_of(request))
    await read_nothing(context, request)
    brake = await context.registry.pull_brake(None, actor=actor_of(request).name)
    return json_answer(BrakeStateOut(brake_out(brake)))


def reason_of(text: str) -> str:
    """A reason as it is kept. Raises InvalidTask."""
    reason = text.strip()
    if not reason or not reason.isprintable() or len(reason) > REASON_CHARACTERS_MAX:
        detail = f"1 to {REASON_CHARACTERS_MAX} printable characters, not only spaces"
        raise InvalidTask([FieldError(detail, "#/reason")])
    return reason


def check_sees_all(actor: Actor) -> None:
    """Raises Forbidden where the brake is not for this actor to pull."""
    if actor.is_narrowed:
        raise Forbidden("the brake stops everybody's calls; this key is narrowed to some biz_types")


OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/v1/wheel/pause",
        handler=pause_wheel,
        name="pauseWheel",
        scope="operate",
        summary="Put the brake on: nothing new is called",
        text="Holds within two seconds at every broker, and over restarts. Calls under way end, "
        "submits go on. Safe to repeat; another reason takes the place of the one there is.",
        takes={JSON: PauseIn},
        answers={200: Answer(text="The brake is on", body=BrakeStateOut)},
        problems=("too-large", "overloaded"),
    ),
    Operation(
        method="POST",
        path="/v1/wheel/resume",
        handler=resume_wheel,
        name="resumeWheel",
        scope="operate",
        summary="Take the brake off",
        text="What came due meanwhile is called now. Safe to repeat.",
        answers={200: Answer(text="The brake is off", body=BrakeStateOut)},
        problems=("overloaded",),
    ),
)
