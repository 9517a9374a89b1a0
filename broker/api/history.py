"""What was changed, by whom: the versions of a biz_type, and every change by the API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from broker.api.actor import Actor, actor_of
from broker.api.bizverbs import biz_type_of
from broker.api.context import Context
from broker.api.cursor import decode_cursor, encode_cursor
from broker.api.operation import Answer, Operation, json_answer
from broker.api.paging import PAGING, limit_of
from broker.api.problems import invalid
from broker.api.times import BadTime, format_time, parse_start_time
from broker.api.view import Time
from wheel_timer.biz import BizTypeOut
from wheel_timer.errors import NotFound
from wheel_timer.store.history import NEWEST, Change, Key, Version, biz_history, changes

# A page looks at so many changes; few may fit the query.
LOOK_ROWS: Final = 1000
LOOKS_MAX: Final = 10
WORD_CHARACTERS_MAX: Final = 256

_NUMBER: Final = re.compile(r"\d{1,15}(\.\d{1,9})?", re.ASCII)
# A plus sign that was not percent-encoded arrives as a space.
_LOST_PLUS: Final = re.compile(r" (\d\d:\d\d)$", re.ASCII)


class VersionOut(Struct):
    """A version of a biz_type, and whose doing it was. biz_type: null where it was deleted."""

    version: int
    time: Time
    actor: str
    action: str
    biz_type: BizTypeOut | None


class HistoryOut(Struct):
    """A page of versions, newest first."""

    items: list[VersionOut]
    next_cursor: Annotated[str | None, Meta(description="for the next page; null at the end")]


class ChangeOut(Struct):
    """
    A change by the API. object: a biz_type, a task_id, `wheel`, ...; the action says which. old,
    new: what differs, without secrets and payloads; null where there is no such side.
    """

    change_id: int
    time: Time
    actor: str
    action: str
    object: str
    old: Any
    new: Any


class ChangesOut(Struct):
    """A page of changes, newest first. It may be short, or empty, and still have a next one."""

    items: list[ChangeOut]
    next_cursor: Annotated[str | None, Meta(description="for the next page; null at the end")]


async def get_history(context: Context, request: Request) -> Response:
    """The versions of one biz_type."""
    name, query = biz_type_of(request), _query(request)
    return json_answer(await history_of(context, name, query, limit_of(query.get("limit"))))


async def history_of(
    context: Context, name: str, query: Mapping[str, str], limit: int
) -> HistoryOut:
    """A page of versions, from the query's cursor on. Raises NotFound."""
    before = decode_cursor(query, query["cursor"], int) if "cursor" in query else NEWEST
    if not 0 < before <= NEWEST:
        raise invalid("cursor: not one that a list has given")
    found = await biz_history(context.db, name, before, limit + 1)
    if not found and before == NEWEST:
        raise NotFound(f"there is no biz_type {name!r}, and was none")
    cursor = encode_cursor(query, found[limit - 1].version) if len(found) > limit else None
    return HistoryOut([_version_out(name, one) for one in found[:limit]], cursor)


def _version_out(name: str, found: Version) -> VersionOut:
    shown = None
    if found.settings is not None:
        named = found.settings | {"biz_type": name, "version": found.version}
        shown = msgspec.convert(named, BizTypeOut)
    return VersionOut(found.version, format_time(found.time_ms), found.actor, found.action, shown)


async def list_changes(context: Context, request: Request) -> Response:
    """Changes that fit the query; of bounded many that were looked at."""
    query = _query(request)
    limit = limit_of(query.get("limit"))
    return json_answer(await changes_of(context, actor_of(request), query, limit))


async def changes_of(
    context: Context, actor: Actor, query: Mapping[str, str], limit: int
) -> ChangesOut:
    """A page of what this actor sees of the changes that fit the query."""
    object_, by, action = (_word(query, name) for name in ("object", "actor", "action"))
    from_ms, to_ms = _time(query, "from", 0), _time(query, "to", NEWEST)
    below = Key(NEWEST, NEWEST)
    if "cursor" in query:
        below = decode_cursor(query, query["cursor"], Key)
        if not all(abs(number) <= NEWEST for number in below):
            raise invalid("cursor: not one that a list has given")
    # Where everything fits, more than the page would be read in vain.
    is_all = by is None and action is None and not actor.is_narrowed
    look_rows = limit if is_all else LOOK_ROWS
    items: list[ChangeOut] = []
    for _ in range(LOOKS_MAX):
        looked = await changes(
            context.db, object_, from_ms, to_ms, below, look_rows, actor=by, action=action
        )
        for change in looked:
            below = Key(change.time_ms, change.change_id)
            if change.fits and _sees(actor, change):
                items.append(_change_out(change))
                if len(items) == limit:
                    return ChangesOut(items, encode_cursor(query, below))
        if len(looked) < look_rows:
            return ChangesOut(items, None)
    return ChangesOut(items, encode_cursor(query, below))


async def changes_to(context: Context, name: str, limit: int) -> list[ChangeOut]:
    """The newest changes of one object, for who was found to see it."""
    newest = Key(NEWEST, NEWEST)
    looked = await changes(context.db, name, 0, NEWEST, newest, limit)
    return [_change_out(change) for change in looked]


def _sees(actor: Actor, change: Change) -> bool:
    """A narrowed key sees the changes of its biz_types; a task's do not say whose it is."""
    if not actor.is_narrowed:
        return True
    return change.action.startswith("biz.") and actor.sees(change.object)


def _change_out(change: Change) -> ChangeOut:
    return ChangeOut(
        change_id=change.change_id,
        time=format_time(change.time_ms),
        actor=change.actor,
        action=change.action,
        object=change.object,
        old=change.old,
        new=change.new,
    )


def _query(request: Request) -> dict[str, str]:
    pairs = request.query_params.multi_items()
    query = dict(pairs)
    if len(query) != len(pairs):
        raise invalid("a query name is given twice")
    return query


def _word(query: Mapping[str, str], name: str) -> str | None:
    word = query.get(name)
    if word is not None and not (0 < len(word) <= WORD_CHARACTERS_MAX and word.isprintable()):
        raise invalid(f"{name}: 1 to {WORD_CHARACTERS_MAX} printable characters")
    return word


def _time(query: Mapping[str, str], name: str, otherwise: int) -> int:
    text = query.get(name)
    if text is None:
        return otherwise
    raw = text if _NUMBER.fullmatch(text) else msgspec.json.encode(_LOST_PLUS.sub(r"+\1", text))
    try:
        return parse_start_time(raw if isinstance(raw, bytes) else raw.encode())
    except BadTime as error:
        raise invalid(f"{name}: {error}") from None


_TEXT: Final[dict[str, Any]] = {"type": "string", "minLength": 1, "maxLength": WORD_CHARACTERS_MAX}

OPERATIONS: Final = (
    Operation(
        method="GET",
        path="/v1/biz/{biz_type}/history",
        handler=get_history,
        name="getBizTypeHistory",
        scope="read",
        summary="Every version of a biz_type, with who and when",
        text="Also of one that was deleted. Write-only values are marks, as in a GET.",
        query=PAGING,
        answers={200: Answer(text="A page, newest first", body=HistoryOut)},
        problems=("not-found", "overloaded"),
    ),
    Operation(
        method="GET",
        path="/v1/changes",
        handler=list_changes,
        name="listChanges",
        scope="admin",
        summary="Every change by the API, with who and when",
        text="A page looks at a bounded number of changes; it may be short and still have a "
        "next_cursor. With object it looks at that one's only.",
        query={
            "object": (_TEXT, "a biz_type, a task_id, `wheel`, as the changes name it"),
            "actor": (_TEXT, "`admin`, `local` or `key:ID`"),
            "action": (_TEXT, "`biz.put`, `task.cancel`, ..."),
            "from": ({"type": "string"}, "epoch seconds or RFC 3339; from this moment on"),
            "to": ({"type": "string"}, "the same; before this moment"),
            **PAGING,
        },
        answers={200: Answer(text="A page, newest first", body=ChangesOut)},
        problems=("overloaded",),
    ),
)
