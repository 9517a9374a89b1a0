"""
An embedded Postgres or Redis as a service of the supervisor.

EmbeddedServer blocks and is not thread-safe: its calls run in a thread, one after the other, and a
call that was begun is always seen to its end, even when whoever asked has been cancelled. So a
Ctrl-C during the start finds either no server or one that `stop` can stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from typing import Final

from wheel_timer.cli.child import how_it_ended
from wheel_timer.embedded import EmbeddedServer

READY_S_MAX: Final = 55.0
DEATH_POLL_S: Final = 0.5


class EmbeddedService:
    """server: stopped. last_signal: what ends it at once and lets it recover at its next start."""

    def __init__(self, server: EmbeddedServer, last_signal: signal.Signals) -> None:
        self.name = server.name
        self._server = server
        self._last_signal = last_signal
        self._call: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Start it. Raises StartRefused."""
        await self._in_thread(self._server.start)

    async def ready(self) -> None:
        """Return when it serves. Raises StartRefused with its own last words."""
        await self._in_thread(lambda: self._server.wait_ready(READY_S_MAX))

    async def died(self) -> str:
        """Return, with how it ended, once it no longer runs."""
        while self._server.is_running():  # noqa: ASYNC110 - its process is all there is to ask
            await asyncio.sleep(DEATH_POLL_S)
        code = self._server.process.returncode if self._server.process else None
        if code is not None and code >= 0:
            return f"exit code {code}: {self._server.last_words()}"
        return how_it_ended(code)

    async def stop(self) -> None:
        """Shut it down in order."""
        await self._in_thread(self._server.stop)

    def hurry(self) -> None:
        """Nothing more than `stop` does: that waits for no client."""

    def kill(self) -> None:
        """End it at once; what was committed is there after the next start."""
        process = self._server.process
        if process is not None and process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, self._last_signal)

    async def _in_thread(self, call: Callable[[], None]) -> None:
        if self._call is not None and not self._call.done():
            await asyncio.wait({self._call})
        self._call = asyncio.ensure_future(asyncio.to_thread(call))
        # Nobody may be left to see its error: then it is not worth a word.
        self._call.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(self._call)
