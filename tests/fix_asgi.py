"""One request to an ASGI app, with nothing between the test and the app."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp

Headers = dict[str, str]


async def call(
    app: ASGIApp, method: str, path: str, headers: Headers | None = None, body: bytes = b""
) -> tuple[int, Headers, bytes]:
    """(status, headers, body) of the answer. path: as it goes over the wire, with its query."""
    sent: list[dict[str, Any]] = []
    raw, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": unquote(raw),
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "headers": [
            (name.lower().encode(), value.encode()) for name, value in (headers or {}).items()
        ],
        "client": ("127.0.0.1", 1),
    }

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(dict(message))

    await app(scope, receive, send)
    named = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], named, b"".join(m.get("body", b"") for m in sent[1:])
