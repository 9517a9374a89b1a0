"""
What a callback looks like in a terminal: `wheel-timer listen`, and `/demo/echo` of `up`.

    ← 12:00:03.001 UTC  0.6 ms late  POST /demo/echo  default  attempt 1
        webhook-id: 01980a4c-3b61-8000-9d0e-1f6f3c1a2b4d
        wheel-timer-start-time: 2026-12-01T12:00:03.000Z
        {"hello": "wheel"}

Lateness is arrival by this machine's clock minus the start_time that the callback carries. What
came over the wire is shown without control characters (a payload must not move a cursor), and the
value of a header that looks like a secret is not shown at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from wheel_timer.callback import is_write_only

if TYPE_CHECKING:
    from starlette.routing import Route

BODY_CHARS_MAX: Final = 400
GOOD: Final = "signature good"  # the one verdict that is not shown in red
_UNSEEN: Final = frozenset(
    {"accept", "accept-encoding", "connection", "content-length", "host", "transfer-encoding"}
)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]+")

_RESET, _DIM, _GREEN, _RED, _CYAN = "\x1b[0m", "\x1b[2m", "\x1b[32m", "\x1b[1;31m", "\x1b[36m"


class Arrival(NamedTuple):
    """One callback as it came in. headers: lower-case names. at_ms: when, epoch ms."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    at_ms: float

    @property
    def start_time_ms(self) -> float | None:
        """The start_time it carries; None where it is no callback of ours."""
        text = self.headers.get("wheel-timer-start-time")
        try:
            return datetime.fromisoformat(text).timestamp() * 1_000 if text else None
        except ValueError:
            return None

    @property
    def late_ms(self) -> float | None:
        """From start_time to the arrival; negative: it came early."""
        start_ms = self.start_time_ms
        return None if start_ms is None else self.at_ms - start_ms


def as_text(arrival: Arrival, *, signature: str = "", color: bool = False) -> str:
    """The block shown above, with its newline. signature: GOOD, what is wrong, or nothing."""
    late, late_style = _lateness(arrival)
    words = [
        (_CYAN, "←"),
        ("", f"{_clock(arrival.at_ms)} UTC"),
        (late_style, late),
        (_DIM, f"{arrival.method} {arrival.path}"),
        ("", arrival.headers.get("wheel-timer-biz-type", "")),
        ("", _attempt(arrival)),
        (_GREEN if signature == GOOD else _RED, signature),
    ]
    lines = ["  ".join(_styled(style, text, color) for style, text in words if text)]
    lines += [_styled(_DIM, f"    {name}: {value}", color) for name, value in _shown(arrival)]
    if arrival.body:
        lines.append("    " + _clean(arrival.body.decode(errors="replace")))
    return "\n".join(lines) + "\n"


def as_json(arrival: Arrival, *, signature: str = "") -> str:
    """The same as one line of JSON, for machines."""
    late_ms = arrival.late_ms
    fields: dict[str, object] = {
        "arrived": datetime.fromtimestamp(arrival.at_ms / 1_000, UTC).isoformat(
            timespec="milliseconds"
        ),
        "late_ms": None if late_ms is None else round(late_ms, 3),
        "method": arrival.method,
        "path": arrival.path,
        "headers": dict(_shown(arrival)),
        "body": arrival.body.decode(errors="replace"),
    }
    if signature:
        fields["signature"] = signature
    return msgspec.json.encode(fields).decode() + "\n"


def echo_route(*, json_lines: bool) -> Route:
    """
    POST /demo/echo for the broker's API under `up`: prints the callback to stdout, answers 200.

    Only loopback may call it (404 elsewhere): it writes to the terminal of whoever runs `up`.
    """
    import sys
    import time
    from ipaddress import ip_address

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def echo(request: Request) -> Response:
        at_ms = time.time_ns() / 1e6
        if request.client is None or not ip_address(request.client.host).is_loopback:
            return Response(status_code=404)
        arrival = Arrival(
            request.method, request.url.path, dict(request.headers), await request.body(), at_ms
        )
        # One write, so that the blocks of several workers do not mix.
        sys.stdout.write(
            as_json(arrival) if json_lines else as_text(arrival, color=sys.stdout.isatty())
        )
        sys.stdout.flush()
        return Response(status_code=200)

    return Route("/demo/echo", echo, methods=["POST", "PUT", "GET"], include_in_schema=False)


def _lateness(arrival: Arrival) -> tuple[str, str]:
    late_ms = arrival.late_ms
    if late_ms is None:
        return "", ""
    if arrival.headers.get("wheel-timer-attempt", "1") != "1":
        return f"{late_ms / 1_000:.3f} s after start_time", _DIM
    if late_ms < 0:
        return f"{-late_ms:.1f} ms EARLY", _RED
    return f"{late_ms:.1f} ms late", _GREEN


def _attempt(arrival: Arrival) -> str:
    attempt = arrival.headers.get("wheel-timer-attempt")
    return f"attempt {_clean(attempt)}" if attempt else ""


def _shown(arrival: Arrival) -> list[tuple[str, str]]:
    return [
        (_clean(name), "***" if is_write_only(name) else _clean(value))
        for name, value in arrival.headers.items()
        if name not in _UNSEEN
    ]


def _clean(text: str) -> str:
    line = _CONTROL.sub(" ", text).strip()
    return line if len(line) <= BODY_CHARS_MAX else line[: BODY_CHARS_MAX - 1] + "…"


def _clock(at_ms: float) -> str:
    moment = datetime.fromtimestamp(at_ms / 1_000, UTC)
    return f"{moment:%H:%M:%S}.{moment.microsecond // 1_000:03d}"


def _styled(style: str, text: str, color: bool) -> str:
    return f"{style}{text}{_RESET}" if color and style else text
