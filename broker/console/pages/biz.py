"""biz_types: all of them, and one: how it goes, how it is configured, who changed what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

import msgspec
from starlette.responses import Response

from broker.api.bizverbs import existing, pause_or_resume
from broker.api.history import VersionOut, history_of
from broker.api.stats import StatsOut, stats_of
from broker.console.bizform import GROUPS, Group, texts_of
from broker.console.page import Page
from broker.console.visit import Confirmation, Visit
from wheel_timer.biz import BizType, BizTypeOut, shown
from wheel_timer.errors import EventCenterUnavailable
from wheel_timer.store.ledger import totals

HERE: Final = "/console/biz"
# So many on a page, however many there are.
ROWS: Final = 50
VERSIONS: Final = 10
# Of all biz_types' tasks in the last minute and the next hour, for the figures: some 10 ms each.
LOOK_ROWS: Final = 5_000
ORDERS: Final = {"name": "by name", "pending": "most pending", "dead": "most dead letters"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One biz_type of the list. endpoint: the host that is called. breaker: None: not known."""

    biz_type: str
    pending: int
    dead: int
    endpoint: str
    rate_limit: float | None
    paused: bool
    breaker: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BizTypes:
    """A page of the list. found: how many fit the search. onward: to the next page."""

    rows: Sequence[Row]
    found: int
    first: int
    search: str
    order: str
    orders: Mapping[str, str]
    onward: str | None
    may_configure: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """A version, and how it differs from the one before it: name, old, new."""

    version: int
    time: str
    actor: str
    action: str
    differing: Sequence[tuple[str, str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class One:
    """One biz_type. path: of its page."""

    biz: BizTypeOut
    stats: StatsOut
    groups: Sequence[Group]
    texts: Mapping[str, str]
    history: Sequence[Changed]
    is_held: bool
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A page of versions, newest first."""

    biz_type: str
    history: Sequence[Changed]
    onward: str | None
    path: str


def path_of(name: str) -> str:
    """The page of a biz_type."""
    return f"{HERE}/{quote(name, safe='')}"


async def show(visit: Visit) -> Response:
    """The list."""
    context, query = visit.context, visit.query
    await context.registry.refresh()
    search = query.get("search", "").strip().lower()
    order = query.get("order", "name")
    page = int(query["page"]) if query.get("page", "").isdecimal() else 1
    counted = {one.biz_type: one for one in await totals(context.db)}

    def standing(name: str) -> tuple[int, int]:
        one = counted.get(name)
        return (0, 0) if one is None else (max(0, one.pending), max(0, one.dead))

    names = [name for name in context.registry.names() if search in name and visit.actor.sees(name)]
    if order in ("pending", "dead"):
        place = 0 if order == "pending" else 1
        names.sort(key=lambda name: (-standing(name)[place], name))
    first = min((max(page, 1) - 1) * ROWS, max(0, len(names) - 1) // ROWS * ROWS)
    visible = names[first : first + ROWS]
    breakers = await _breakers(visit, visible)
    known = [biz for name in visible if (biz := context.registry.get(name)) is not None]
    onward = None
    if first + ROWS < len(names):
        asked = {"search": search, "order": order, "page": first // ROWS + 2}
        onward = f"{HERE}?{urlencode(asked)}"
    rows = [_row(biz, standing(biz.biz_type), breakers) for biz in known]
    data = BizTypes(
        rows=rows,
        found=len(names),
        first=first,
        search=search,
        order=order if order in ORDERS else "name",
        orders=ORDERS,
        onward=onward,
        may_configure=visit.may("configure"),
    )
    return visit.render("biz.html", data)


async def _breakers(visit: Visit, names: Sequence[str]) -> Mapping[str, str] | None:
    """Why lanes hold back what is due; None while the event center is away."""
    context = visit.context
    try:
        waits = await context.event_center.waits(names, context.clock.now_ms())
    except EventCenterUnavailable:
        return None
    return {name: wait.reason for name, wait in waits.items()}


def _row(biz: BizType, standing: tuple[int, int], breakers: Mapping[str, str] | None) -> Row:
    breaker = None
    if breakers is not None:
        breaker = "open" if breakers.get(biz.biz_type) == "breaker_open" else "closed"
    return Row(
        biz_type=biz.biz_type,
        pending=standing[0],
        dead=standing[1],
        endpoint=urlsplit(biz.callback_url or "").netloc,
        rate_limit=biz.rate_limit,
        paused=biz.paused,
        breaker=breaker,
    )


async def show_one(visit: Visit) -> Response:
    """One biz_type."""
    name = visit.params["biz_type"]
    context = visit.context
    stats = await stats_of(context, name, LOOK_ROWS)
    biz = existing(name, context.registry.get(name))
    breakers = await _breakers(visit, [name])
    found = await history_of(context, name, {}, VERSIONS)
    return visit.render(
        "biz-one.html",
        One(
            biz=shown(biz),
            stats=stats,
            groups=GROUPS,
            texts=texts_of(shown(biz)),
            history=_changes(found.items, found.next_cursor is not None)[:VERSIONS],
            is_held=breakers is not None and breakers.get(name) == "breaker_open",
            path=path_of(name),
        ),
    )


async def show_history(visit: Visit) -> Response:
    """Every version of one, whether it is still there or not."""
    name = visit.params["biz_type"]
    query = {key: value for key, value in visit.query.items() if key == "cursor"}
    found = await history_of(visit.context, name, query, ROWS)
    onward = None
    if found.next_cursor is not None:
        onward = f"{path_of(name)}/history?{urlencode({'cursor': found.next_cursor})}"
    data = History(
        biz_type=name,
        history=_changes(found.items, found.next_cursor is not None),
        onward=onward,
        path=path_of(name),
    )
    return visit.render("biz-history.html", data)


def _changes(versions: Sequence[VersionOut], goes_on: bool) -> list[Changed]:
    """Each version beside the one before it; of the last on a page that is not known."""
    found = []
    for index, one in enumerate(versions):
        before = versions[index + 1].biz_type if index + 1 < len(versions) else None
        is_cut = index + 1 == len(versions) and goes_on
        found.append(
            Changed(
                version=one.version,
                time=one.time,
                actor=one.actor,
                action=one.action.removeprefix("biz."),
                differing=[] if is_cut else differing(before, one.biz_type),
            )
        )
    return found


def differing(before: BizTypeOut | None, after: BizTypeOut | None) -> list[tuple[str, str, str]]:
    """The settings that differ, as (name, old, new); nothing where one of the two is not there."""
    if before is None or after is None:
        return []
    old: dict[str, Any] = msgspec.to_builtins(before)
    new: dict[str, Any] = msgspec.to_builtins(after)
    return [
        (name, written(old[name]), written(new[name]))
        for name in new
        if name != "version" and old.get(name) != new[name]
    ]


def written(value: Any) -> str:
    """A setting's value on one line."""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


async def ask_pause(visit: Visit) -> Response:
    """Whether nothing of it is to be called."""
    name = visit.params["biz_type"]
    return visit.confirm(
        Confirmation(
            title=f"Pause {name}?",
            sentences=[
                "Within two seconds nothing new of it is called. Calls under way end, submits go"
                " on.",
                "What comes due meanwhile waits, and is called when it is resumed.",
            ],
            button="Pause it",
            back=path_of(name),
        )
    )


async def pause(visit: Visit) -> Response:
    """Pause it."""
    return await _set_paused(visit, paused=True)


async def ask_resume(visit: Visit) -> Response:
    """Whether it is to be called again."""
    name = visit.params["biz_type"]
    return visit.confirm(
        Confirmation(
            title=f"Resume {name}?",
            sentences=["Within two seconds it is called again; what came due is called now."],
            button="Resume it",
            back=path_of(name),
        )
    )


async def resume(visit: Visit) -> Response:
    """Resume it."""
    return await _set_paused(visit, paused=False)


async def _set_paused(visit: Visit, *, paused: bool) -> Response:
    name = visit.params["biz_type"]
    await pause_or_resume(visit.context, name, None, paused=paused, actor=visit.actor)
    told = "is paused: nothing new is called" if paused else "is called again"
    return visit.done(path_of(name), f"{name} {told}.")


ONE: Final = f"{HERE}/{{biz_type}}"
PAGES: Final = (
    Page(path=HERE, scope="read", show=show, menu="biz_types"),
    Page(path=ONE, scope="read", show=show_one),
    Page(path=f"{ONE}/history", scope="read", show=show_history),
    Page(path=f"{ONE}/pause", scope="operate", show=ask_pause, act=pause),
    Page(path=f"{ONE}/resume", scope="operate", show=ask_resume, act=resume),
)
