"""Who changed what: every change by the API and the console, newest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from broker.api.history import ChangeOut, changes_of
from broker.api.problems import Refused
from broker.console.page import Page
from broker.console.visit import Visit
from wheel_timer.errors import FieldError

HERE: Final = "/console/changes"
ROWS: Final = 40
# Of each side of a change; so a page stays small whatever was changed.
SIDE_CHARACTERS_MAX: Final = 1_000
FILTERS: Final = ("object", "actor", "action", "from", "to")


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """What was, or is, there: JSON, cut where it is long."""

    text: str
    is_cut: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One change. before, after: None where there is no such side."""

    change: ChangeOut
    before: Side | None
    after: Side | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """A page of changes. It may be short and still have a next one."""

    rows: Sequence[Row]
    texts: Mapping[str, str]
    errors: Sequence[FieldError]
    onward: str | None


async def show(visit: Visit) -> Response:
    """The list."""
    query = {name: text for name, text in visit.query.items() if name in (*FILTERS, "cursor")}
    texts = {name: query.get(name, "") for name in FILTERS}
    for name in ("from", "to"):
        # What a browser's field of a moment says has no offset; here all moments are in UTC.
        if len(query.get(name, "")) in (16, 19) and "T" in query[name]:
            query[name] += ("" if len(query[name]) == 19 else ":00") + "Z"
    try:
        found = await changes_of(visit.context, visit.actor, query, ROWS)
    except Refused as error:
        wrong = [FieldError(error.problem.detail, "#")]
        data = Changes(rows=[], texts=texts, errors=wrong, onward=None)
        return visit.render("changes.html", data, 422)
    onward = None
    if found.next_cursor is not None:
        asked = {name: text for name, text in query.items() if name != "cursor"}
        onward = f"{HERE}?{urlencode(asked | {'cursor': found.next_cursor})}"
    rows = [Row(change=one, before=_side(one.old), after=_side(one.new)) for one in found.items]
    return visit.render("changes.html", Changes(rows=rows, texts=texts, errors=[], onward=onward))


def _side(value: Any) -> Side | None:
    if value is None:
        return None
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    is_cut = len(text) > SIDE_CHARACTERS_MAX
    return Side(text=text[:SIDE_CHARACTERS_MAX], is_cut=is_cut)


PAGES: Final = (Page(path=HERE, scope="admin", show=show, menu="Changes"),)
