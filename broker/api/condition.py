"""Conditions of a change: the version that the caller has seen, by ETag or in the body."""

from __future__ import annotations

import re
from typing import Final

from starlette.requests import Request

from broker.api.context import Context
from broker.api.problems import invalid
from wheel_timer.errors import FieldError, InvalidTask, StaleVersion
from wheel_timer.store.biz import load

IF_MATCH: Final = {"If-Match": "the ETag that was seen; 412 where it is no longer the newest"}
IF_NONE_MATCH: Final = {"If-None-Match": "*: only where there is none yet; else 412"}
UNLESS_SEEN: Final = {"If-None-Match": "an ETag that was seen; 304 where it is still the newest"}
_ETAG: Final = re.compile(r'(?:W/)?"([1-9]\d{0,17})"', re.ASCII)


async def expected_version(
    context: Context, request: Request, name: str, said: object = None
) -> int | None:
    """
    The version that the change of the biz_type `name` is for; 0: there must be none; None: any.

    said: the version in the body, where there is one. Raises StaleVersion where the conditions
    contradict each other, Refused or InvalidTask for one that is not understood.
    """
    if_match = request.headers.get("if-match")
    if_none_match = request.headers.get("if-none-match")
    version = said if isinstance(said, int) and not isinstance(said, bool) else None
    if version is not None and version < 1:
        raise InvalidTask([FieldError("a version is 1 or more", "#/version")])
    if if_none_match is not None:
        if if_none_match.strip() != "*":
            raise invalid("If-None-Match: only * is known here, for a create")
        if if_match is not None or version is not None:
            raise invalid("If-None-Match: * says that there is none; another condition that it is")
        return 0
    if if_match is None:
        return version
    if if_match.strip() == "*":
        stored = await load(context.db, name)
        if stored is None:
            raise StaleVersion(f"the biz_type {name!r} does not exist")
        seen = stored.version
    else:
        found = _ETAG.fullmatch(if_match.strip())
        if found is None:
            raise invalid('If-Match is one version as the ETag has it: "12"')
        seen = int(found[1])
    if version is not None and version != seen:
        raise StaleVersion(f"If-Match says version {seen}, the body {version}")
    return seen


def has_seen(request: Request, version: int) -> bool:
    """Whether If-None-Match, one ETag or several or *, names this version. For a GET."""
    if_none_match = request.headers.get("if-none-match", "")
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return "*" in tags or f'"{version}"' in tags
