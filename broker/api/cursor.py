"""
Cursors of lists: where a page ended, for the query that it belongs to. Pure.

Opaque to who holds one, and of no use to another query: it carries a digest of the query's names
and values, less `limit` and `cursor`.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Final, TypeVar

import msgspec

from broker.api.problems import invalid

CURSOR_CHARACTERS_MAX: Final = 2048
_NOT_OF_THE_QUERY: Final = ("limit", "cursor")

T = TypeVar("T")


def encode_cursor(query: Mapping[str, str], place: object) -> str:
    """The cursor of a place (anything that msgspec writes as JSON) within a query."""
    text = msgspec.json.encode((_digest(query), place))
    return urlsafe_b64encode(text).decode().rstrip("=")


def decode_cursor(query: Mapping[str, str], cursor: str, kind: type[T]) -> T:
    """The place again. Raises Refused where it is no cursor, or one of another query."""
    if len(cursor) > CURSOR_CHARACTERS_MAX:
        raise invalid("cursor: not one that a list has given")
    try:
        text = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        digest, place = msgspec.json.decode(text, type=tuple[str, kind])  # type: ignore[valid-type]
    except (ValueError, msgspec.MsgspecError):
        raise invalid("cursor: not one that a list has given") from None
    if digest != _digest(query):
        raise invalid("cursor: it belongs to another query; only limit may change between pages")
    found: T = place
    return found


def _digest(query: Mapping[str, str]) -> str:
    asked = sorted((name, query[name]) for name in query if name not in _NOT_OF_THE_QUERY)
    return sha256(msgspec.json.encode(asked)).hexdigest()[:12]
