"""Tasks: search, and a page of what was found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from starlette.responses import RedirectResponse, Response

from broker.api.intake import is_biz_id
from broker.api.lists import items_of, tasks_page
from broker.api.problems import Refused
from broker.api.times import format_time
from broker.api.view import TaskItem
from broker.console.page import Page
from broker.console.pages.search import TIMES, as_field, filters_of, linked
from broker.console.visit import Visit
from wheel_timer.errors import FieldError
from wheel_timer.store.selection import rows_of
from wheel_timer.store.task import lookup_keys

HERE: Final = "/console/tasks"
ROWS: Final = 50
# Of the wheel; what is looked at for one page takes some tens of ms at most.
LOOKED_MAX: Final = 5_000
# A biz_id without a biz_type is looked for under so many of them: an index descent each.
BIZ_TYPES_MAX: Final = 2_000
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Preset:
    """A search that is asked often."""

    name: str
    href: str
    is_here: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tasks:
    """
    What the page shows. fields: the form as it was sent. filters: as the API has them, for what is
    done to all of them. next_href: None at the end; a page may be short and still have a next one.
    span: from when to when what is shown is due, where nobody has said it.
    """

    fields: Mapping[str, str]
    filters: Mapping[str, str]
    presets: Sequence[Preset]
    items: Sequence[TaskItem]
    next_href: str | None
    is_first: bool
    span: tuple[str, str] | None
    many_href: str | None
    now_ms: int
    errors: Sequence[FieldError]


async def show(visit: Visit) -> Response:
    """The search, and what it has found."""
    query = visit.query
    word = query.pop("search", "").strip()
    if word:
        found = await _by_word(visit, word, query.get("biz_type", "").strip())
        if found is not None:
            return found
        query["biz_id"] = word
    return await _listed(visit, query, word)


async def _by_word(visit: Visit, word: str, biz_type: str) -> Response | None:
    """The one task, or the tasks, that a word names; None: it is a biz_id of the biz_type."""
    try:
        return RedirectResponse(f"{HERE}/{UUID(word)}", 303)
    except ValueError:
        pass
    if biz_type:
        return None
    context = visit.context
    # Another broker may have made its biz_type a moment ago.
    await context.registry.refresh()
    names = [name for name in context.registry.names() if visit.actor.sees(name)]
    items: list[TaskItem] = []
    errors = []
    if not is_biz_id(word):
        errors = [FieldError("a task_id, or a biz_id of 1 to 256 bytes", "#/search")]
    elif word.endswith("*") or len(names) > BIZ_TYPES_MAX:
        errors = [FieldError("name a biz_type beside it", "#/search")]
    else:
        held = await lookup_keys(context.db, [(name, word) for name in names])
        rows = await rows_of(context.db, list(held.values()))
        items = await items_of(context, list(rows.values())[:ROWS])
    if len(items) == 1:
        return RedirectResponse(f"{HERE}/{items[0].task_id}", 303)
    data = Tasks(
        fields={"search": word},
        filters={},
        presets=_presets({}, int(context.clock.now_ms())),
        items=items,
        next_href=None,
        is_first=True,
        span=None,
        many_href=None,
        now_ms=int(context.clock.now_ms()),
        errors=errors,
    )
    return visit.render("tasks.html", data, 422 if errors else 200)


async def _listed(visit: Visit, query: Mapping[str, str], word: str) -> Response:
    """The tasks of a filter, page by page; with none, those of an hour back to a day ahead."""
    now_ms = int(visit.context.clock.now_ms())
    filters = filters_of(query)
    bounded = dict(filters)
    is_bounded = filters.keys() & {"start_from", "start_to", "biz_id", "biz_id_prefix"}
    if not is_bounded and filters.get("status") != "failed":
        # To the minute, and kept by the next page: it is to be of the same query.
        minute_ms = now_ms // MINUTE_MS * MINUTE_MS
        bounded["start_from"] = query.get("from", format_time(minute_ms - HOUR_MS))
        bounded["start_to"] = query.get("to", format_time(minute_ms + DAY_MS))
    asked = bounded | {"limit": str(ROWS)}
    if "cursor" in query:
        asked["cursor"] = query["cursor"]
    items: Sequence[TaskItem] = []
    errors: Sequence[FieldError] = []
    next_href = None
    try:
        page = await tasks_page(visit.context, visit.actor, asked, LOOKED_MAX)
    except Refused as refused:
        errors = refused.problem.errors
    else:
        items = page.items
        if page.next_cursor is not None:
            onward = bounded | {"cursor": page.next_cursor}
            if not is_bounded and "start_from" in onward:
                onward["from"], onward["to"] = onward.pop("start_from"), onward.pop("start_to")
            next_href = linked(HERE, onward)
    fields = dict(filters)
    fields["search"] = word or filters.get("biz_id", "")
    if "biz_id_prefix" in filters:
        fields["search"] = filters["biz_id_prefix"] + "*"
    for name in TIMES:
        fields[name] = as_field(filters.get(name, ""))
    may_change = visit.may("operate") and filters and "biz_id" not in filters and not errors
    data = Tasks(
        fields=fields,
        filters=filters,
        presets=_presets(filters, now_ms),
        items=items,
        next_href=next_href,
        is_first="cursor" not in query,
        span=None if is_bounded or "start_to" not in bounded else _span(bounded),
        many_href=linked(f"{HERE}/many", bounded) if may_change else None,
        now_ms=now_ms,
        errors=errors,
    )
    return visit.render("tasks.html", data, 422 if errors else 200)


def _span(bounded: Mapping[str, str]) -> tuple[str, str]:
    return bounded["start_from"], bounded["start_to"]


def _presets(filters: Mapping[str, str], now_ms: int) -> list[Preset]:
    """Searches asked often, of the biz_type that is looked at."""
    kept = {"biz_type": filters["biz_type"]} if "biz_type" in filters else {}
    now = format_time(now_ms)
    day_ago, day_on = format_time(now_ms - DAY_MS), format_time(now_ms + DAY_MS)
    late = {"status": "pending", "start_from": day_ago, "start_to": now}
    asked: tuple[tuple[str, dict[str, str]], ...] = (
        ("Around now", {}),
        ("Late or waiting for a retry", late),
        ("Coming", {"status": "pending", "start_from": now, "start_to": day_on}),
        ("Being called", {"status": "delivering", "start_from": day_ago}),
        ("Finished", {"status": "finished", "start_from": format_time(now_ms - HOUR_MS)}),
        ("Failed", {"status": "failed"}),
    )
    return [
        Preset(
            name,
            linked(HERE, kept | query),
            query.get("status") == filters.get("status") and _same(query, filters),
        )
        for name, query in asked
    ]


def _same(query: Mapping[str, str], filters: Mapping[str, str]) -> bool:
    """Whether a search is this one, but for its moments."""
    return {n for n in query if n != "status"} == filters.keys() - {"biz_type", "status"}


PAGES: Final = (Page(path=HERE, scope="read", show=show, menu="Tasks"),)
