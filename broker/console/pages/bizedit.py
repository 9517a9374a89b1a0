"""A biz_type's configuration: made and changed by a form, confirmed, guarded by its version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from starlette.responses import Response

from broker.api.biz import check_reference
from broker.api.bizverbs import existing, with_patch
from broker.api.decoding import decode
from broker.console import bizform
from broker.console.bizform import FIELDS, GROUPS, Group, patch_of
from broker.console.form import OVERTAKEN, by_field, version_of, without_nones
from broker.console.page import Page
from broker.console.pages.biz import HERE, differing, path_of
from broker.console.visit import Confirmation, Visit
from wheel_timer.biz import BizType, BizTypeIn, BizTypeOut, is_biz_type, merged, shown
from wheel_timer.errors import FieldError, InvalidTask, NotFound, StaleVersion, WheelTimerError

NEW: Final = "/console/new-biz-type"
VALUE_CHARACTERS_MAX: Final = 300
_WHOLE: Final = msgspec.json.Decoder(BizTypeIn)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """
    The form. name: None where it is to be made; version: what is changed, 0 for nothing yet.
    wrong: by field, what is wrong with it; others: what belongs to no field.
    """

    name: str | None
    version: int
    groups: Sequence[Group]
    texts: Mapping[str, str]
    has_secret: bool
    wrong: Mapping[str, str]
    others: Sequence[FieldError]
    back: str


async def show_new(visit: Visit) -> Response:
    """An empty form, with the defaults."""
    return _form(visit, None, bizform.texts_of(_defaults()), [])


async def review_new(visit: Visit) -> Response:
    """Whether it is to be made so."""
    name = visit.form.get("biz_type", "").strip()
    try:
        biz = _made(visit, name)
        if visit.context.registry.get(name) is not None:
            raise InvalidTask([FieldError("it exists already", "#/biz_type")])
    except InvalidTask as error:
        return _form(visit, None, visit.form, error.errors)
    settings = differing(_defaults(name), shown(biz))
    return visit.confirm(
        Confirmation(
            title=f"Make the biz_type {name}?",
            sentences=["Tasks can be submitted for it at once. What is not named has its default."],
            facts=[(one, _cut(new)) for one, _, new in settings],
            fields=visit.form,
            button="Make it",
            back=HERE,
        )
    )


async def make(visit: Visit) -> Response:
    """Make it, where there is still none."""
    name = visit.form.get("biz_type", "").strip()

    def new(_before: BizType | None) -> BizType:
        return _made(visit, name)

    try:
        _made(visit, name)
        await visit.context.registry.change(name, new, 0, actor=visit.actor.name, action="biz.put")
    except (InvalidTask, StaleVersion) as error:
        return _form(visit, None, visit.form, _errors(error, "somebody has made it meanwhile"))
    return visit.done(path_of(name), f"{name} is made.")


async def show(visit: Visit) -> Response:
    """The form, as it is configured now."""
    biz = await _found(visit)
    return _form(visit, biz, bizform.texts_of(shown(biz)), [])


async def review(visit: Visit) -> Response:
    """What would change by it."""
    biz = await _found(visit)
    try:
        if version_of(visit.form) != biz.version:
            raise StaleVersion(OVERTAKEN)
        patch = patch_of(visit.form, shown(biz))
        check_reference(visit.actor, patch.get("on_failed"))
        after = with_patch(biz, patch)
        visit.context.registry.judge(after, biz)
    except (InvalidTask, StaleVersion) as error:
        return _form(visit, biz, visit.form, _errors(error, OVERTAKEN))
    facts = [
        (name, f"{_cut(old)} → {_cut(new)}")
        for name, old, new in differing(shown(biz), shown(after))
    ]
    if biz.secrets != after.secrets and shown(biz).secret == shown(after).secret:
        facts.append(("secret", "another one; the present one ends at once"))
    if biz.callback_headers != after.callback_headers and "callback_headers" not in dict(facts):
        facts.append(("callback_headers", "another value of a credential"))
    if not facts:
        return visit.done(path_of(biz.biz_type), "Nothing differs: it stays as it is.")
    return visit.confirm(
        Confirmation(
            title=f"Change {biz.biz_type}?",
            sentences=["It holds within two seconds at every broker, for what already waits too."],
            facts=facts,
            fields=visit.form,
            button="Change it",
            back=f"{path_of(biz.biz_type)}/edit",
        )
    )


async def change(visit: Visit) -> Response:
    """Change it, where it is still what was seen."""
    name = visit.params["biz_type"]
    biz = await _found(visit)

    def changed(before: BizType | None) -> BizType:
        stands = existing(name, before)
        return with_patch(stands, patch_of(visit.form, shown(stands)))

    try:
        check_reference(visit.actor, visit.form.get("on_failed") or None)
        await visit.context.registry.change(
            name, changed, version_of(visit.form), actor=visit.actor.name, action="biz.patch"
        )
    except (InvalidTask, StaleVersion) as error:
        return _form(visit, biz, visit.form, _errors(error, OVERTAKEN))
    return visit.done(path_of(name), f"{name} is changed: it holds within two seconds.")


def _form(
    visit: Visit, biz: BizType | None, texts: Mapping[str, str], errors: Sequence[FieldError]
) -> Response:
    wrong, others = by_field(errors, {*FIELDS, "biz_type"})
    data = Form(
        name=None if biz is None else biz.biz_type,
        version=0 if biz is None else biz.version,
        groups=GROUPS,
        texts=texts,
        has_secret=biz is not None and bool(biz.secrets),
        wrong=wrong,
        others=others,
        back=HERE if biz is None else path_of(biz.biz_type),
    )
    return visit.render("biz-form.html", data, 422 if errors else 200)


def _made(visit: Visit, name: str) -> BizType:
    """The biz_type of a form that makes one. Raises InvalidTask."""
    if not is_biz_type(name):
        detail = "a small letter or a digit, then small letters, digits, . _ -, at most 64"
        raise InvalidTask([FieldError(detail, "#/biz_type")])
    try:
        visit.actor.check_sees(name)
    except NotFound as error:
        raise InvalidTask([FieldError(str(error), "#/biz_type")]) from None
    patch = patch_of(visit.form, None)
    check_reference(visit.actor, patch.get("on_failed"))
    biz = merged(name, decode(_WHOLE, msgspec.json.encode(without_nones(patch))), None)
    visit.context.registry.judge(biz, None)
    return biz


async def _found(visit: Visit) -> BizType:
    name = visit.params["biz_type"]
    await visit.context.registry.refresh()
    return existing(name, visit.context.registry.get(name))


def _errors(error: WheelTimerError, told: str) -> Sequence[FieldError]:
    return error.errors if isinstance(error, InvalidTask) else [FieldError(told, "#")]


def _defaults(name: str = "new") -> BizTypeOut:
    given = BizTypeIn(allow_callback_override=True)
    plain = shown(merged(name, given, None))
    return msgspec.structs.replace(plain, allow_callback_override=False)


def _cut(text: str) -> str:
    return text if len(text) <= VALUE_CHARACTERS_MAX else text[:VALUE_CHARACTERS_MAX] + "…"


PAGES: Final = (
    Page(path=NEW, scope="configure", show=show_new, review=review_new, act=make),
    Page(path=f"{HERE}/{{biz_type}}/edit", scope="configure", show=show, review=review, act=change),
)
