"""A business changes its mind: cancel, patch, run and replay of one task, by either of its ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NoReturn
from uuid import UUID

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from broker.api.actor import CHANGE_SCOPE, Actor, actor_of
from broker.api.context import Context
from broker.api.intake import check_biz_type
from broker.api.operation import JSON, Answer, Operation, json_answer
from broker.api.outcomes import media_type, unsupported
from broker.api.patching import TaskPatch, Wanted, merge, read_patch, refusals
from broker.api.problems import Problem, Refused, invalid
from broker.api.view import TaskOut, task_out
from broker.changer import NOBODY, Granted, Wish
from wheel_timer.callback import Callback
from wheel_timer.errors import FieldError, InvalidTask, NotFound, Overloaded
from wheel_timer.store.change import Change, Verb
from wheel_timer.store.task import TaskRow, attempts, lookup, lookup_by_biz_id
from wheel_timer.wheel import is_task_id

MERGE_PATCH: Final = "application/merge-patch+json"
# A patch of callback or retry is merged with what was read; who is overtaken reads again.
MERGE_TRIES: Final = 5
# The content-type of a task whose payload was taken with its end.
ERASED: Final = "erased"
_BOOLEANS: Final = {"true": True, "false": False}
_TAKES_NOTHING: Final = (b"", b"{}")


async def cancel(context: Context, request: Request) -> Response:
    """DELETE: after a 200 no callback starts."""
    actor = actor_of(request)
    wish = wish_of(actor, request.path_params, "cancel")
    wish.change.stop, wish.change.discard = _flag(request, "stop"), _flag(request, "discard")
    return await _answer(context, await grant(context, actor, wish))


async def run(context: Context, request: Request) -> Response:
    """Due now."""
    await _check_empty(context, request)
    actor = actor_of(request)
    wish = wish_of(actor, request.path_params, "run")
    return await _answer(context, await grant(context, actor, wish))


async def replay(context: Context, request: Request) -> Response:
    """A settled task again."""
    await _check_empty(context, request)
    actor = actor_of(request)
    wish = wish_of(actor, request.path_params, "replay")
    return await _answer(context, await grant(context, actor, wish))


async def patch(context: Context, request: Request) -> Response:
    """Another moment, other data, another callback."""
    if media_type(request) not in ("", JSON, MERGE_PATCH):
        raise unsupported(f"{MERGE_PATCH}, {JSON}")
    body = await context.bodies.read(request)
    return await _answer(
        context, await patched(context, actor_of(request), request.path_params, body)
    )


async def patched(
    context: Context, actor: Actor, params: Mapping[str, str], body: bytes
) -> Granted:
    """A task, named as in a path, patched by the JSON of a TaskPatch. Raises NotFound."""
    now_ms = context.clock.now_ms()
    for _ in range(MERGE_TRIES):
        wish = wish_of(actor, params, "patch")
        wanted = read_patch(
            body, wish.change, now_ms=now_ms, body_bytes_max=context.settings.max_body
        )
        wish.delay_ms = wanted.delay_ms
        in_past = wanted.change.to_time_ms is not None and wanted.change.to_time_ms < now_ms
        if wanted.is_empty or wanted.needs_task or in_past:
            task = await _task(context, actor, wish)
            if wanted.is_empty:
                return Granted("unchanged", task)
            await _check_biz(context, wanted, task, now_ms)
        granted = await grant(context, actor, wish)
        if granted.verdict != "changed":
            break
    return granted


def wish_of(actor: Actor, params: Mapping[str, str], verb: Verb) -> Wish:
    """The wish without its particulars. Raises NotFound where the path names no task."""
    if "task_id" in params:
        return Wish(Change(_task_id(params["task_id"]), verb, actor.name))
    biz_type, biz_id = params["biz_type"], params["biz_id"]
    check_biz_type(biz_type)
    if "\0" in biz_id:
        _not_found()
    return Wish(Change(NOBODY, verb, actor.name), (biz_type, biz_id))


def _task_id(text: str) -> UUID:
    try:
        task_id = UUID(text)
    except ValueError:
        raise NotFound("a task_id is a UUID") from None
    if not is_task_id(task_id):
        _not_found()
    return task_id


def _not_found() -> NoReturn:
    raise NotFound("there is no such task, or its retention has ended")


def _flag(request: Request, name: str) -> bool:
    value = request.query_params.get(name, "false")
    if value not in _BOOLEANS:
        raise invalid(f"{name} is true or false")
    return _BOOLEANS[value]


async def _check_empty(context: Context, request: Request) -> None:
    if (await context.bodies.read(request)).strip() not in _TAKES_NOTHING:
        raise invalid("this call takes no body")


async def _task(context: Context, actor: Actor, wish: Wish) -> TaskRow:
    """The task that a wish is about, as far as the caller may see it. Raises NotFound."""
    if wish.key is not None:
        task = await lookup_by_biz_id(context.db, *wish.key)
    else:
        task = (await lookup(context.db, [wish.change.task_id])).get(wish.change.task_id)
    if task is None or not actor.sees(task.biz_type):
        _not_found()
    return task


async def _check_biz(context: Context, wanted: Wanted, task: TaskRow, now_ms: float) -> None:
    """Merge with the task, and with its biz_type's leave. Raises InvalidTask."""
    merge(wanted, task)
    found: list[FieldError] = []
    for look in (False, True):
        if look:
            # Refused only by the newest configuration.
            await context.registry.refresh()
        biz = context.registry.get(task.biz_type)
        found = [] if biz is None else refusals(wanted, biz, now_ms)
        callback = wanted.change.callback
        if biz is not None and callback is not None:
            url = msgspec.json.decode(callback, type=Callback).url
            found += context.guard.check(url, biz.callback_allow, "#/callback/url")
        if not found:
            return
    raise InvalidTask(found)


async def grant(context: Context, actor: Actor, wish: Wish) -> Granted:
    """Do what is wished to a task that the actor sees. Raises NotFound."""
    if wish.key is None and actor.is_narrowed:
        await _task(context, actor, wish)
    return await context.changer.change(wish)


async def _answer(context: Context, granted: Granted) -> Response:
    shown = await shown_after(context, granted)
    return json_answer(shown, 202 if granted.verdict == "stopping" else 200)


async def shown_after(context: Context, granted: Granted) -> TaskOut:
    """The task as it stands now. Raises the problem with it."""
    task = granted.task
    if task is None:
        _not_found()
    past = await attempts(context.db, task.task_id) if task.attempts else []
    shown = task_out(task, past, context.clock.now_ms())
    match granted.verdict:
        case "changed":
            raise Overloaded("this task is being changed by others all the time")
        case "delivering":
            detail = "a broker is calling it, or about to (from 20 ms before its moment on)"
            raise Refused(Problem("task-delivering", detail, extra={"task": shown}))
        case "settled":
            detail = f"it is {shown.status}; POST .../replay starts it again"
            if task.content_type == ERASED:
                detail = f"it is {shown.status}, and its payload is erased (erase_data)"
            raise Refused(Problem("task-settled", detail, extra={"task": shown}))
    return shown


_BY_ID: Final = "/v1/tasks/{task_id}"
_BY_BIZ_ID: Final = "/v1/biz/{biz_type}/tasks/{biz_id}"
_TASK: Final = Answer(text="The task", body=TaskOut)
_BOOLEAN: Final = {"type": "boolean", "default": False}
_PROBLEMS: Final = ("invalid-request", "not-found", "task-delivering", "task-settled", "overloaded")


def _operations(path: str, suffix: str) -> tuple[Operation, ...]:
    """The four verbs under one of a task's two names."""
    return (
        Operation(
            method="PATCH",
            path=path,
            handler=patch,
            name=f"patchTask{suffix}",
            scope=CHANGE_SCOPE,
            summary="Another moment, other data, another callback",
            text="The task_id stays. callback and retry are merged with the task's own member by "
            "member (RFC 7396), biz_data is replaced as a whole.",
            takes={MERGE_PATCH: TaskPatch, JSON: TaskPatch},
            answers={200: _TASK},
            problems=(*_PROBLEMS, "too-large"),
        ),
        Operation(
            method="DELETE",
            path=path,
            handler=cancel,
            name=f"cancelTask{suffix}",
            scope=CHANGE_SCOPE,
            summary="Cancel a task",
            text="After a 200 no callback starts; said again it is 200 again. While a broker is "
            "calling it, or about to (from 20 ms before its moment on), it is 409.",
            query={
                "stop": (_BOOLEAN, "while delivering: 202, and no attempt after this one"),
                "discard": (_BOOLEAN, "a failed task too: it leaves the dead letters"),
            },
            answers={
                200: _TASK,
                202: Answer(text="It is delivering; no attempt after this one", body=TaskOut),
            },
            problems=_PROBLEMS,
        ),
        Operation(
            method="POST",
            path=f"{path}/run",
            handler=run,
            name=f"runTask{suffix}",
            scope=CHANGE_SCOPE,
            summary="Call a pending task now",
            text="Whatever it waits for: its moment, or its next attempt.",
            answers={200: _TASK},
            problems=_PROBLEMS,
        ),
        Operation(
            method="POST",
            path=f"{path}/replay",
            handler=replay,
            name=f"replayTask{suffix}",
            scope=CHANGE_SCOPE,
            summary="Start a settled task again",
            text="Due at its start_time, which is now where that has passed. A failed one goes on "
            "in its life with its whole retry budget; any other begins a new life, with a "
            "webhook-id of its own. A task that is pending stays as it is.",
            answers={200: _TASK},
            problems=("invalid-request", "not-found", "task-settled", "overloaded"),
        ),
    )


OPERATIONS: Final = (*_operations(_BY_ID, ""), *_operations(_BY_BIZ_ID, "ByBizId"))
