"""
Keeps a handful of processes running: starts them in order, restarts what dies, stops in reverse.

    start(group)   all of a group at once; the next group only when every one of it is ready
    keep           what dies by itself is started again, after 0.1 s, then 0.2 s ... 5 s
    stop()         the last group first, each with its grace; who outlives it is killed
    hurry()        told again: who is being stopped hands back what it holds, and does not wait
    kill()         everything, at once, from any state

A service that cannot start the first time ends the start with StartRefused: a wrong setting would
only fail again. Once it was up, it is restarted for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Final, Protocol

from wheel_timer.errors import StartRefused

RESTART_S_MIN: Final = 0.1
RESTART_S_MAX: Final = 5.0
CALM_S: Final = 10.0  # who lived this long starts its next life without a wait
READY_S_MAX: Final = 60.0  # crash recovery of a large database takes its time

log = logging.getLogger("wheel_timer.up")


class Service(Protocol):
    """One process, or one server of several processes, that is to be kept running."""

    name: str

    async def start(self) -> None:
        """Start it; safe to repeat after it died. Returns before it is ready."""

    async def ready(self) -> None:
        """Return when it can do its work. Raises StartRefused where it died before that."""

    async def died(self) -> str:
        """Return, with how it ended, once it no longer runs."""

    async def stop(self) -> None:
        """End it, with its grace; return when it is gone. Nothing to do where it does not run."""

    def hurry(self) -> None:
        """Its grace is over: it is to end as soon as it can in order."""

    def kill(self) -> None:
        """End it at once, without waiting."""


class Supervisor:
    """States: each service is starting, kept, or stopped; `stop` and `kill` end all three."""

    def __init__(self) -> None:
        self._groups: list[Sequence[Service]] = []
        self._keepers: list[asyncio.Task[None]] = []

    async def start(self, group: Sequence[Service]) -> None:
        """Start these, wait until all are ready, keep them from then on. Raises StartRefused."""
        self._groups.append(group)
        for service in group:
            await service.start()
        try:
            async with asyncio.timeout(READY_S_MAX), asyncio.TaskGroup() as waits:
                for service in group:
                    waits.create_task(service.ready())
        except TimeoutError:
            names = ", ".join(service.name for service in group)
            raise StartRefused(f"{names}: not ready after {READY_S_MAX:.0f} s") from None
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        self._keepers += [asyncio.create_task(self._keep(service)) for service in group]

    async def stop(self) -> None:
        """Stop all, the last group first. Safe to repeat, and after a start that failed."""
        await self._let_go()
        while self._groups:
            group = self._groups[-1]
            await asyncio.gather(*(service.stop() for service in group))
            self._groups.pop()

    def hurry(self) -> None:
        """Nothing waits any more: what is being stopped now, and what is stopped after it."""
        for group in self._groups:
            for service in group:
                service.hurry()

    def kill(self) -> None:
        """Kill all at once. A `stop` under way returns as soon as they are gone."""
        for keeper in self._keepers:
            keeper.cancel()
        for group in reversed(self._groups):
            for service in group:
                service.kill()

    async def _let_go(self) -> None:
        for keeper in self._keepers:
            keeper.cancel()
        for keeper in self._keepers:
            with contextlib.suppress(asyncio.CancelledError):
                await keeper
        self._keepers.clear()

    async def _keep(self, service: Service) -> None:
        clock = asyncio.get_running_loop()
        pause_s = RESTART_S_MIN
        while True:
            started = clock.time()
            how = await service.died()
            if clock.time() - started > CALM_S:
                pause_s = RESTART_S_MIN
            log.warning("%s ended (%s); it is started again in %.1f s", service.name, how, pause_s)
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, RESTART_S_MAX)
            try:
                await service.start()
            except (OSError, StartRefused) as error:
                log.warning("%s does not start: %s", service.name, error)
