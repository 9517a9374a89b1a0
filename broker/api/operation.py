"""
An operation of the API: one method on one path, with all that is said about it.

The same list of operations routes the requests and becomes the OpenAPI document, so neither can
know one that the other does not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from broker.api.actor import Scope
from broker.api.context import Context

Handler = Callable[[Context, Request], Awaitable[Response]]

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One good answer: what it means, the type of its body, and the headers it carries."""

    text: str
    body: Any = None
    media_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """
    One method on one path, as it is told to users.

    scope: what a key needs for it, one of several where there are some; None: open to everyone.
    query: name -> (JSON schema, what it means). headers: request headers that mean something.
    takes: media type -> type of the body; needs_body: false where none is as good. problems: names
    of problems.KINDS that it can be answered with, beside those that every operation of /v1 can.
    """

    method: str
    path: str
    name: str
    scope: Scope | tuple[Scope, ...] | None
    summary: str
    text: str = ""
    query: Mapping[str, tuple[Mapping[str, Any], str]] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    takes: Mapping[str, Any] = field(default_factory=dict)
    needs_body: bool = True
    answers: Mapping[int, Answer]
    problems: tuple[str, ...] = ()

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The scopes of which one is needed; none for what is open."""
        if self.scope is None:
            return ()
        return (self.scope,) if isinstance(self.scope, str) else self.scope


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Described):
    """The same with what does it."""

    handler: Handler


def json_answer(
    content: Any, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """An answer in JSON."""
    return Response(msgspec.json.encode(content), status, headers, JSON)
