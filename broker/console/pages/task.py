"""One task: its whole story, and what can be done with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import UNSET
from starlette.responses import Response

from broker.api.change import ERASED
from broker.api.history import ChangeOut, changes_to
from broker.api.tasks import find_task, told_task
from broker.api.view import TaskOut
from broker.console.page import Page
from broker.console.visit import Visit
from wheel_timer.biz import BizType
from wheel_timer.cli.story import explain
from wheel_timer.store.task import TaskRow

HERE: Final = "/console/tasks/{task_id}"
PAYLOAD_BYTES_MAX: Final = 4096
ATTEMPTS_MAX: Final = 50
CHANGES_MAX: Final = 20
_LINE_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Payload:
    """biz_data as far as it is shown. note: why not, or that it is cut."""

    bytes_all: int
    text: str
    is_hex: bool
    note: str


@dataclass(frozen=True, slots=True)
class Action:
    """What can be done with the task as it stands."""

    name: str
    path: str
    kind: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """
    What the page shows. sentences: as `wheel-timer explain` tells it. lateness_ms: of the first
    call, from when it was due; None where there was none. attempts_left_out: older ones that are
    not shown. changes: None where the key may not see them.
    """

    task: TaskOut
    sentences: Sequence[str]
    lateness_ms: int | None
    attempts_left_out: int
    payload: Payload
    actions: Sequence[Action]
    changes: Sequence[ChangeOut] | None
    url: str | None
    config_version: int | None
    now_ms: int


async def show(visit: Visit) -> Response:
    """The page."""
    context = visit.context
    row = await find_task(context, visit.actor, visit.params["task_id"])
    task = await told_task(context, row)
    biz = context.registry.get(row.biz_type)
    now_ms = int(context.clock.now_ms())
    changes = None
    if visit.may("admin"):
        changes = await changes_to(context, str(row.task_id), CHANGES_MAX)
    log = task.attempt_log
    task.attempt_log = log[-ATTEMPTS_MAX:]
    told = [attempt.config_version for attempt in log if attempt.config_version is not None]
    data = Story(
        task=task,
        sentences=explain(_plain(task), datetime.fromtimestamp(now_ms / 1000, UTC)),
        lateness_ms=_lateness_ms(row),
        attempts_left_out=len(log) - len(task.attempt_log),
        payload=_payload(row, biz),
        actions=_actions(visit, task),
        changes=changes,
        url=task.callback.url if task.callback else biz.callback_url if biz else None,
        config_version=told[-1] if told else None,
        now_ms=now_ms,
    )
    return visit.render("task.html", data)


def _plain(task: TaskOut) -> dict[str, Any]:
    """The task as GET /v1/tasks/{task_id} shows it, without its payload."""
    bare = msgspec.structs.replace(task, biz_data=UNSET, biz_data_base64=UNSET)
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(bare))
    return plain


def _lateness_ms(row: TaskRow) -> int | None:
    if row.first_attempt_time is None:
        return None
    return max(0, row.first_attempt_time - max(row.start_time, row.create_time))


def _payload(row: TaskRow, biz: BizType | None) -> Payload:
    """A part of biz_data that is fit to be shown."""
    data = row.biz_data
    if row.content_type == ERASED:
        return Payload(0, "", False, "It was erased when the task ended (erase_data).")
    if data is None:
        return Payload(0, "", False, "The task has none.")
    if biz is None or biz.erase_data:
        return Payload(len(data), "", False, "It is not shown: its biz_type says erase_data.")
    part = data[:PAYLOAD_BYTES_MAX]
    note = "" if len(part) == len(data) else f"The first {len(part):,} bytes are shown."
    try:
        # A character that the cut went through is no reason to show bytes.
        text = part.decode() if not note else part.decode(errors="ignore")
        is_text = (
            all(one.isprintable() or one in "\n\r\t" for one in text)
            and len(text.encode()) >= len(part) - 3
        )
    except UnicodeDecodeError:
        is_text = False
    if is_text:
        return Payload(len(data), text, False, note)
    part = part[: PAYLOAD_BYTES_MAX // 4]
    note = "" if len(part) == len(data) else f"The first {len(part):,} bytes are shown."
    lines = [part[at : at + _LINE_BYTES] for at in range(0, len(part), _LINE_BYTES)]
    dump = "\n".join(f"{n * _LINE_BYTES:06x}  {line.hex(' ')}" for n, line in enumerate(lines))
    return Payload(len(data), dump, True, note)


def _actions(visit: Visit, task: TaskOut) -> list[Action]:
    """What the state allows, and the key."""
    if not visit.may("submit", "operate"):
        return []
    here = f"/console/tasks/{task.task_id}"
    run = Action("Call now", f"{here}/run", "primary")
    move = Action("Reschedule", f"{here}/reschedule", "")
    replay = Action("Replay", f"{here}/replay", "primary")
    match task.status:
        case "pending":
            return [run, move, Action("Cancel", f"{here}/cancel", "danger")]
        case "delivering":
            return [Action("No more attempts", f"{here}/stop", "danger")]
        case "failed":
            return [replay, Action("Discard", f"{here}/discard", "danger")]
        case _:
            return [replay]


PAGES: Final = (Page(path=HERE, scope="read", show=show),)
