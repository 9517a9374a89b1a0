"""`Authorization: Bearer KEY`: what a request carries, and whether it is the one. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from hmac import compare_digest
from typing import Final, NamedTuple

# Keys are wtk_ID_SECRET: ID hex digits, no secret; SECRET random bytes in URL-safe base64.
KEY_PREFIX: Final = b"wtk_"


class GivenKey(NamedTuple):
    """A key of the form wtk_ID_SECRET, as it came. digest: SHA-256 of its secret."""

    key_id: str
    digest: bytes


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


def split_key(given: bytes) -> GivenKey | None:
    """The parts of a key of our form; None where it is of another."""
    if not given.startswith(KEY_PREFIX):
        return None
    key_id, _, secret = given[len(KEY_PREFIX) :].partition(b"_")
    return GivenKey(key_id.decode("latin-1"), sha256(secret).digest())


def covers(pattern: str, other: str) -> bool:
    """
    Whether every biz_type that `other` names (a name, or a prefix and *) is one of `pattern`.

    >>> covers("orders*", "orders.*"), covers("orders.*", "orders*"), covers("orders", "orders")
    (True, False, True)
    """
    if pattern.endswith("*"):
        return other.startswith(pattern[:-1])
    return other == pattern
