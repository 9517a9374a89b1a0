"""An ASGI app around a receiver; nothing of any framework."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from wheel_timer.receiver.reply import Reply, plain

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class AsgiEndpoint:
    """
    An ASGI app that answers every request of its path by `receive` (headers as pairs, body).

    It is an object, and not a function, because that is how Starlette and FastAPI know an app from
    an endpoint of their own.
    """

    def __init__(
        self,
        receive: Callable[[list[tuple[str, str]], bytes], Awaitable[Reply]],
        body_bytes_max: int,
    ) -> None:
        self._receive = receive
        self._body_bytes_max = body_bytes_max

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request."""
        assert scope["type"] == "http", "mount it at a path"
        body = await self._body(receive)
        if body is None:
            reply = plain(413, "the body is larger than this endpoint takes")
        else:
            headers = [
                (name.decode("latin-1"), value.decode("latin-1"))
                for name, value in scope["headers"]
            ]
            reply = await self._receive(headers, body)
        fields = {"content-length": str(len(reply.body))} if reply.status != 204 else {}
        fields |= dict(reply.headers)
        await send(
            {
                "type": "http.response.start",
                "status": reply.status,
                "headers": [(name.encode(), value.encode()) for name, value in fields.items()],
            }
        )
        await send({"type": "http.response.body", "body": reply.body})

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body; None where it is too large, or its sender has gone."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            body += message.get("body", b"")
            if len(body) > self._body_bytes_max:
                return None
            if not message.get("more_body", False):
                return bytes(body)
