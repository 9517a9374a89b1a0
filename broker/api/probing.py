"""POST /v1/biz/{biz_type}/test: one signed call now, and what came of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from broker.api.bizverbs import biz_type_of, existing
from broker.api.context import Context
from broker.api.decoding import decode
from broker.api.intake import TaskIn, read_task
from broker.api.operation import JSON, Answer, Operation, json_answer
from broker.api.outcomes import media_type, unsupported
from broker.api.times import format_time
from broker.api.view import Time
from broker.outcome import Dead, Finished, Outcome, Release, Retry
from broker.probe import Probed
from broker.submission import Submission
from broker.transport import Field
from wheel_timer.callback import Callback, Mark, is_write_only
from wheel_timer.task import Claim
from wheel_timer.wheel import new_task_id

# Of an answer's headers these are credentials too.
_SET_COOKIE: Final = "set-cookie"


class ProbeIn(Struct, frozen=True, forbid_unknown_fields=True):
    """What the call is to carry, as in a submit. Nothing: an empty body."""

    biz_data: Annotated[Raw | UnsetType, Meta(description="any JSON")] = UNSET
    biz_data_base64: str | None = None
    content_type: str | None = None
    callback: Annotated[
        Callback | None,
        Meta(description="only where the biz_type says allow_callback_override"),
    ] = None


class HeaderOut(Struct):
    """One header line. value: a mark where it is a credential."""

    name: str
    value: str | Mark


class SentOut(Struct):
    """The request as it went out."""

    method: str
    url: str
    headers: list[HeaderOut]
    body_bytes: int


class AnsweredOut(Struct):
    """The answer. excerpt: the beginning of its body, without control characters."""

    status: int
    headers: list[HeaderOut]
    excerpt: str


class ProbeOut(Struct):
    """
    A test call. address: the one that was called, or refused. answer: null where none came whole;
    error and error_class say why. outcome: what a task would have become by it. head_ms: until the
    answer's headers were there.
    """

    request: SentOut
    address: str | None
    answer: AnsweredOut | None
    error: str | None
    error_class: str | None
    outcome: Literal["finished", "retry", "released", "failed"]
    started_time: Time
    head_ms: int | None
    duration_ms: int
    timeout_ms: int


_PROBE: Final = msgspec.json.Decoder(ProbeIn)


async def test_biz_type(context: Context, request: Request) -> Response:
    """Make one call now, paused or not."""
    name = biz_type_of(request)
    if media_type(request) not in ("", JSON):
        raise unsupported(JSON)
    given = decode(_PROBE, await context.bodies.read(request) or b"{}")
    return json_answer(await probe(context, name, given))


async def probe(context: Context, name: str, given: ProbeIn) -> ProbeOut:
    """Make the call. Raises NotFound, InvalidTask."""
    await context.registry.refresh()
    biz = existing(name, context.registry.get(name))
    now_ms = context.clock.now_ms()
    task = TaskIn(
        biz_type=name,
        delay=Raw(b"0"),
        biz_data=given.biz_data,
        biz_data_base64=given.biz_data_base64,
        content_type=given.content_type,
        callback=given.callback,
    )
    read = read_task(task, biz, now_ms=now_ms, body_bytes_max=context.settings.max_body)
    return _probe_out(await context.prober.call(biz, _claim(read, int(now_ms))))


def _claim(read: Submission, now_ms: int) -> Claim:
    """The first attempt at a task that was submitted for now."""
    return Claim(
        task_id=new_task_id(now_ms),
        start_time_ms=now_ms,
        biz_type=read.biz_type,
        biz_id=None,
        attempt=1,
        failures=0,
        revision=1,
        life=1,
        stop=False,
        lease_until_ms=0,
        create_time_ms=now_ms,
        first_attempt_ms=now_ms,
        biz_data=read.biz_data,
        content_type=read.content_type,
        callback=None if read.callback is None else read.callback.decode(),
        retry=None,
        max_age_ms=None,
        schedule_id=None,
        traceparent=None,
        was_lost=False,
    )


def _probe_out(probed: Probed) -> ProbeOut:
    answer = probed.answer
    answered = None
    if answer.status is not None:
        answered = AnsweredOut(answer.status, _shown(probed.answer_headers), probed.excerpt)
    return ProbeOut(
        request=SentOut(probed.method, probed.url, _shown(probed.fields), len(probed.body)),
        address=probed.remote_address,
        answer=answered,
        error=answer.error,
        error_class=answer.error_class,
        outcome=_word(probed.outcome),
        started_time=format_time(int(probed.started_ms)),
        head_ms=probed.head_ms,
        duration_ms=probed.duration_ms,
        timeout_ms=probed.timeout_ms,
    )


def _shown(fields: Iterable[Field]) -> list[HeaderOut]:
    return [
        HeaderOut(name, Mark() if is_write_only(name) or name.lower() == _SET_COOKIE else value)
        for name, value in fields
    ]


def _word(outcome: Outcome) -> Literal["finished", "retry", "released", "failed"]:
    match outcome:
        case Finished():
            return "finished"
        case Release():
            return "released"
        case Dead():
            return "failed"
        case Retry():
            return "retry"
    raise AssertionError(outcome)


OPERATIONS: Final = (
    Operation(
        method="POST",
        path="/v1/biz/{biz_type}/test",
        handler=test_biz_type,
        name="testBizType",
        scope="operate",
        summary="Make one signed call now",
        text="By the same connections, address policy and signature as a callback, with the header "
        "wheel-timer-test: true; it is stored nowhere and not tried again. Made although the "
        "biz_type is paused or the brake is on. It takes 30 s at most.",
        takes={JSON: ProbeIn},
        needs_body=False,
        answers={200: Answer(text="What came of it, good or bad", body=ProbeOut)},
        problems=("not-found", "too-large", "overloaded"),
    ),
)
