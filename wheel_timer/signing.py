"""
Signatures by Standard Webhooks (standardwebhooks.com): how a receiver knows that we called. Pure.

    signed    ID.TIMESTAMP.BODY, the body's bytes exactly as they are sent
    signature "v1," + base64(HMAC-SHA256(key, signed)); while a secret rotates one per secret,
              separated by a space: the receiver needs to know only one of them
    secret    "whsec_" + base64(key); the prefix may be missing

The sender is `broker/attempt.py`; who receives verifies with `verify`.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Final

SECRET_PREFIX: Final = "whsec_"
TOLERANCE_S: Final = 300  # the standard's: older or newer than this is a replay or a wrong clock
_TIMESTAMP_DIGITS_MAX: Final = 12  # more is no moment, and int() need not see a megabyte of them


def key_of(secret: str) -> bytes:
    """The key that a secret stands for. Raises ValueError where it is not base64, or empty."""
    key = b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    if not key:
        raise ValueError("an empty secret")
    return key


def sign(keys: Sequence[bytes], webhook_id: str, timestamp_s: int, body: bytes) -> str:
    """
    The value of webhook-signature: one signature for each key.

    >>> sign([b"0123456789abcdef"], "m1", 1800000000, b"{}")
    'v1,t3sKVzxX1dE0ecBMN79IuetgFdmMaq5k8UJJA293aM4='
    """
    signed = b"%b.%d.%b" % (webhook_id.encode(), timestamp_s, body)
    return " ".join("v1," + b64encode(hmac.digest(key, signed, "sha256")).decode() for key in keys)


def verify(
    keys: Sequence[bytes],
    webhook_id: str,
    timestamp: str,
    signature: str,
    body: bytes,
    now_s: float,
    tolerance_s: float = TOLERANCE_S,
) -> str | None:
    """
    What is wrong with a callback's signature, in words; None where it is right.

    webhook_id, timestamp, signature: the headers' values. body: as it came, before any parsing.
    """
    if not (timestamp.isdecimal() and timestamp.isascii()):
        return "webhook-timestamp is not a number"
    timestamp_s = int(timestamp[:_TIMESTAMP_DIGITS_MAX])
    if abs(now_s - timestamp_s) > tolerance_s or len(timestamp) > _TIMESTAMP_DIGITS_MAX:
        return f"webhook-timestamp is {abs(now_s - timestamp_s):.0f} s away from this clock"
    expected = sign(keys, webhook_id, timestamp_s, body).split(" ")
    given = signature.split(" ")
    # No early end: the time taken must not say how much of a signature was right.
    matches = [hmac.compare_digest(one.encode(), e.encode()) for one in given for e in expected]
    return None if any(matches) else "no signature matches"
