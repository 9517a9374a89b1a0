"""
What a callback may be: its URL, method, headers and deadline, checked when it is configured. Pure.

Whether the address behind the URL may be called is judged when it is called (the resolver), because
a name can point elsewhere by then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

from msgspec import Meta, Struct

from wheel_timer.errors import FieldError

URL_CHARACTERS_MAX: Final = 2083
HEADERS_MAX: Final = 64
HEADER_BYTES_MAX: Final = 8192
TIMEOUT_S_MIN: Final = 0.1
TIMEOUT_S_MAX: Final = 600.0

_URL_CHARACTERS: Final = re.compile(r"[!-\[\]-~]+", re.ASCII)  # visible ASCII but the backslash
_LAST_LABEL_NUMERIC: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?", re.IGNORECASE)
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)
_HEADER_VALUE: Final = re.compile(r"[\t -~]*", re.ASCII)
_HOP_BY_HOP: Final = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# What the caller of the callback writes itself; a second one would contradict it.
_OURS: Final = frozenset(
    {"host", "content-length", "content-encoding", "content-type", "expect", "user-agent"}
)
_OUR_PREFIXES: Final = ("webhook-", "wheel-timer-")
_SECRET_NAMES: Final = frozenset({"authorization", "cookie"})
_SECRET_SUFFIXES: Final = ("-key", "-token", "-secret")

Method = Literal["POST", "PUT", "PATCH", "DELETE", "GET"]
Url = Annotated[str, Meta(max_length=URL_CHARACTERS_MAX, description="http or https, absolute")]
TimeoutS = Annotated[
    float, Meta(ge=TIMEOUT_S_MIN, le=TIMEOUT_S_MAX, description="seconds, DNS to last byte")
]


class Mark(Struct, frozen=True, forbid_unknown_fields=True):
    """Stands where a write-only value is set."""

    set: bool = True


class Callback(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A task's own callback, in place of its biz_type's. What is left out is the biz_type's."""

    url: Url
    method: Method | None = None
    headers: dict[str, str] = {}
    timeout: TimeoutS | None = None


def is_write_only(header: str) -> bool:
    """Whether a header's name says that its value is a credential."""
    name = header.lower()
    return name in _SECRET_NAMES or name.endswith(_SECRET_SUFFIXES)


def masked(headers: Mapping[str, str]) -> dict[str, str | Mark]:
    """The headers as they may be shown."""
    return {
        name: Mark() if is_write_only(name) else value for name, value in sorted(headers.items())
    }


def check_url(url: str, pointer: str) -> list[FieldError]:
    """What is wrong with a callback URL; its address is judged when it is called."""
    if len(url) > URL_CHARACTERS_MAX:
        return [FieldError(f"longer than {URL_CHARACTERS_MAX} characters", pointer)]
    if not _URL_CHARACTERS.fullmatch(url):
        detail = "only visible ASCII characters; percent-encode the others"
        return [FieldError(detail, pointer)]
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return [FieldError("not a URL", pointer)]
    if parts.scheme not in ("http", "https"):
        return [FieldError("only http:// and https:// can be called", pointer)]
    if "@" in parts.netloc:
        detail = "no user information in a URL; use an authorization header"
        return [FieldError(detail, pointer)]
    if not parts.hostname or port == 0:
        return [FieldError("not a URL with a host", pointer)]
    if "%" in parts.hostname:
        return [FieldError("no zone and no percent-encoding in a host", pointer)]
    if looks_numeric(parts.hostname) and not _is_address(parts.hostname):
        detail = "an IPv4 address is four decimal numbers: 192.0.2.1"
        return [FieldError(detail, pointer)]
    if parts.fragment:
        return [FieldError("a fragment (#...) is never sent; leave it out", pointer)]
    # Only who checks a URL needs the parser of what will call it, which is stricter than urlsplit:
    # 1.2.3.999 is no host to it.
    import httpx

    try:
        httpx.URL(url)
    except httpx.InvalidURL as error:
        return [FieldError(f"not a URL: {error}", pointer)]
    return []


def looks_numeric(host: str) -> bool:
    """Whether a host is, to some, an IPv4 address: 2130706433, 0x7f.1, 0177.0.0.1, 1.2.3.4."""
    return _LAST_LABEL_NUMERIC.fullmatch(host) is not None


def _is_address(host: str) -> bool:
    try:
        IPv4Address(host)
    except ValueError:
        return False
    return True


def check_headers(headers: Mapping[str, str], pointer: str) -> list[FieldError]:
    """What is wrong with callback headers: names, values, how many and how large."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for name, value in headers.items():
        lower = name.lower()
        where = f"{pointer}/{escaped(name)}"
        if not _HEADER_NAME.fullmatch(name):
            errors.append(FieldError("not a header name", where))
        elif lower in _HOP_BY_HOP or lower in _OURS or lower.startswith(_OUR_PREFIXES):
            errors.append(FieldError("this header is written by wheel-timer itself", where))
        elif lower in seen:
            errors.append(FieldError("given twice", where))
        seen.add(lower)
        if not _HEADER_VALUE.fullmatch(value):
            errors.append(FieldError("only printable ASCII in a header value", where))
    if len(headers) > HEADERS_MAX:
        errors.append(FieldError(f"more than {HEADERS_MAX} headers", pointer))
    if sum(len(name) + len(value) for name, value in headers.items()) > HEADER_BYTES_MAX:
        errors.append(FieldError(f"more than {HEADER_BYTES_MAX} bytes of headers", pointer))
    return errors


def escaped(token: str) -> str:
    """One token of a JSON pointer (RFC 6901)."""
    return token.replace("~", "~0").replace("/", "~1")
