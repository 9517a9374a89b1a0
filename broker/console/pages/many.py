"""Many tasks at once: what an operation would meet, and its beginning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.responses import Response

from broker.api.asked import STATUSES, OperationIn, checked
from broker.api.operating import DryRunOut, begin, dry_run
from broker.api.problems import Refused
from broker.console.page import Page
from broker.console.pages.search import as_field, filters_of, linked
from broker.console.visit import Confirmation, Visit
from wheel_timer.cli.moments import in_words, parse_duration
from wheel_timer.errors import FieldError, InvalidTask

HERE: Final = "/console/tasks/many"
OPERATIONS: Final = "/console/operations"
# A page counts so long by itself; who asks for it waits for a whole count, up to the API's limit.
COUNT_S: Final = 0.03
WHOLE_COUNT_S: Final = 5.0
_WORDS: Final[Mapping[str, tuple[str, str, bool]]] = {
    "cancel": ("Cancel", "cancelled: they are not called", True),
    "shift": ("Move", "moved", False),
    "run": ("Call now", "called now, behind what is due by itself", False),
    "replay": ("Start again", "started again, behind what is due by itself", False),
    "purge": ("Delete", "deleted, with their records: nobody can bring them back", True),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Many:
    """The form: the filters of the search, the actions that are for them, and what is wrong."""

    filters: Mapping[str, str]
    facts: Sequence[tuple[str, str]]
    actions: Sequence[tuple[str, str]]
    fields: Mapping[str, str]
    errors: Sequence[FieldError]
    back: str


async def ask(visit: Visit) -> Response:
    """What to do with them; then, with their number, whether that is meant."""
    query = visit.query
    errors: Sequence[FieldError] = []
    if "action" in query:
        try:
            return await _confirm(visit, query)
        except InvalidTask as error:
            errors = error.errors
        except Refused as refused:
            errors = refused.problem.errors
    filters = filters_of(query)
    status = filters.get("status")
    data = Many(
        filters=filters,
        facts=_facts(filters),
        actions=[
            (action, words[0])
            for action, words in _WORDS.items()
            if status is None or status in STATUSES[action]  # type: ignore[index]
        ],
        fields=query,
        errors=errors,
        back=linked("/console/tasks", filters),
    )
    return visit.render("many.html", data, 422 if errors else 200)


async def _confirm(visit: Visit, query: Mapping[str, str]) -> Response:
    given = _given(query)
    filter_, shift_ms = checked(given, visit.actor)
    is_whole = query.get("count") == "whole"
    counted = await dry_run(visit.context, filter_, WHOLE_COUNT_S if is_whole else COUNT_S)
    verb, becomes, is_danger = _WORDS[given.action]
    many = _number(counted)
    if shift_ms is None:
        told = f"They are {becomes}."
    else:
        told = f"They are due {in_words(abs(shift_ms))} {'later' if shift_ms > 0 else 'earlier'}."
    sentences = [told]
    if given.rate is not None:
        sentences.append(f"At most {given.rate:g} a second, so that whom they call keeps up.")
    sentences.append(
        "Meant is what is there when you confirm; what is submitted or moved later is left alone."
        " The operation can be stopped; what it has done by then stays done."
    )
    fields = {name: value for name, value in query.items() if name not in ("count", "cursor")}
    count_href = None
    if not counted.complete and not is_whole:
        count_href = linked(HERE, fields | {"count": "whole"})
    return visit.confirm(
        Confirmation(
            title=f"{verb} {many} {'task' if many == '1' else 'tasks'}?",
            sentences=sentences,
            facts=_facts(filters_of(query) | _state(given)),
            fields=fields,
            button=f"{verb} them",
            back=linked("/console/tasks", filters_of(query)),
            is_danger=is_danger,
            sample=counted.sample,
            now_ms=int(visit.context.clock.now_ms()),
            count_href=count_href,
        )
    )


async def start(visit: Visit) -> Response:
    """Begin the operation."""
    row = await begin(visit.context, visit.actor, _given(visit.form))
    return visit.done(
        f"{OPERATIONS}/{row.operation_id}", "It has begun. This page says how far it is."
    )


def _given(sent: Mapping[str, str]) -> OperationIn:
    """The operation that a form means, as POST /v1/operations takes it. Raises InvalidTask."""
    filters: dict[str, Any] = dict(filters_of(sent))
    wanted: dict[str, Any] = {"action": sent["action"]}
    if "biz_id" in filters:
        raise InvalidTask([FieldError("for many tasks, a prefix: order-*", "#/filter/biz_id")])
    if "http_status" in filters:
        filters["http_status"] = _figure(filters["http_status"], "#/filter/http_status", int)
    if not filters:
        raise InvalidTask([FieldError("say which tasks: search for them first", "#/filter")])
    wanted["filter"] = filters
    if wanted["action"] == "shift":
        wanted["set"] = {"delay": _shift_s(sent.get("shift", ""))}
    if sent.get("rate", "").strip():
        wanted["rate"] = _figure(sent["rate"], "#/rate", float)
    try:
        return msgspec.json.decode(msgspec.json.encode(wanted), type=OperationIn)
    except msgspec.ValidationError as error:
        raise InvalidTask([FieldError(str(error), "#")]) from None


def _figure(text: str, pointer: str, kind: type[int] | type[float]) -> float:
    try:
        return kind(text)
    except ValueError:
        raise InvalidTask([FieldError("a number", pointer)]) from None


def _shift_s(text: str) -> float:
    """`30m`, `-1h`: seconds."""
    text = text.strip()
    try:
        away_ms = parse_duration(text.lstrip("+-"))
    except ValueError as error:
        raise InvalidTask([FieldError(str(error), "#/shift")]) from None
    return (-away_ms if text.startswith("-") else away_ms) / 1000


def _number(counted: DryRunOut) -> str:
    return f"{counted.matched:,}" if counted.complete else f"at least {counted.matched:,}"


def _state(given: OperationIn) -> dict[str, str]:
    """The state that is meant where the filter names none."""
    if given.filter.status is not None or given.action == "purge":
        return {}
    return {"status": STATUSES[given.action][0]}


def _facts(filters: Mapping[str, str]) -> list[tuple[str, str]]:
    words = {
        "start_from": "Due from",
        "start_to": "Due before",
        "finish_from": "Ended from",
        "finish_to": "Ended before",
        "http_status": "Last answer's status",
        "biz_id_prefix": "biz_id begins with",
        "status": "Status",
    }
    return [
        (
            words.get(name, name),
            as_field(value).replace("T", " ") + " UTC" if as_field(value) else value,
        )
        for name, value in filters.items()
    ]


PAGES: Final = (Page(path=HERE, scope="operate", show=ask, act=start),)
