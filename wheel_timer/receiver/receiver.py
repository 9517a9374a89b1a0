"""Receives callbacks: checks, remembers, hands over, answers; in any framework."""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

import msgspec

from wheel_timer.receiver.asgi import AsgiEndpoint
from wheel_timer.receiver.reply import Reply, is_handled, plain, reply_of
from wheel_timer.receiver.stores import Memory, Seen, Store, Transaction
from wheel_timer.receiver.timer import Timer, timer_of
from wheel_timer.signing import TOLERANCE_S, key_of, verify

if TYPE_CHECKING:
    from django.http import HttpRequest, HttpResponse
    from flask.typing import ResponseReturnValue

BODY_BYTES_MAX: Final = 1_048_576
# To a copy that came while the first one is being handled.
BUSY_RETRY_S: Final = 1

Handler = Callable[[Timer], Any]
AsyncHandler = Callable[[Timer], Awaitable[Any]]
Headers = Mapping[str, str] | Iterable[tuple[str, str]]

log: Final = logging.getLogger(__name__)


class _Undone(Exception):
    """Goes through a store's transaction to end it without a mark; carries the answer out."""

    def __init__(self, reply: Reply) -> None:
        super().__init__("this callback is wanted again")
        self.reply = reply


class Receiver:
    """
    One endpoint's receiver; safe with threads.

    secrets: the biz_type's signing secret; while it rotates, the old one and the new one (a list of
    them will do), and a callback signed by either counts. store: Memory() (the default),
    Redis(url), or a callable in your own transaction: wheel_timer/receiver/stores.py. tolerance_s:
    how old, or how far ahead, by this machine's clock a callback may be. unsigned: take callbacks
    of a biz_type without a secret; then anybody who reaches the endpoint can call it.

    A handler takes a Timer and returns None (done), Release, Gone, or a Reply; it may be a
    coroutine function. What it raises goes on to the framework, which answers 500; the callback
    comes again. With a callable as store, a Release or Gone rolls the transaction back.
    """

    def __init__(
        self,
        *secrets: str | Iterable[str],
        store: Store | Transaction | None = None,
        tolerance_s: float = TOLERANCE_S,
        unsigned: bool = False,
        body_bytes_max: int = BODY_BYTES_MAX,
    ) -> None:
        lists = [[given] if isinstance(given, str) else given for given in secrets]
        self._keys = [_key_of(secret) for given in lists for secret in given]
        if bool(self._keys) is unsigned:
            raise ValueError("give the biz_type's secret, or say unsigned=True")
        self._store = Memory() if store is None else store
        self._tolerance_s = tolerance_s
        self.body_bytes_max = body_bytes_max

    def receive(self, headers: Headers, body: bytes, handler: Handler) -> Reply:
        """The answer to one callback. Raises what the handler and the store raise."""
        timer = self._open(headers, body)
        if isinstance(timer, Reply):
            return timer
        store = self._store
        if callable(store):
            opened = store(timer.id)
            if not isinstance(opened, AbstractContextManager):
                raise TypeError("a store that is called returns a context manager")
            try:
                with opened as transaction:
                    if not transaction:
                        return _done_before()
                    return _to_commit(handler(_with(timer, transaction)))
            except _Undone as undone:
                return undone.reply
        token = secrets.token_hex(8)
        if (reply := _known(store.begin(timer.id, token))) is not None:
            return reply
        is_done = False
        try:
            reply = reply_of(handler(timer))
            is_done = is_handled(reply)
        finally:
            if not is_done:
                _give_up(store, timer.id, token)
        if is_done:
            store.finish(timer.id, token)
        return reply

    async def receive_async(
        self, headers: Headers, body: bytes, handler: Handler | AsyncHandler
    ) -> Reply:
        """The same in an event loop; a handler that is no coroutine function runs in a thread."""
        if not _is_async(handler):
            return await asyncio.to_thread(self.receive, headers, body, handler)
        timer = self._open(headers, body)
        if isinstance(timer, Reply):
            return timer
        store = self._store
        if callable(store):
            opened = store(timer.id)
            if not isinstance(opened, AbstractAsyncContextManager):
                raise TypeError("a store called for an async handler returns an async one, too")
            try:
                async with opened as transaction:
                    if not transaction:
                        return _done_before()
                    return _to_commit(await handler(_with(timer, transaction)))
            except _Undone as undone:
                return undone.reply
        token = secrets.token_hex(8)
        if (reply := _known(await _called(store, store.begin, timer.id, token))) is not None:
            return reply
        is_done = False
        try:
            reply = reply_of(await handler(timer))
            is_done = is_handled(reply)
        finally:
            if not is_done:
                # Also where this task was cancelled: the client has gone, and the id is new again.
                await asyncio.shield(_called(store, _give_up, store, timer.id, token))
        if is_done:
            await _called(store, store.finish, timer.id, token)
        return reply

    def asgi(self, handler: Handler | AsyncHandler) -> AsgiEndpoint:
        """
        An ASGI app, for one path: Route("/timers", receiver.asgi(handler), methods=["POST"]) in
        Starlette; app.add_route("/timers", receiver.asgi(handler), methods=["POST"]) in FastAPI.
        """
        return AsgiEndpoint(
            functools.partial(self._receive_pairs, handler=handler), self.body_bytes_max
        )

    def flask(self, handler: Handler) -> Callable[[], ResponseReturnValue]:
        """A Flask view: app.post("/timers")(receiver.flask(handler))."""
        from flask import request

        @functools.wraps(handler, assigned=("__name__", "__qualname__", "__doc__"), updated=())
        def view() -> ResponseReturnValue:
            if (request.content_length or 0) > self.body_bytes_max:
                reply = _too_large()
            else:
                reply = self.receive(request.headers.items(), request.get_data(), handler)
            return reply.body, reply.status, dict(reply.headers)

        del view.__wrapped__  # its signature is not the handler's
        return view

    def django(self, handler: Handler) -> Callable[[HttpRequest], HttpResponse]:
        """A Django view: path("timers", receiver.django(handler)). No CSRF token is asked for."""
        from django.http import HttpResponse

        def view(request: HttpRequest) -> HttpResponse:
            # Django itself bounds what it reads: DATA_UPLOAD_MAX_MEMORY_SIZE.
            reply = self.receive(request.headers.items(), request.body, handler)
            return HttpResponse(reply.body, status=reply.status, headers=dict(reply.headers))

        view.csrf_exempt = True  # type: ignore[attr-defined] # what Django's decorator sets
        return view

    async def _receive_pairs(
        self, headers: Headers, body: bytes, *, handler: Handler | AsyncHandler
    ) -> Reply:
        return await self.receive_async(headers, body, handler)

    def _open(self, headers: Headers, body: bytes) -> Timer | Reply:
        """The timer of a callback that is what it says; else the answer."""
        pairs = headers.items() if isinstance(headers, Mapping) else headers
        given = {name.lower(): value for name, value in pairs}
        if len(body) > self.body_bytes_max:
            return _too_large()
        if "webhook-id" not in given:
            return plain(400, "this is no callback: there is no webhook-id")
        if self._keys:
            wrong = verify(
                self._keys,
                given["webhook-id"],
                given.get("webhook-timestamp", ""),
                given.get("webhook-signature", ""),
                body,
                time.time(),
                self._tolerance_s,
            )
            if wrong is not None:
                log.warning("a callback was refused: %s", wrong)
                return plain(401, wrong)
        try:
            return timer_of(given, body)
        except ValueError:
            return plain(400, "this is no callback of wheel-timer: its headers are not its own")


def _is_async(handler: Handler | AsyncHandler) -> bool:
    """Whether it is a coroutine function, or an object that is called like one."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)  # noqa: B004 - whether it can be called is not the point
    )


def _key_of(secret: str) -> bytes:
    try:
        return key_of(secret)
    except ValueError:
        # Without the secret itself: this ends up in logs.
        raise ValueError("a secret is whsec_ and base64") from None


def _known(seen: Seen) -> Reply | None:
    """The answer to a callback whose id is not new."""
    if seen is Seen.NEW:
        return None
    if seen is Seen.DONE:
        return _done_before()
    return plain(409, "a copy of this is being handled", retry_after=BUSY_RETRY_S)


def _done_before() -> Reply:
    return Reply(200, {"content-type": "text/plain; charset=utf-8"}, b"handled before")


def _too_large() -> Reply:
    return plain(413, "the body is larger than this endpoint takes")


def _to_commit(returned: object) -> Reply:
    """The answer for work that is to be committed. Raises _Undone where it is wanted again."""
    reply = reply_of(returned)
    if not is_handled(reply):
        raise _Undone(reply)
    return reply


def _with(timer: Timer, transaction: object) -> Timer:
    return msgspec.structs.replace(timer, transaction=transaction)


def _give_up(store: Store, webhook_id: str, token: str) -> None:
    """What the handler raised is what the framework must see, not a store that is away, too."""
    try:
        store.give_up(webhook_id, token)
    except Exception:
        log.exception("the mark of %s could not be taken back; it ends by itself", webhook_id)


async def _called(store: Store, call: Callable[..., Any], *arguments: object) -> Any:
    """A call of the store, in a thread where it may wait for a network."""
    if store.blocks:
        return await asyncio.to_thread(call, *arguments)
    return call(*arguments)
