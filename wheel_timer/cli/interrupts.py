"""
Ctrl-C for a command that has something to stop: once in order, twice without waiting for anybody,
a third time by force.

SIGTERM and SIGHUP (the terminal was closed) count as the first.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from wheel_timer.cli.exits import INTERRUPTED

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stoppable(Protocol):
    """What is stopped in order by `stop`, sooner by `hurry`, at once by `kill`."""

    async def stop(self) -> None: ...

    def hurry(self) -> None: ...

    def kill(self) -> None: ...


async def run_stoppable(machine: Stoppable, work: Callable[[], Awaitable[int]]) -> int:
    """
    The exit code of work. The first interrupt cancels work, which may catch that and say its own
    exit code; whatever way it ends, machine is stopped; a second interrupt
    hurries machine, and a third kills it.
    """
    loop = asyncio.get_running_loop()
    task = asyncio.ensure_future(work())
    interrupts = 0

    def interrupt() -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts == 1:
            task.cancel()
        elif interrupts == 2:
            machine.hurry()
        else:
            machine.kill()

    for number in _SIGNALS:
        loop.add_signal_handler(number, interrupt)
    try:
        code = await task
    except asyncio.CancelledError:
        code = INTERRUPTED
    finally:
        await machine.stop()
    return INTERRUPTED if interrupts > 1 else code
