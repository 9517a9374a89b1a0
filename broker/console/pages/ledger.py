"""The ledger: what became of the tasks of a biz_type, by quarter hour or day of start_time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal
from urllib.parse import urlencode

from starlette.responses import Response

from broker.api.times import START_TIME_MS_MIN
from broker.console.page import Page
from broker.console.visit import Visit
from wheel_timer.store.ledger import Span, Total, spans, totals

HERE: Final = "/console/ledger"
DAY_MS: Final = 86_400_000
WIDTHS_MS: Final[Mapping[str, int]] = {"quarter": 900_000, "day": DAY_MS}
# A page is a day of quarter hours, or so many days; of these some lie ahead.
DAYS: Final = 31
DAYS_AHEAD: Final = 8
BIZ_TYPES_MAX: Final = 30
_LAST_MS: Final = 253_402_300_800_000  # the end of the year 9999


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """
    The page. biz_type: "" where none is asked for yet; biz_types: those with the most pending
    tasks. earlier, later: the pages beside this one.
    """

    biz_type: str
    biz_types: Sequence[Total]
    by: Literal["quarter", "day"]
    day: str
    rows: Sequence[Span]
    sums: Mapping[str, int]
    earlier: str
    later: str
    others: str


async def show(visit: Visit) -> Response:
    """The page."""
    query, context = visit.query, visit.context
    name = query.get("biz_type", "").strip()
    by: Literal["quarter", "day"] = "quarter" if query.get("by") == "quarter" else "day"
    today_ms = int(context.clock.now_ms()) // DAY_MS * DAY_MS
    day_ms = _day(query.get("day", ""), today_ms)
    if by == "quarter":
        from_ms, to_ms = day_ms, day_ms + DAY_MS
    else:
        to_ms = day_ms + DAYS_AHEAD * DAY_MS
        from_ms = to_ms - DAYS * DAY_MS
    rows: list[Span] = []
    most: list[Total] = []
    if name:
        visit.actor.check_sees(name)
        rows = await spans(context.db, name, from_ms, to_ms, WIDTHS_MS[by])
    else:
        counted = [one for one in await totals(context.db) if visit.actor.sees(one.biz_type)]
        most = sorted(counted, key=lambda one: (-one.pending, one.biz_type))[:BIZ_TYPES_MAX]
    step_ms = DAY_MS if by == "quarter" else DAYS * DAY_MS
    names = (*Span._fields[1:], "pending", "present")
    data = Ledger(
        biz_type=name,
        biz_types=most,
        by=by,
        day=_date(day_ms),
        rows=rows,
        sums={field: sum(getattr(row, field) for row in rows) for field in names},
        earlier=_link(name, by, day_ms - step_ms),
        later=_link(name, by, day_ms + step_ms),
        others=_link(name, "day" if by == "quarter" else "quarter", day_ms),
    )
    return visit.render("ledger.html", data)


def _day(text: str, otherwise_ms: int) -> int:
    """A day in UTC, ms; what is no day is the other."""
    try:
        at = datetime.fromisoformat(text[:10]).replace(tzinfo=UTC)
    except ValueError:
        return otherwise_ms
    return min(max(round(at.timestamp() * 1000), START_TIME_MS_MIN), _LAST_MS - 2 * DAYS * DAY_MS)


def _date(day_ms: int) -> str:
    return f"{datetime.fromtimestamp(day_ms / 1000, UTC):%Y-%m-%d}"


def _link(name: str, by: str, day_ms: int) -> str:
    return f"{HERE}?{urlencode({'biz_type': name, 'by': by, 'day': _date(day_ms)})}"


PAGES: Final = (Page(path=HERE, scope="read", show=show, menu="Ledger"),)
