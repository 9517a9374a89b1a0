"""A page: a path, the scope that it needs, what shows it and what acts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.responses import Response

from broker.api.actor import Scope
from broker.console.visit import Visit

Handler = Callable[[Visit], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """
    One path under /console.

    scope: what the key needs, one of several where there are some; None: any key that has signed
    in. show: GET. review: a POST of a form that is to be confirmed yet; changes nothing. act: a
    POST that was confirmed. menu: its name in the menu, for a page that stands there.
    """

    path: str
    scope: Scope | tuple[Scope, ...] | None
    show: Handler
    review: Handler | None = None
    act: Handler | None = None
    menu: str = ""

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The scopes of which one is needed; none where any key will do."""
        if self.scope is None:
            return ()
        return (self.scope,) if isinstance(self.scope, str) else self.scope
