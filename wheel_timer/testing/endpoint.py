"""Where a test's callbacks arrive: one HTTP server of the session, a path for each test."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from types import TracebackType
from typing import Any, Final, Self, overload

from wheel_timer.receiver import Gone, Reply, Timer
from wheel_timer.receiver.reply import plain, reply_of
from wheel_timer.receiver.timer import timer_of

log: Final = logging.getLogger(__name__)


class Received(Sequence[Timer]):
    """
    The callbacks that came, as Timers, in order. url: where they come to. handler: takes each and
    answers (None, Release, Gone, Reply); what it raises is a 500, and in `errors`. Signatures are
    not looked at: that is your Receiver's work.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.handler: Callable[[Timer], Any] | None = None
        self.errors: list[Exception] = []
        self._timers: list[Timer] = []

    @overload
    def __getitem__(self, index: int) -> Timer: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Timer]: ...

    def __getitem__(self, index: int | slice) -> Timer | Sequence[Timer]:
        return self._timers[index]

    def __len__(self) -> int:
        return len(self._timers)

    def clear(self) -> None:
        """Forget what came."""
        self._timers.clear()
        self.errors.clear()

    def take(self, timer: Timer) -> Reply:
        """The answer to a callback."""
        self._timers.append(timer)
        if self.handler is None:
            return Reply(204)
        try:
            return reply_of(self.handler(timer))
        except Exception as error:
            log.exception("the handler raised")  # pytest shows it with the test that fails
            self.errors.append(error)
            return plain(500, "the handler raised")


class Endpoint:
    """The server, in threads; on loopback."""

    def __init__(self) -> None:
        self._open: dict[str, Received] = {}
        self._names = count(1)
        handler = type("Handler", (_Handler,), {"endpoint": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @contextmanager
    def opened(self) -> Iterator[Received]:
        """A path of its own, which is gone (410: nobody tries again) afterwards."""
        path = f"/test-{next(self._names)}"
        received = Received(f"http://127.0.0.1:{self._server.server_port}{path}")
        self._open[path] = received
        try:
            yield received
        finally:
            del self._open[path]

    def answer(self, path: str, headers: dict[str, str], body: bytes) -> Reply:
        """The answer to one request. headers: by lower-case name."""
        received = self._open.get(path)
        if received is None:
            return reply_of(Gone("this test is over"))
        try:
            timer = timer_of(headers, body)
        except (KeyError, ValueError):
            return plain(400, "this is no callback")
        return received.take(timer)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    """One connection. Its calls are named by http.server."""

    endpoint: Endpoint
    protocol_version = "HTTP/1.1"
    # A connection that idles must not keep the server from ending.
    timeout = 5.0

    def handle_callback(self) -> None:
        """Read one request, answer it."""
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        reply = self.endpoint.answer(self.path, headers, body)
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.status != 204:
            self.send_header("content-length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET = handle_callback  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a test's output is its own."""
