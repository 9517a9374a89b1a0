"""API keys: listed, made, rotated, revoked. A key is shown once, on the page that made it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from broker.api.actor import SCOPES
from broker.api.decoding import decode
from broker.api.keys import KeyIn, KeyMade, KeyOut, RotateIn, key_of, keys_of, make, revoke, rotate
from broker.api.paging import after_of
from broker.console.page import Page
from broker.console.visit import Confirmation, Visit
from wheel_timer.errors import FieldError, Forbidden, InvalidTask

HERE: Final = "/console/keys"
NEW: Final = "/console/new-key"
ROWS: Final = 25
SCOPE_FIELD: Final = "scope."
OVERLAP_S_DEFAULT: Final = 86_400
_KEY: Final = msgspec.json.Decoder(KeyIn)
_ROTATE: Final = msgspec.json.Decoder(RotateIn)
_MEANINGS: Final[Mapping[str, str]] = {
    "submit": "submit tasks, change and cancel them",
    "read": "see tasks, figures, configuration",
    "operate": "replay, purge, pause, run operations",
    "configure": "biz_types and schedules",
    "admin": "keys, and everything that was changed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Keys:
    """A page of keys."""

    items: Sequence[KeyOut]
    onward: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The form of a new key. made: what came of it."""

    scopes: Sequence[tuple[str, str]]
    texts: Mapping[str, str]
    errors: Sequence[FieldError]
    made: KeyMade | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotation:
    """The form of a rotation. made: what came of it."""

    key: KeyOut
    overlap: str
    errors: Sequence[FieldError]
    made: KeyMade | None


async def show(visit: Visit) -> Response:
    """All keys that this one may manage."""
    cursor = visit.query.get("cursor")
    found = await keys_of(visit.context, visit.actor, after_of(cursor), ROWS)
    onward = None
    if found.next_cursor is not None:
        onward = f"{HERE}?{urlencode({'cursor': found.next_cursor})}"
    return visit.render("keys.html", Keys(items=found.items, onward=onward))


async def ask_new(visit: Visit) -> Response:
    """What the key is to be."""
    own = visit.actor.biz_types
    return _form(visit, {"biz_types": " ".join(own) if own else "*"}, [], None)


async def review_new(visit: Visit) -> Response:
    """Whether it is meant."""
    try:
        given = _given(visit.form)
    except InvalidTask as error:
        return _form(visit, visit.form, error.errors, None)
    return visit.confirm(
        Confirmation(
            title=f"Make the key {given.name}?",
            sentences=["It holds at once, and is shown once, on the page that follows."],
            facts=[
                ("May", "; ".join(_MEANINGS[scope] for scope in given.scopes)),
                ("Of the biz_types", "all" if given.biz_types == ("*",) else _words(given)),
                ("Ends by itself", visit.form.get("expires") or "never"),
            ],
            fields=visit.form,
            button="Make the key",
            back=HERE,
        )
    )


async def make_key(visit: Visit) -> Response:
    """Make it, and show it: the only time."""
    try:
        made = await make(visit.context, visit.actor, _given(visit.form))
    except InvalidTask as error:
        return _form(visit, visit.form, error.errors, None)
    except Forbidden as error:
        return _form(visit, visit.form, [FieldError(str(error), "#/biz_types")], None)
    return _form(visit, {}, [], made)


async def ask_rotate(visit: Visit) -> Response:
    """Whether it is to have a new secret."""
    return await _rotation(visit, str(OVERLAP_S_DEFAULT), [], None)


async def rotate_key(visit: Visit) -> Response:
    """Give it one, and show the key: the only time."""
    overlap = visit.form.get("overlap", "").strip()
    try:
        given = decode(_ROTATE, msgspec.json.encode({"overlap": _seconds(overlap)}))
    except InvalidTask as error:
        return await _rotation(visit, overlap, error.errors, None)
    made = await rotate(visit.context, visit.actor, visit.params["key_id"], given)
    return await _rotation(visit, overlap, [], made)


async def ask_revoke(visit: Visit) -> Response:
    """Whether it is to end."""
    key = await key_of(visit.context, visit.actor, visit.params["key_id"])
    return visit.confirm(
        Confirmation(
            title=f"Revoke the key {key.name}?",
            sentences=[
                "Within two seconds no broker takes it any more, and sessions of this console that"
                " it has opened end. It cannot be taken back."
            ],
            facts=[("Key", key.key_id), ("May", ", ".join(key.scopes))],
            button="Revoke it",
            back=HERE,
            is_danger=True,
        )
    )


async def revoke_key(visit: Visit) -> Response:
    """End it."""
    key = await revoke(visit.context, visit.actor, visit.params["key_id"])
    return visit.done(HERE, f"The key {key.name} is revoked.")


def _given(form: Mapping[str, str]) -> KeyIn:
    """The key that a form asks for. Raises InvalidTask."""
    said: dict[str, Any] = {
        "name": form.get("name", "").strip(),
        "scopes": [scope for scope in SCOPES if SCOPE_FIELD + scope in form],
        "biz_types": form.get("biz_types", "").replace(",", " ").split() or ["*"],
    }
    if not said["scopes"]:
        raise InvalidTask([FieldError("at least one", "#/scopes")])
    if expires := form.get("expires", "").strip():
        said["expires"] = _utc(expires)
    return decode(_KEY, msgspec.json.encode(said))


def _utc(text: str) -> str:
    """A moment of a form, in UTC where it does not say otherwise. Raises InvalidTask."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidTask([FieldError("not a moment: 2026-12-01T09:00", "#/expires")]) from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat()


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidTask([FieldError("a number of seconds", "#/overlap")]) from None


def _words(given: KeyIn) -> str:
    return ", ".join(given.biz_types)


def _form(
    visit: Visit, texts: Mapping[str, str], errors: Sequence[FieldError], made: KeyMade | None
) -> Response:
    scopes = [(scope, _MEANINGS[scope]) for scope in SCOPES]
    data = Form(scopes=scopes, texts=texts, errors=errors, made=made)
    return visit.render("key-form.html", data, 422 if errors else 200)


async def _rotation(
    visit: Visit, overlap: str, errors: Sequence[FieldError], made: KeyMade | None
) -> Response:
    key = await key_of(visit.context, visit.actor, visit.params["key_id"])
    data = Rotation(key=key, overlap=overlap, errors=errors, made=made)
    return visit.render("key-rotate.html", data, 422 if errors else 200)


PAGES: Final = (
    Page(path=HERE, scope="admin", show=show, menu="Keys"),
    Page(path=NEW, scope="admin", show=ask_new, review=review_new, act=make_key),
    Page(path=f"{HERE}/{{key_id}}/rotate", scope="admin", show=ask_rotate, act=rotate_key),
    Page(path=f"{HERE}/{{key_id}}/revoke", scope="admin", show=ask_revoke, act=revoke_key),
)
