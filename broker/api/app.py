"""
The API as one ASGI app: access, routing, problems, metrics, in this order and nothing more.

No middleware stack and no router object in front of a submit: a path without parameters is one
look into a dict. Paths are matched as they came, not decoded, so a biz_id with a `%2F` stays one
segment.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from itertools import count
from time import perf_counter
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, compile_path
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from broker.api import (
    apply,
    audits,
    batch,
    biz,
    bizverbs,
    brake,
    change,
    clock,
    export,
    forecast,
    history,
    jump,
    keys,
    limits,
    lists,
    operating,
    pages,
    probing,
    pull,
    purging,
    schedulelists,
    schedules,
    scheduleverbs,
    stats,
    tasks,
    wheel,
)
from broker.api.access import Access, Headers
from broker.api.actor import Actor, actor_of
from broker.api.actor import Scope as KeyScope
from broker.api.body import ClientGone
from broker.api.context import Context
from broker.api.operation import Operation
from broker.api.peer import Peers
from broker.api.problems import Problem, Refused, invalid, problem_of, response_of
from broker.api.refusals import Refusals
from wheel_timer import metrics
from wheel_timer.errors import NotFound, Unauthorized, WheelTimerError
from wheel_timer.ops import Sees, ops_routes

log = logging.getLogger(__name__)

OPERATIONS: Final[tuple[Operation, ...]] = (
    *tasks.OPERATIONS,
    *lists.OPERATIONS,
    *export.OPERATIONS,
    *operating.OPERATIONS,
    *batch.OPERATIONS,
    *change.OPERATIONS,
    *pull.OPERATIONS,
    *biz.OPERATIONS,
    *bizverbs.OPERATIONS,
    *history.OPERATIONS,
    *apply.OPERATIONS,
    *probing.OPERATIONS,
    *purging.OPERATIONS,
    *schedulelists.OPERATIONS,
    *schedules.OPERATIONS,
    *scheduleverbs.OPERATIONS,
    *stats.OPERATIONS,
    *wheel.OPERATIONS,
    *jump.OPERATIONS,
    *forecast.OPERATIONS,
    *audits.OPERATIONS,
    *limits.OPERATIONS,
    *brake.OPERATIONS,
    *keys.OPERATIONS,
)
_REQUEST_ID: Final = re.compile(rb"[\w.:/+=-]{1,128}", re.ASCII)
# /v1/tasks/{task_id} is /v1/tasks/:task_id in metrics: braces are hard on those who parse them.
_AS_LABEL: Final = str.maketrans("{", ":", "}")
# The label of a request that no route knows: a scanner must not make new series.
_NO_ROUTE: Final = "other"

# No page of another origin gets an answer into its process, whatever it asks for it as. There are
# no CORS headers, ever: the API is for programs, and a page that may read is a page that may act.
_FOR_BROWSERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
)

Check = Callable[[str, str, Headers], Awaitable[Actor]]
Endpoint = Callable[[Request], Awaitable[Response]]


class Target(NamedTuple):
    """Where a request goes. label: the path's pattern, for metrics. scopes: any one is needed."""

    endpoint: Endpoint
    label: str
    scopes: tuple[KeyScope, ...]


class Served(NamedTuple):
    """One route of the app."""

    method: str
    path: str
    scopes: tuple[KeyScope, ...]
    endpoint: Endpoint


class _Pattern(NamedTuple):
    regex: re.Pattern[str]
    targets: dict[str, Target]


def build_app(context: Context) -> ASGIApp:
    """The whole HTTP surface of a broker: /v1, its documentation, and the ops routes."""
    operations = _operations(has_clock=context.test_clock is not None)
    routes = [Served(op.method, op.path, op.scopes, _bound(context, op)) for op in operations]
    scopes = {page.path: page.scopes for page in pages.DESCRIBED}
    for path, page in _pages(has_clock=context.test_clock is not None).items():
        routes.append(Served("GET", path, scopes[path], page))
    refusals = Refusals(Peers(context.settings.trusted_proxies))
    for ops in ops_routes(context.health, _seen_metrics):
        routes += [Served(m, ops.path, scopes[ops.path], ops.endpoint) for m in _methods(ops)]
    return Api(routes, Access(context.settings.admin_key, context.keys).check, refusals)


def _operations(*, has_clock: bool) -> tuple[Operation, ...]:
    return (*OPERATIONS, *clock.OPERATIONS) if has_clock else OPERATIONS


@cache
def _pages(*, has_clock: bool) -> dict[str, Endpoint]:
    # They say nothing of the app that serves them; to write them is most of what an app costs.
    return pages.pages(_operations(has_clock=has_clock))


def _methods(route: Route) -> list[str]:
    return sorted((route.methods or set()) - {"HEAD"})


def _bound(context: Context, operation: Operation) -> Endpoint:
    handler = operation.handler
    known = frozenset(operation.query)

    async def endpoint(request: Request) -> Response:
        if request.scope["query_string"]:
            unknown = sorted(set(request.query_params) - known)
            if unknown:
                raise invalid(f"unknown query name: {', '.join(unknown)[:200]}")
        return await handler(context, request)

    return endpoint


class Api:
    """
    The ASGI app over a list of routes.

    check: who calls, as Access.check says it. refusals: hears of keys that count for nothing.
    """

    def __init__(
        self, routes: Sequence[Served], check: Check, refusals: Refusals | None = None
    ) -> None:
        self._check = check
        self._refusals = refusals or Refusals(Peers(()))
        self._exact: dict[str, dict[str, Target]] = {}
        self._patterns: dict[str, _Pattern] = {}
        for method, path, scopes, endpoint in routes:
            target = Target(endpoint, path.translate(_AS_LABEL), scopes)
            if "{" not in path:
                self._exact.setdefault(path, {})[method] = target
            else:
                regex = compile_path(path)[0]
                self._patterns.setdefault(path, _Pattern(regex, {})).targets[method] = target
        self._id_prefix = os.urandom(6).hex()
        self._id_count = count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._serve(scope, receive, send)
        elif scope["type"] == "websocket":
            await WebSocketClose()(scope, receive, send)
        else:
            await _lifespan(receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = perf_counter()
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        request_id = self._request_id(headers)
        label = _NO_ROUTE
        try:
            path = _raw_path(scope)
            method = scope["method"]
            actor = await self._check(method, path, headers)
            target = self._target(scope, method, path)
            label = target.label
            _check_actor(actor, target, scope)
            response = await target.endpoint(Request(scope, receive))
        except ClientGone:
            log.debug("the client has gone", extra={"request_id": request_id})
            return
        except Unauthorized as error:
            self._refusals.add(scope)
            response = _problem(error, request_id, label)
        except Exception as error:  # noqa: BLE001 - the edge of the process: every fault is answered
            response = _problem(error, request_id, label)
        await send(
            {
                "type": "http.response.start",
                "status": response.status_code,
                "headers": [
                    *response.raw_headers,
                    *_FOR_BROWSERS,
                    (b"x-request-id", request_id.encode()),
                ],
            }
        )
        if isinstance(response, StreamingResponse):
            await _send_stream(response, scope, send, {"request_id": request_id})
        else:
            await send({"type": "http.response.body", "body": response.body})
        metrics.http_request(label, response.status_code, perf_counter() - began)

    def _request_id(self, headers: list[tuple[bytes, bytes]]) -> str:
        """The caller's, where it sent a sane one; else one of our own."""
        for name, value in headers:
            if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
                return value.decode("ascii")
        return f"{self._id_prefix}-{next(self._id_count):x}"

    def _target(self, scope: Scope, method: str, path: str) -> Target:
        targets = self._exact.get(path)
        if targets is None:
            for regex, found in self._patterns.values():
                if (match := regex.match(path)) is not None:
                    scope["path_params"] = {k: _decoded(v) for k, v in match.groupdict().items()}
                    targets = found
                    break
            else:
                raise NotFound("there is no such path")
        target = targets.get("GET" if method == "HEAD" else method)
        if target is None:
            allowed = ", ".join(sorted({*targets, *(["HEAD"] if "GET" in targets else [])}))
            detail = f"this path knows {allowed}"
            raise Refused(Problem("invalid-request", detail, 405, headers={"Allow": allowed}))
        return target


async def _send_stream(
    response: StreamingResponse, scope: Scope, send: Send, mark: dict[str, str]
) -> None:
    """
    The body part by part. A fault in the middle cannot be told any more: the answer is left without
    its end, and the server breaks the connection off.
    """
    if scope["method"] != "HEAD":
        try:
            async for part in response.body_iterator:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        except WheelTimerError as error:
            log.warning("an answer breaks off: %s", error, extra=mark)
            return
    await send({"type": "http.response.body", "body": b""})


def _check_actor(actor: Actor, target: Target, scope: Scope) -> None:
    """
    Whether this actor may do this to what the path names. Raises Forbidden or NotFound.

    A biz_type that stands elsewhere (in the body, in a task's row) is for the handler to judge.
    """
    scope["actor"] = actor
    actor.check_may(target.scopes)
    if actor.is_narrowed and "biz_type" in (params := scope.get("path_params", {})):
        actor.check_sees(params["biz_type"])


async def _seen_metrics(request: Request) -> Sees | None:
    actor = actor_of(request)
    return actor.sees if actor.is_narrowed else None


def _raw_path(scope: Scope) -> str:
    raw = scope.get("raw_path")
    return raw.decode("latin-1") if raw is not None else quote(scope["path"])


def _decoded(segment: str) -> str:
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        raise NotFound("the path is not UTF-8") from None


def _problem(error: Exception, request_id: str, label: str) -> Response:
    problem = problem_of(error)
    mark = {"request_id": request_id}
    if not problem.name:
        log.error("a request to %s failed", label, exc_info=error, extra=mark)
    elif problem.code >= 500:
        log.warning("a request to %s is refused: %s", label, error, extra=mark)
    else:
        log.debug("a request to %s is refused: %s", label, problem.detail, extra=mark)
    return response_of(problem, request_id)


async def _lifespan(receive: Receive, send: Send) -> None:
    """Nothing to do at start and stop: broker/app.py owns both."""
    while True:
        message: dict[str, Any] = dict(await receive())
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return
