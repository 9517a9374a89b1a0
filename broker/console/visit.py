"""One request as a page sees it: who asks, what was sent, and the ways to answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from broker.api.actor import Actor, Scope
from broker.api.context import Context
from broker.api.problems import invalid
from broker.api.view import TaskItem
from broker.console import shown
from broker.console.session import Seal, Session, Step

HTML: Final = "text/html; charset=utf-8"
NOTICE_COOKIE: Final = "wheel_timer_notice"
NOTICE_S: Final = 60
NOTICE_CHARACTERS_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class Link:
    """A page in the menu."""

    name: str
    path: str
    is_here: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """
    What is asked before something is done. title: what it is, as a question. sentences: what will
    happen, to what (to how many, where there are many), and what stays. facts: name and value of
    what it is about. button: the verb. fields: what the form sends along. is_danger: it cannot be
    undone. back: where one goes who changes his mind. sample: some of many tasks, as they are at
    now_ms. count_href: where they are counted to the end, if they were not.
    """

    title: str
    sentences: Sequence[str]
    button: str
    back: str
    facts: Sequence[tuple[str, str]] = ()
    fields: Mapping[str, str] = field(default_factory=dict)
    is_danger: bool = False
    sample: Sequence[TaskItem] = ()
    now_ms: int = 0
    count_href: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """
    A request that may be here. params: of the path, decoded. form: of a POST, each name once, less
    the token. notice: a line that the page before has left.
    """

    context: Context
    request: Request
    actor: Actor
    session: Session
    seal: Seal
    menu: Sequence[Link]
    is_secure: bool
    notice: str | None
    form: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Where the visit is."""
        path: str = self.request.scope["path"]
        return path

    @property
    def params(self) -> Mapping[str, str]:
        """What the path's pattern says of it."""
        return self.request.path_params

    @property
    def query(self) -> dict[str, str]:
        """What is asked for; what a form left empty is as if it was not there."""
        pairs = self.request.query_params.multi_items()
        query = {name: value for name, value in pairs if value}
        if len({name for name, _ in pairs}) != len(pairs):
            raise invalid("a query name is given twice")
        return query

    @property
    def is_open(self) -> bool:
        """Whether nobody has to sign in: a server without ADMIN_KEY."""
        return self.session.subject == "local"

    @property
    def part(self) -> str | None:
        """The id of the part that a page fetches anew; None where the whole page is asked for."""
        return self.request.headers.get("hx-target")

    def may(self, *scopes: Scope) -> bool:
        """Whether the key has one of these scopes."""
        return not self.actor.scopes.isdisjoint(scopes)

    def token(self, step: Step = "review", path: str | None = None) -> str:
        """What a form that posts to the path (None: to this one) has to carry."""
        return self.seal.token(self.session, self.path if path is None else path, step)

    def render(self, template: str, data: object = None, status: int = 200) -> Response:
        """A page. data: what its template shows."""
        text = shown.render(template, visit=self, data=data)
        answer = Response(text, status, media_type=HTML)
        if self.notice is not None:
            answer.delete_cookie(NOTICE_COOKIE, path="/console")
        return answer

    def confirm(self, asked: Confirmation) -> Response:
        """The page that asks before something is done; its form posts to this path."""
        return self.render("confirm.html", asked)

    def done(self, path: str, text: str) -> Response:
        """What was asked for is done: go on to another page, which says so."""
        answer = RedirectResponse(path, 303)
        answer.set_cookie(
            NOTICE_COOKIE,
            self.seal.write_notice(self.session, text[:NOTICE_CHARACTERS_MAX]),
            **cookie_attributes(NOTICE_S, is_secure=self.is_secure),
        )
        return answer


def cookie_attributes(lifetime_s: int, *, is_secure: bool) -> dict[str, Any]:
    """Of every cookie of ours: no script reads it, no other site posts with it."""
    return {
        "max_age": lifetime_s,
        "path": "/console",
        "secure": is_secure,
        "httponly": True,
        "samesite": "lax",
    }
