"""
How a broker or a daemon begins and ends: settings, logs, signals, one line where it cannot start.

The first SIGTERM or SIGINT asks for an orderly stop, the second for an end at once.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import uvicorn
import uvloop
from starlette.types import ASGIApp

from wheel_timer import log, metrics
from wheel_timer.errors import SchemaMismatch, StartRefused, Unavailable
from wheel_timer.settings import Settings

logger: Final = logging.getLogger(__name__)

EXIT_REFUSED: Final = 1
EXIT_UNAVAILABLE: Final = 4
KEEP_ALIVE_S: Final = 75
TICK_S: Final = 1.0
# Objects made and not freed, then collections of each generation, until the next one is collected.
COLLECT_AFTER: Final = (5_000, 20, 20)


class Stop:
    """What the signals have asked for. by_terminal: it was SIGINT, somebody waits at a prompt."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.at_once = asyncio.Event()
        self.by_terminal = False

    def signalled(self, number: signal.Signals) -> None:
        """A signal has come."""
        if self.requested.is_set():
            self.at_once.set()
        self.by_terminal = number is signal.SIGINT
        self.requested.set()

    async def pause(self, seconds: float) -> None:
        """Sleep, but not beyond the second signal."""
        try:
            async with asyncio.timeout(seconds):
                await self.at_once.wait()
        except TimeoutError:
            return


def run(main: Callable[[Settings, Stop], Awaitable[None]]) -> None:
    """Load the settings, run `main` under uvloop, exit. Never returns."""
    try:
        settings = Settings.load({}, None, os.environ)
        log.set_up(settings.log_level, settings.log_format, on_drop=metrics.log_lines_dropped)
        metrics.set_up(settings.metrics_biz_types)
        uvloop.run(_run(main, settings))
    except (StartRefused, SchemaMismatch) as error:
        sys.stderr.write(f"wheel-timer: {error}\n")
        sys.exit(EXIT_REFUSED)
    except Unavailable as error:
        sys.stderr.write(f"wheel-timer: {error}\n")
        sys.exit(EXIT_UNAVAILABLE)
    sys.exit(0)


async def _run(main: Callable[[Settings, Stop], Awaitable[None]], settings: Settings) -> None:
    _spare_the_collector()
    stop = Stop()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.signalled, number)
    await main(settings, stop)


def _spare_the_collector() -> None:
    """
    Keep Python's cycle collector from looking at what was imported, and from coming often.

    Untouched, a broker that drained 30,000 callbacks spent 0.8 s in it, and each of the eight full
    collections stopped it for 80 to 90 ms: callbacks that were late by as much.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


class HttpServer(uvicorn.Server):
    """uvicorn on sockets we bound, with our signals: `start`, later `stop`."""

    def __init__(self, app: ASGIApp, sockets: Sequence[socket.socket]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="none",
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_S,
            )
        )
        self._sockets = list(sockets)
        self._task: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The process' own handlers stay in force."""
        yield

    async def main_loop(self) -> None:
        """
        What uvicorn looks at ten times a second, once a second and at the stop: an idle process
        has little else to wake up for.
        """
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(TICK_S):
                    await self._ending.wait()

    async def start(self) -> None:
        """Serve from now on, beside the caller."""
        self._task = asyncio.create_task(self.serve(self._sockets), name="http")

    async def stop(self, grace_s: float, at_once: asyncio.Event) -> None:
        """
        Close the listener, answer what was asked, end: within grace_s, or when at_once is set.
        A client that trickles its request must not keep us.
        """
        self.should_exit = True
        self._ending.set()
        if self._task is None:
            return
        hurry = asyncio.create_task(at_once.wait())
        await asyncio.wait({self._task, hurry}, timeout=grace_s, return_when="FIRST_COMPLETED")
        hurry.cancel()
        self.force_exit = True
        await self._task


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises StartRefused with one line."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise StartRefused(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
