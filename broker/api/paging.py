"""Pages of a list: how many items, and where the next page begins. Pure."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, Final

from broker.api.problems import invalid

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1000
# What the list's operation says of its query.
PAGING: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "limit": (
        {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT},
        "at most so many on a page",
    ),
    "cursor": ({"type": "string"}, "next_cursor of the page before"),
}


def limit_of(text: str | None) -> int:
    """The size of a page by the query's limit. Raises Refused."""
    if text is None:
        return LIMIT_DEFAULT
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= LIMIT_MAX):
        raise invalid(f"limit: a number from 1 to {LIMIT_MAX}")
    return int(text)


def after_of(cursor: str | None) -> str:
    """The name after which a page begins; before all of them where there is no cursor."""
    if cursor is None:
        return ""
    try:
        return urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
    except ValueError:
        raise invalid("cursor: not one that a list has given") from None


def cursor_of(name: str) -> str:
    """The cursor of the page after this name."""
    return urlsafe_b64encode(name.encode()).decode().rstrip("=")
