"""What a search form asks for, as the API's own query. Shared by the lists of tasks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from starlette.datastructures import URL

# The names of GET /v1/tasks that a form may carry.
FILTERS: Final = (
    *("biz_type", "status", "biz_id", "biz_id_prefix", "http_status", "schedule_id"),
    *("start_from", "start_to", "finish_from", "finish_to"),
)
TIMES: Final = ("start_from", "start_to", "finish_from", "finish_to")
# What a field of the kind datetime-local sends; it is labelled as UTC.
_LOCAL: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,3})?)?", re.ASCII)


def filters_of(query: Mapping[str, str]) -> dict[str, str]:
    """The filters of a query, for the API: times with their zone, a `*` as a prefix."""
    asked = {name: query[name].strip() for name in FILTERS if query.get(name, "").strip()}
    for name in TIMES:
        if name in asked:
            asked[name] = with_zone(asked[name])
    if asked.get("biz_id", "").endswith("*"):
        asked["biz_id_prefix"] = asked.pop("biz_id")[:-1]
        if not asked["biz_id_prefix"]:
            del asked["biz_id_prefix"]
    return asked


def with_zone(text: str) -> str:
    """2026-12-01T09:00 as RFC 3339 in UTC; what is of no such form as it is."""
    if not _LOCAL.fullmatch(text):
        return text
    return f"{text}:00Z" if text.count(":") == 1 else f"{text}Z"


def as_field(moment: str) -> str:
    """RFC 3339 in UTC as a datetime-local field holds it; anything else as nothing."""
    plain = moment.removesuffix("Z")
    return plain if moment.endswith("Z") and _LOCAL.fullmatch(plain) else ""


def linked(path: str, query: Mapping[str, str]) -> str:
    """A path with a query."""
    return str(URL(path).include_query_params(**query)) if query else path
