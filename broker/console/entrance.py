"""Signing in and out: who a session is of, as the API would judge its key."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from broker.api.access import ADMIN, LOCAL, Access
from broker.api.actor import Actor
from broker.api.context import Context
from broker.api.peer import Peers
from broker.api.refusals import Refusals
from broker.console.session import COOKIE, LIFETIME_S, Seal, Session
from broker.console.shown import render
from broker.console.visit import HTML, cookie_attributes
from wheel_timer.bearer import KEY_PREFIX, split_key
from wheel_timer.errors import Forbidden, Unauthorized

ROOT: Final = "/console"
SIGN_IN: Final = "/console/sign-in"
SIGN_OUT: Final = "/console/sign-out"
HOME: Final = "/console/wheel"
# Printable ASCII without the backslash, which browsers take for a slash.
_OWN_PATH: Final = re.compile(r"/console(/[!-\[\]-~]*)?")


class Entrance:
    """The sign-in page, and what becomes of a cookie."""

    def __init__(self, context: Context, seal: Seal, peers: Peers) -> None:
        self._admin_key = context.settings.admin_key or None
        self._access = Access(self._admin_key, context.keys)
        self._refusals = Refusals(peers)
        self._peers = peers
        self._seal = seal

    async def actor(self, session: Session) -> Actor | None:
        """Who has signed in; None where the key counts for nothing any more."""
        if session.subject == "local":
            return LOCAL if self._admin_key is None else None
        if session.subject == "admin":
            return None if self._admin_key is None else ADMIN
        if session.given is None:
            return None
        try:
            return await self._access.owner(session.given)
        except Unauthorized:
            return None

    def admit(self, answer: Response, session: Session, request: Request) -> None:
        """Let the browser keep the session."""
        attributes = cookie_attributes(LIFETIME_S, is_secure=self._peers.is_https(request.scope))
        answer.set_cookie(COOKIE, self._seal.write(session), **attributes)

    async def sign_in(
        self, request: Request, session: Session | None, form: Mapping[str, str]
    ) -> Response:
        """GET: the page. POST: a key, for which there is a session from now on."""
        asked = form if request.method == "POST" else request.query_params
        onward = _own_path(asked.get("next", ""))
        if session is None:
            session = self._seal.begin("nobody", b"", time.time())
        status, error = 200, ""
        if request.method == "POST":
            try:
                begun = await self._opened(request, session, form)
            except Unauthorized as refused:
                status, error = 401, str(refused)
            else:
                answer: Response = RedirectResponse(onward, 303)
                self.admit(answer, begun, request)
                return answer
        values = {
            "error": error,
            "next": onward,
            "is_open": self._admin_key is None,
            "token": self._seal.token(session, SIGN_IN, "act"),
        }
        text = render("sign-in.html", visit=None, data=values)
        answer = Response(text, status, media_type=HTML)
        self.admit(answer, session, request)
        return answer

    async def _opened(self, request: Request, session: Session, form: Mapping[str, str]) -> Session:
        """The session that a key opens. Raises Unauthorized."""
        if not self._seal.is_token(form.get("token", ""), session, SIGN_IN, "act"):
            raise Unauthorized("this page was too old, or cookies are refused: try once more")
        given = form.get("key", "").strip().encode()
        if self._admin_key is None and not given.startswith(KEY_PREFIX):
            raise Unauthorized("this is no key: they begin with wtk_")
        try:
            actor = await self._access.of_key(given)
        except Unauthorized:
            bearer = (b"authorization", b"Bearer " + given)
            headers = [*request.scope["headers"], bearer]
            self._refusals.add({"client": request.scope.get("client"), "headers": headers})
            raise
        key = None if actor is ADMIN else split_key(given)
        subject, digest = ("admin", b"") if key is None else key
        return self._seal.begin(subject, digest, time.time())

    async def sign_out(
        self, request: Request, session: Session | None, form: Mapping[str, str]
    ) -> Response:
        """The browser forgets the session."""
        if request.method != "POST":
            return RedirectResponse(HOME, 303)
        token = form.get("token", "")
        if session is not None and not self._seal.is_token(token, session, SIGN_OUT, "act"):
            raise Forbidden("this form is not of this session: load the page again")
        answer = RedirectResponse(SIGN_IN, 303)
        answer.delete_cookie(COOKIE, path=ROOT)
        return answer


def _own_path(path: str) -> str:
    """Where to go on to: a page of ours, whatever a link says."""
    return path if _OWN_PATH.fullmatch(path) and not path.startswith(SIGN_IN) else HOME
