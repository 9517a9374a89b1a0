"""What a handler may return, and the HTTP answer that it becomes. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, NamedTuple

RELEASE_S_MAX: Final = 2_592_000  # 30 days
RELEASE_HEADER: Final = "wheel-timer-release"


class Release(NamedTuple):
    """Call again after so many seconds (or a timedelta), 1 s to 30 days; no failure is counted."""

    after: float | timedelta


class Gone(NamedTuple):
    """This can never succeed: the task is failed at once. reason is shown with it, 256 bytes."""

    reason: str = ""


class Reply(NamedTuple):
    """An HTTP answer. headers: by lower-case name."""

    status: int
    headers: Mapping[str, str] = {}
    body: bytes = b""


def reply_of(returned: object) -> Reply:
    """
    The answer for what a handler has returned: None, a Release, a Gone, or a Reply of its own.
    Raises TypeError for anything else, ValueError for a release out of range.
    """
    match returned:
        case None:
            return Reply(204)
        case Reply():
            return returned
        case Release():
            return Reply(204, {RELEASE_HEADER: str(_seconds(returned.after))})
        case Gone():
            return plain(410, returned.reason or "gone")
    raise TypeError(f"a handler returns None, Release, Gone or Reply, not {type(returned)}")


def is_handled(reply: Reply) -> bool:
    """Whether the work is done: a release, or any answer but a 2xx, asks for the callback again."""
    return 200 <= reply.status < 300 and not any(
        name.lower() == RELEASE_HEADER for name in reply.headers
    )


def plain(status: int, text: str, **headers: Any) -> Reply:
    """An answer in words. headers: retry_after becomes retry-after."""
    given = {name.replace("_", "-"): str(value) for name, value in headers.items()}
    return Reply(status, {"content-type": "text/plain; charset=utf-8"} | given, text.encode())


def _seconds(after: float | timedelta) -> int:
    """Whole seconds, rounded up: never sooner than asked for."""
    seconds = after.total_seconds() if isinstance(after, timedelta) else after
    if not 0 < seconds <= RELEASE_S_MAX:
        raise ValueError(f"a release takes 1 to {RELEASE_S_MAX} seconds, not {seconds}")
    return math.ceil(seconds)
