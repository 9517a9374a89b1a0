"""`Authorization: Bearer KEY`, compared in constant time."""

from __future__ import annotations

from collections.abc import Iterable
from hmac import compare_digest


def given_key(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The key that a request carries, or None where it carries none."""
    for name, value in headers:
        if name == b"authorization":
            scheme, _, key = value.partition(b" ")
            return key.strip() if scheme.lower() == b"bearer" else b""
    return None


def is_key(given: bytes | None, key: str) -> bool:
    """Whether a request's key is this one."""
    return given is not None and compare_digest(given, key.encode())
