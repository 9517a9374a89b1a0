"""
Every request to /console: access, routing, tokens, headers, errors. Beside the API, not in it.

Read: who has not signed in is sent to the sign-in page; on a server without ADMIN_KEY everybody is
the user of this machine, under the same rules as in the API. Change: a POST of one of our own
pages, with a token of this session and path; the token of the step `act` is on the confirming page
only.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit
from uuid import UUID

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Receive, Scope, Send

from broker.api.access import LOCAL, check_local
from broker.api.actor import Actor
from broker.api.body import Bodies, ClientGone
from broker.api.context import Context
from broker.api.peer import Peers
from broker.api.problems import INTERNAL, KINDS, Problem, Refused, invalid, problem_of
from broker.console import assets
from broker.console.entrance import HOME, ROOT, SIGN_IN, SIGN_OUT, Entrance
from broker.console.page import Page
from broker.console.pages import PAGES
from broker.console.session import COOKIE, Seal, Session, Step
from broker.console.shown import render
from broker.console.visit import HTML, NOTICE_COOKIE, Link, Visit
from wheel_timer import metrics
from wheel_timer.errors import Forbidden, NotFound

log = logging.getLogger(__name__)

# No form of ours is larger; a biz_type's configuration is the largest.
FORM_BYTES_MAX: Final = 1 << 20
FIELDS_MAX: Final = 200
_OWN_PAGE: Final = frozenset({b"same-origin", b"none"})
_HEADERS: Final = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        b"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)
_AS_LABEL: Final = str.maketrans("{", ":", "}")


class Console:
    """
    The ASGI app of the console.

    cluster: the database's identity, from which the cookies' secret is drawn, with ADMIN_KEY.
    """

    def __init__(self, context: Context, cluster: UUID, *, pages: Sequence[Page] = PAGES) -> None:
        self._context = context
        self._admin_key = context.settings.admin_key or None
        self._peers = Peers(context.settings.trusted_proxies)
        self._seal = Seal(self._admin_key, cluster.bytes)
        self._entrance = Entrance(context, self._seal, self._peers)
        self._bodies = Bodies(FORM_BYTES_MAX)
        self._pages = [(compile_path(page.path)[0], page) for page in pages]
        self._id_prefix = os.urandom(6).hex()
        self._id_count = count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        began_s = time.perf_counter()
        visited = _Visited(f"{self._id_prefix}-c{next(self._id_count):x}")
        request = Request(scope, receive)
        try:
            answer = await self._answer(request, visited)
        except ClientGone:
            return
        except Exception as error:  # noqa: BLE001 - the edge of the process: every fault is answered
            answer = self._failed(error, visited)
        own = list(_HEADERS)
        if "cache-control" not in answer.headers:
            own.append((b"cache-control", b"no-store"))
        own.append((b"x-request-id", visited.request_id.encode()))
        await send(
            {
                "type": "http.response.start",
                "status": answer.status_code,
                "headers": [*answer.raw_headers, *own],
            }
        )
        body = b"" if scope["method"] == "HEAD" else answer.body
        await send({"type": "http.response.body", "body": body})
        metrics.http_request(visited.label, answer.status_code, time.perf_counter() - began_s)

    async def _answer(self, request: Request, visited: _Visited) -> Response:
        path, method = request.scope["path"], request.method
        if method not in ("GET", "HEAD", "POST"):
            raise _not_taken("GET, HEAD, POST")
        if self._admin_key is None:
            check_local(method, request.scope["headers"])
        if path.startswith(assets.PREFIX):
            visited.label = "/console/static"
            if method == "POST":
                raise _not_taken("GET, HEAD")
            return assets.serve(request)
        form: dict[str, str] = {}
        if method == "POST":
            _check_own_page(request)
            form = await self._form(request)
        session = self._seal.read(request.cookies.get(COOKIE), time.time())
        if path in (SIGN_IN, SIGN_OUT):
            visited.label = path
            through = self._entrance.sign_in if path == SIGN_IN else self._entrance.sign_out
            return await through(request, session, form)
        actor = None if session is None else await self._entrance.actor(session)
        is_new = session is None or actor is None
        if is_new and self._admin_key is None:
            session, actor = self._seal.begin("local", b"", time.time()), LOCAL
        if session is None or actor is None:
            return _to_sign_in(request)
        visited.visit = self._visit(request, actor, session, form)
        answer = await self._page(request, visited)
        if is_new:
            self._entrance.admit(answer, session, request)
        return answer

    async def _page(self, request: Request, visited: _Visited) -> Response:
        path, method = request.scope["path"], request.method
        if path in (ROOT, ROOT + "/"):
            visited.label = ROOT
            return RedirectResponse(HOME, 303)
        page = self._found(request)
        visited.label = page.path.translate(_AS_LABEL)
        visit = visited.visit
        assert visit is not None
        visit.actor.check_may(page.scopes)
        if visit.actor.is_narrowed and "biz_type" in visit.params:
            visit.actor.check_sees(visit.params["biz_type"])
        if method != "POST":
            return await page.show(visit)
        step: Step = "act" if visit.form.get("step") == "act" else "review"
        handler = page.act if step == "act" else page.review
        if handler is None:
            raise _not_taken("GET, HEAD")
        token = visit.form.get("token", "")
        if not self._seal.is_token(token, visit.session, path, step):
            raise Forbidden(
                "this form is not of this session, or too old: go back, load its page again, and"
                " send it from there. Nothing was changed."
            )
        visited.visit = visit = _without(visit, "token", "step")
        return await handler(visit)

    def _found(self, request: Request) -> Page:
        for regex, page in self._pages:
            if (match := regex.match(request.scope["path"])) is not None:
                request.scope["path_params"] = match.groupdict()
                return page
        raise NotFound("there is no such page")

    def _visit(
        self, request: Request, actor: Actor, session: Session, form: Mapping[str, str]
    ) -> Visit:
        request.scope["actor"] = actor
        is_part = "hx-request" in request.headers
        path: str = request.scope["path"]
        notice = self._seal.read_notice(session, request.cookies.get(NOTICE_COOKIE))
        return Visit(
            context=self._context,
            request=request,
            actor=actor,
            session=session,
            seal=self._seal,
            menu=[
                Link(page.menu, page.path, f"{path}/".startswith(f"{page.path}/"))
                for _, page in self._pages
                if page.menu and (not page.scopes or not actor.scopes.isdisjoint(page.scopes))
            ],
            is_secure=self._peers.is_https(request.scope),
            notice=None if is_part or request.method == "POST" else notice,
            form=form,
        )

    async def _form(self, request: Request) -> dict[str, str]:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        body = await self._bodies.read(request)
        if body and kind != "application/x-www-form-urlencoded":
            raise Refused(Problem("invalid-request", "a form is urlencoded", 415))
        try:
            pairs = parse_qsl(
                body.decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict"
            )
        except ValueError:
            raise invalid("the form cannot be read", status=400) from None
        form = dict(pairs)
        if len(form) != len(pairs):
            raise invalid("a field is given twice", status=400)
        return form

    def _failed(self, error: Exception, visited: _Visited) -> Response:
        """The page that says what is wrong."""
        problem = problem_of(error)
        mark = {"request_id": visited.request_id}
        if not problem.name:
            log.error("a request to %s failed", visited.label, exc_info=error, extra=mark)
        else:
            log.debug("a request to %s is refused: %s", visited.label, error, extra=mark)
        values = {
            "status": problem.code,
            "title": KINDS.get(problem.name, INTERNAL).title,
            "problem": problem,
            "request_id": visited.request_id,
        }
        text = render("error.html", visit=visited.visit, data=values)
        return Response(text, problem.code, dict(problem.headers), HTML)


class _Visited:
    """What becomes known of a request on its way, for who answers it when it fails."""

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.label = "/console/other"
        self.visit: Visit | None = None


def with_console(api: ASGIApp, console: ASGIApp) -> ASGIApp:
    """The API, and the console beside it."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        # Nearly every request is a program's: it is told by one look.
        is_like_ours = scope["type"] == "http" and scope["path"].startswith(ROOT)
        is_ours = is_like_ours and scope["path"][len(ROOT) : len(ROOT) + 1] in ("", "/")
        await (console if is_ours else api)(scope, receive, send)

    return app


def _check_own_page(request: Request) -> None:
    """Raises Forbidden where a POST is not of a page of ours. Browsers tell; who does not has a
    token to show all the same."""
    headers = request.scope["headers"]
    sites = [value for name, value in headers if name == b"sec-fetch-site"]
    origin = request.headers.get("origin")
    if sites:
        is_own = all(site in _OWN_PAGE for site in sites)
    else:
        is_own = (
            origin is None
            or urlsplit(origin).netloc.lower() == request.headers.get("host", "").lower()
        )
    if not is_own:
        raise Forbidden("a page of another origin may change nothing")


def _to_sign_in(request: Request) -> Response:
    if "hx-request" in request.headers:
        # Only a part of a page is asked for: the whole of it is to come again.
        return Response("", 401, {"HX-Refresh": "true"})
    url = request.scope["path"]
    if request.method != "POST" and request.url.query:
        url += f"?{request.url.query}"
    return RedirectResponse(f"{SIGN_IN}?{urlencode({'next': url})}", 303)


def _without(visit: Visit, *names: str) -> Visit:
    form = {name: value for name, value in visit.form.items() if name not in names}
    return replace(visit, form=form)


def _not_taken(allowed: str) -> Refused:
    detail = f"this path knows {allowed}"
    return Refused(Problem("invalid-request", detail, 405, headers={"Allow": allowed}))
