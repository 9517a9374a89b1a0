"""What goes to a biz_type's endpoint: a test call made now, and the secret that signs the calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from starlette.responses import Response

from broker.api.bizverbs import GRACE_S_DEFAULT, RotateIn, RotateOut, existing, rotate
from broker.api.decoding import decode
from broker.api.probing import ProbeIn, ProbeOut, probe
from broker.api.problems import Refused
from broker.console.form import json_of
from broker.console.page import Page
from broker.console.pages.biz import HERE, path_of
from broker.console.visit import Visit
from wheel_timer.biz import BizTypeOut, shown
from wheel_timer.errors import FieldError, InvalidTask

_ROTATE: Final = msgspec.json.Decoder(RotateIn)


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCall:
    """The form of a test call, and what came of the last one."""

    biz: BizTypeOut
    body: str
    told: ProbeOut | None
    errors: Sequence[FieldError]
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """The form of a rotation, and what it made."""

    biz: BizTypeOut
    grace: str
    made: RotateOut | None
    errors: Sequence[FieldError]
    path: str


async def ask_test(visit: Visit) -> Response:
    """Whether it is to be called now."""
    return await _test(visit, "", None, [])


async def test(visit: Visit) -> Response:
    """Call it now. What came of it is shown here, and kept nowhere."""
    body = visit.form.get("body", "").strip()
    try:
        told = await probe(visit.context, visit.params["biz_type"], _probe_in(body))
    except InvalidTask as error:
        return await _test(visit, body, None, error.errors)
    return await _test(visit, body, told, [])


def _probe_in(body: str) -> ProbeIn:
    """Raises InvalidTask for what is no JSON."""
    if not body:
        return ProbeIn()
    errors: list[FieldError] = []
    data = json_of(body, "#/body", errors)
    if data is None:
        raise InvalidTask(errors)
    return ProbeIn(biz_data=data)


async def _test(
    visit: Visit, body: str, told: ProbeOut | None, errors: Sequence[FieldError]
) -> Response:
    biz = await _biz(visit)
    data = TestCall(biz=biz, body=body, told=told, errors=errors, path=path_of(biz.biz_type))
    return visit.render("biz-test.html", data, 422 if errors else 200)


async def ask_rotate(visit: Visit) -> Response:
    """Whether it is to sign with a new secret."""
    return await _rotation(visit, str(GRACE_S_DEFAULT), None, [])


async def make_secret(visit: Visit) -> Response:
    """Sign with a new secret. One that was made here is shown now, and never again."""
    grace, secret = visit.form.get("grace", "").strip(), visit.form.get("secret", "").strip()
    try:
        given = decode(_ROTATE, _rotate_in(grace, secret))
        made = await rotate(visit.context, visit.params["biz_type"], given, None, visit.actor)
    except InvalidTask as error:
        return await _rotation(visit, grace, None, error.errors)
    except Refused as error:
        return await _rotation(visit, grace, None, [FieldError(error.problem.detail, "#/grace")])
    return await _rotation(visit, grace, made, [])


def _rotate_in(grace: str, secret: str) -> bytes:
    """Raises InvalidTask."""
    try:
        said: dict[str, float | str] = {"grace": float(grace)}
    except ValueError:
        raise InvalidTask([FieldError("a number of seconds", "#/grace")]) from None
    return msgspec.json.encode(said | ({"secret": secret} if secret else {}))


async def _rotation(
    visit: Visit, grace: str, made: RotateOut | None, errors: Sequence[FieldError]
) -> Response:
    biz = await _biz(visit)
    data = Rotation(biz=biz, grace=grace, made=made, errors=errors, path=path_of(biz.biz_type))
    return visit.render("biz-secret.html", data, 422 if errors else 200)


async def _biz(visit: Visit) -> BizTypeOut:
    name = visit.params["biz_type"]
    await visit.context.registry.refresh()
    return shown(existing(name, visit.context.registry.get(name)))


ONE: Final = f"{HERE}/{{biz_type}}"
PAGES: Final = (
    Page(path=f"{ONE}/test", scope="operate", show=ask_test, act=test),
    Page(path=f"{ONE}/rotate-secret", scope="configure", show=ask_rotate, act=make_secret),
)
