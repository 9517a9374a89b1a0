"""Dead letters: tasks that failed for good, by biz_type, with why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from broker.api.lists import tasks_page
from broker.api.problems import Refused
from broker.api.times import format_time
from broker.api.view import TaskItem
from broker.console.page import Page
from broker.console.pages.search import as_field, filters_of, linked
from broker.console.pages.tasks import DAY_MS, HOUR_MS, LOOKED_MAX, ROWS, Preset
from broker.console.visit import Visit
from wheel_timer.errors import FieldError
from wheel_timer.store.ledger import totals

HERE: Final = "/console/dead"
MANY: Final = "/console/tasks/many"
COUNTS_MAX: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Dead:
    """
    What the page shows. counts: (biz_type, dead letters, href), those with the most; kept by the
    ledger, a second or two old. counts_left_out: biz_types with some that are not among them.
    """

    counts: Sequence[tuple[str, int, str]]
    counts_left_out: int
    tasks: int
    fields: Mapping[str, str]
    presets: Sequence[Preset]
    items: Sequence[TaskItem]
    next_href: str | None
    replay_href: str | None
    discard_href: str | None
    now_ms: int
    errors: Sequence[FieldError]


async def show(visit: Visit) -> Response:
    """The page."""
    context, actor, query = visit.context, visit.actor, visit.query
    now_ms = int(context.clock.now_ms())
    counted = sorted(
        (
            (total.biz_type, total.dead)
            for total in await totals(context.db)
            if total.dead > 0 and actor.sees(total.biz_type)
        ),
        key=lambda one: (-one[1], one[0]),
    )
    filters = filters_of(query) | {"status": "failed"}
    asked = filters | {"limit": str(ROWS)}
    if "cursor" in query:
        asked["cursor"] = query["cursor"]
    items: Sequence[TaskItem] = []
    errors: Sequence[FieldError] = []
    next_href = None
    try:
        page = await tasks_page(context, actor, asked, LOOKED_MAX)
    except Refused as refused:
        errors = refused.problem.errors
    else:
        items = page.items
        if page.next_cursor is not None:
            next_href = linked(HERE, filters | {"cursor": page.next_cursor})
    may_change = visit.may("operate") and bool(items)
    data = Dead(
        counts=[
            (name, dead, linked(HERE, {"biz_type": name})) for name, dead in counted[:COUNTS_MAX]
        ],
        counts_left_out=max(0, len(counted) - COUNTS_MAX),
        tasks=sum(dead for _, dead in counted),
        fields=filters | {"finish_from": as_field(filters.get("finish_from", ""))},
        presets=_presets(filters, now_ms),
        items=items,
        next_href=next_href,
        replay_href=linked(MANY, filters | {"action": "replay"}) if may_change else None,
        discard_href=linked(MANY, filters | {"action": "cancel"}) if may_change else None,
        now_ms=now_ms,
        errors=errors,
    )
    return visit.render("dead.html", data, 422 if errors else 200)


def _presets(filters: Mapping[str, str], now_ms: int) -> list[Preset]:
    kept = {n: filters[n] for n in ("biz_type", "http_status") if n in filters}
    begun = filters.get("finish_from")
    return [
        Preset("All", linked(HERE, kept), begun is None),
        *(
            Preset(name, linked(HERE, kept | {"finish_from": format_time(now_ms - span_ms)}), False)
            for name, span_ms in (("Last hour", HOUR_MS), ("Last day", DAY_MS))
        ),
    ]


PAGES: Final = (Page(path=HERE, scope="read", show=show, menu="Dead letters"),)
