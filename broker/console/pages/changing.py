"""What is done with one task: each asked for on a page, then done, then told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from starlette.responses import Response

from broker.api.actor import CHANGE_SCOPE
from broker.api.change import grant, patched, shown_after, wish_of
from broker.api.tasks import find_task
from broker.api.times import BadTime, format_time, parse_start_time
from broker.api.view import status_of
from broker.console.page import Handler, Page
from broker.console.pages.search import as_field, with_zone
from broker.console.visit import Confirmation, Visit
from wheel_timer.cli.moments import in_words, parse_duration
from wheel_timer.errors import FieldError, InvalidTask
from wheel_timer.store.change import Verb
from wheel_timer.store.task import TaskRow

HERE: Final = "/console/tasks/{task_id}"
DELAY_MS_MAX: Final = 253_402_300_799_999


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """
    One thing that can be done. name: the end of its path. told: what is said when it is done.
    stop, discard: as DELETE /v1/tasks/{task_id} takes them.
    """

    name: str
    verb: Verb
    title: str
    sentences: Sequence[str]
    button: str
    told: str
    is_danger: bool = False
    stop: bool = False
    discard: bool = False


DEEDS: Final = (
    Deed(
        name="cancel",
        verb="cancel",
        title="Cancel this task?",
        sentences=[
            "It is not called. Its record stays until its retention ends, and replay starts it"
            " again; its biz_id stays taken until then.",
            "A call that a broker is about to start, from 20 ms before its moment on, cannot be"
            " cancelled any more: then nothing is changed, and you are told.",
        ],
        button="Cancel the task",
        told="The task is cancelled: no callback starts.",
        is_danger=True,
    ),
    Deed(
        name="stop",
        verb="cancel",
        title="Let no other attempt follow?",
        sentences=[
            "The call under way goes on. If it succeeds, the task is finished; if not, the task is"
            " cancelled and not called again."
        ],
        button="No more attempts",
        told="No attempt follows the one under way.",
        is_danger=True,
        stop=True,
    ),
    Deed(
        name="discard",
        verb="cancel",
        title="Discard this dead letter?",
        sentences=[
            "The task leaves the dead letters: it counts as cancelled, and is kept as long as"
            " cancelled ones are. It is not called."
        ],
        button="Discard it",
        told="The dead letter is discarded.",
        is_danger=True,
        discard=True,
    ),
    Deed(
        name="run",
        verb="run",
        title="Call it now?",
        sentences=[
            "The callback starts at once, whatever the task waits for: its moment, or its next"
            " attempt. A pause, the rate limit and an open breaker of its biz_type still hold it."
        ],
        button="Call it now",
        told="The task is due now.",
    ),
    Deed(
        name="replay",
        verb="replay",
        title="Start it again?",
        sentences=[
            "It is due at its start_time, which is now where that has passed, with its whole retry"
            " budget.",
            "A failed task goes on in its life. One that was finished or cancelled begins a new"
            " life with a webhook-id of its own: to its receiver that is another event.",
        ],
        button="Start it again",
        told="The task is pending again.",
    ),
)


def _asking(deed: Deed) -> Handler:
    async def ask(visit: Visit) -> Response:
        row = await find_task(visit.context, visit.actor, visit.params["task_id"])
        return visit.confirm(
            Confirmation(
                title=deed.title,
                sentences=deed.sentences,
                facts=_facts(visit, row),
                button=deed.button,
                back=_path_of(row),
                is_danger=deed.is_danger,
            )
        )

    return ask


def _doing(deed: Deed) -> Handler:
    async def do(visit: Visit) -> Response:
        wish = wish_of(visit.actor, visit.params, deed.verb)
        wish.change.stop, wish.change.discard = deed.stop, deed.discard
        granted = await grant(visit.context, visit.actor, wish)
        task = await shown_after(visit.context, granted)
        told = deed.told
        if granted.verdict == "unchanged":
            told = f"Nothing had to be done: the task is {task.status}."
        return visit.done(f"/console/tasks/{task.task_id}", told)

    return do


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """The form of a move: what it is about, what was sent, and what is wrong with that."""

    facts: Sequence[tuple[str, str]]
    back: str
    start_time: str
    delay: str
    errors: Sequence[FieldError]


async def ask_move(visit: Visit) -> Response:
    """When to; then whether that is meant."""
    row = await find_task(visit.context, visit.actor, visit.params["task_id"])
    query = visit.query
    errors: Sequence[FieldError] = []
    if query:
        try:
            return _confirm_move(visit, row, _moved(query.get("start_time"), query.get("delay")))
        except InvalidTask as error:
            errors = error.errors
    data = Move(
        facts=_facts(visit, row),
        back=_path_of(row),
        start_time=query.get("start_time", as_field(format_time(row.start_time))),
        delay=query.get("delay", ""),
        errors=errors,
    )
    return visit.render("reschedule.html", data, 422 if errors else 200)


def _confirm_move(visit: Visit, row: TaskRow, patch: dict[str, float | str]) -> Response:
    if "delay" in patch:
        when = f"{in_words(float(patch['delay']) * 1000)} after you confirm"
        fields = {"delay": f"{patch['delay']}s"}
    else:
        when = f"{patch['start_time']}"
        fields = {"start_time": f"{patch['start_time']}"}
    return visit.confirm(
        Confirmation(
            title="Move this task?",
            sentences=[
                "It is called at the new moment, once, and not at the old one. task_id, biz_id and"
                " payload stay. A moment that has passed means now."
            ],
            facts=[*_facts(visit, row), ("New moment", when)],
            fields=fields,
            button="Move it",
            back=_path_of(row),
        )
    )


async def move(visit: Visit) -> Response:
    """Move it."""
    patch = _moved(visit.form.get("start_time"), visit.form.get("delay"))
    body = msgspec.json.encode(patch)
    granted = await patched(visit.context, visit.actor, visit.params, body)
    task = await shown_after(visit.context, granted)
    return visit.done(f"/console/tasks/{task.task_id}", f"The task is due at {task.start_time}.")


def _moved(start_time: str | None, delay: str | None) -> dict[str, float | str]:
    """The patch of a task that a form means. Raises InvalidTask."""
    if delay and delay.strip():
        try:
            delay_ms = parse_duration(delay)
        except ValueError as error:
            raise InvalidTask([FieldError(str(error), "#/delay")]) from None
        if delay_ms > DELAY_MS_MAX:
            raise InvalidTask([FieldError("beyond the year 9999", "#/delay")])
        return {"delay": delay_ms / 1000}
    if start_time:
        text = with_zone(start_time)
        try:
            parse_start_time(msgspec.json.encode(text))
        except BadTime as error:
            raise InvalidTask([FieldError(str(error), "#/start_time")]) from None
        return {"start_time": text}
    raise InvalidTask([FieldError("a moment or a delay is needed", "#/start_time")])


def _facts(visit: Visit, row: TaskRow) -> list[tuple[str, str]]:
    """Which task it is, so that nobody confirms the wrong one."""
    now_ms = visit.context.clock.now_ms()
    facts = [("biz_type", row.biz_type), ("Task", str(row.task_id))]
    if row.biz_id is not None:
        facts.insert(1, ("biz_id", row.biz_id))
    away_ms = row.start_time - now_ms
    when = f"in {in_words(away_ms)}" if away_ms > 0 else f"{in_words(-away_ms)} ago"
    return [
        *facts,
        ("Status", status_of(row, now_ms)),
        ("Due", f"{format_time(row.start_time)}, {when}"),
    ]


def _path_of(row: TaskRow) -> str:
    return f"/console/tasks/{row.task_id}"


PAGES: Final = (
    *(
        Page(path=f"{HERE}/{deed.name}", scope=CHANGE_SCOPE, show=_asking(deed), act=_doing(deed))
        for deed in DEEDS
    ),
    Page(path=f"{HERE}/reschedule", scope=CHANGE_SCOPE, show=ask_move, act=move),
)
