"""
One call of the API before it is sent, and what its answer means: all that Client and AsyncClient
have in common. Pure.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

import msgspec

from wheel_timer.client.errors import ClientError, ServerError, TooManyRequests, Unreachable

TRIES: Final = 3
FIRST_PAUSE_S: Final = 0.1
PAUSE_FACTOR: Final = 4
# A server that says "in a minute" is not waited for: the caller knows better what to do meanwhile.
PAUSE_S_MAX: Final = 5.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """
    is_repeatable: sending it twice does what sending it once does. timeout_s: where the work takes
    longer than the client's own total; None is that one.
    """

    method: str
    path: str
    read: Callable[[bytes], T]
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_repeatable: bool = True
    timeout_s: float | None = None


class Tries:
    """The tries of one call: how long to wait after each that failed, and when to give up."""

    def __init__(self, call: Call[Any], tries: int = TRIES) -> None:
        self._call = call
        self._left = tries
        self._pause_s = FIRST_PAUSE_S

    def pause_s(self, error: ClientError) -> float:
        """
        Seconds until the next try. Raises the error where there is none: it would change nothing,
        it might do twice what is to be done once, or the tries are used up.
        """
        self._left -= 1
        is_safe = self._call.is_repeatable or has_no_effect(error)
        if not (error.is_retryable and is_safe and self._left > 0):
            raise error
        # Spread, so that a thousand clients that failed together do not come back together.
        pause_s = self._pause_s * random.uniform(0.5, 1.0)
        self._pause_s *= PAUSE_FACTOR
        if error.retry_after_s is not None:
            pause_s = max(pause_s, error.retry_after_s)
        if pause_s > PAUSE_S_MAX:
            raise error
        return pause_s


def has_no_effect(error: ClientError) -> bool:
    """Whether a call that ended so has surely changed nothing."""
    if isinstance(error, Unreachable):
        return not error.was_sent
    return isinstance(error, TooManyRequests)


def reader(kind: type[T]) -> Callable[[bytes], T]:
    """Reads JSON of a type. What does not fit is an answer of something else."""
    decoder = msgspec.json.Decoder(kind)

    def read(body: bytes) -> T:
        try:
            return decoder.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ServerError(200, {"title": f"not an answer of wheel-timer: {error}"}) from None

    return read


def segment(text: str) -> str:
    """One segment of a path; a biz_id may be anything, also `..` or hold a slash."""
    quoted = quote(text, safe="")
    return quoted.replace(".", "%2E") if quoted in (".", "..") else quoted


def query_of(given: Mapping[str, Any]) -> dict[str, str]:
    """Query values as texts, without those that are None. Raises ValueError: a naive datetime."""
    return {name: _text(value) for name, value in given.items() if value is not None}


def moment(value: Any) -> Any:
    """A time as the API takes it. Raises ValueError for a datetime without an offset."""
    if isinstance(value, datetime):
        if value.tzinfo is None or value.utcoffset() is None:
            raise ValueError("a datetime without a time zone: which moment is meant?")
        return value.isoformat()
    return value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(moment(value))
