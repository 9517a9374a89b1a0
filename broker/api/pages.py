"""
What the API says about itself: /openapi.json, /docs, /problems. Built once, the same for everyone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from html import escape
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from broker.api.docs import page, rendered, with_code
from broker.api.openapi import document
from broker.api.operation import JSON, Answer, Described
from broker.api.problems import KINDS
from wheel_timer.errors import NotFound

HTML: Final = "text/html; charset=utf-8"
_HEADERS: Final = {
    # The pages have no script and no outside host, and are to stay so.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-cache",
}

Page = Callable[[Request], Awaitable[Response]]


def _open(path: str, name: str, summary: str, answers: dict[int, Answer]) -> Described:
    return Described(
        method="GET", path=path, name=name, scope=None, summary=summary, answers=answers
    )


# Routes that are not of /v1: the pages here, and those of wheel_timer/ops.py.
DESCRIBED: Final = (
    _open(
        "/healthz",
        "getHealth",
        "Whether the process turns; depends on nothing",
        {200: Answer(text="It does", body=dict[str, Any])},
    ),
    _open(
        "/readyz",
        "getReadiness",
        "Whether this process can do its work now",
        {
            200: Answer(text="It can; `degraded` lists what is away", body=dict[str, Any]),
            503: Answer(text="It cannot, or it is stopping", body=dict[str, Any]),
        },
    ),
    Described(
        method="GET",
        path="/metrics",
        name="getMetrics",
        scope="read",
        summary="Metrics for Prometheus, summed over the workers",
        answers={200: Answer(text="The metrics", body=str, media_type="text/plain")},
    ),
    _open(
        "/openapi.json",
        "getOpenapi",
        "This description",
        {200: Answer(text="An OpenAPI 3.1 document", body=dict[str, Any])},
    ),
    _open(
        "/docs",
        "getDocs",
        "This description to read",
        {200: Answer(text="A page", body=str, media_type="text/html")},
    ),
    _open(
        "/problems",
        "listProblems",
        "Every type of problem",
        {200: Answer(text="A page", body=str, media_type="text/html")},
    ),
    Described(
        method="GET",
        path="/problems/{name}",
        name="getProblem",
        scope=None,
        summary="One type of problem: what causes it and what to do",
        answers={200: Answer(text="A page", body=str, media_type="text/html")},
        problems=("not-found",),
    ),
)


def pages(operations: Sequence[Described]) -> dict[str, Page]:
    """path -> endpoint of every page."""
    described = document([*operations, *DESCRIBED])
    problems = {name: page(name, _problem(name)) for name in KINDS}

    async def problem(request: Request) -> Response:
        name: str = request.path_params["name"]
        if name not in problems:
            raise NotFound("there is no problem type of this name")
        return _answer(problems[name], HTML)

    return {
        "/openapi.json": _fixed(msgspec.json.encode(described), JSON),
        "/docs": _fixed(rendered(described), HTML),
        "/problems": _fixed(page("Problems", "".join(map(_problem, KINDS))), HTML),
        "/problems/{name}": problem,
    }


def _fixed(content: bytes, media_type: str) -> Page:
    async def fixed(_: Request) -> Response:
        return _answer(content, media_type)

    return fixed


def _answer(content: bytes, media_type: str) -> Response:
    return Response(content, 200, _HEADERS, media_type)


def _problem(name: str) -> str:
    kind = KINDS[name]
    return (
        f'<section id="{name}"><h2><a href="/problems/{name}">{name}</a></h2>'
        f"<p><b>{kind.status}</b> {escape(kind.title)}</p><p>{with_code(kind.text)}</p></section>"
    )
