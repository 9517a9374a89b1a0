"""
One of our own processes as a service of the supervisor: `python -m MODULE` on a leash.

Each child is in a session of its own, so that Ctrl-C in the terminal reaches the parent alone and
the order of stopping is the parent's to say; the leash (`leash.py`) ends it should the parent die.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import IO, Final

from wheel_timer.errors import StartRefused

READY_POLL_S: Final = 0.05
HURRY_S: Final = 10.0  # for results that are not settled yet


class Child:
    """
    `python -m module arguments`, restarted under the same name.

    is_ready: asked every 50 ms after a start. stop_s: from SIGTERM to SIGKILL. output: where its
    stdout and stderr go, ours by default. after_death: told the pid of each life that ended.
    """

    def __init__(
        self,
        name: str,
        module: str,
        arguments: Sequence[str],
        *,
        environ: Mapping[str, str],
        is_ready: Callable[[], Awaitable[bool]],
        stop_s: float,
        listening_fds: Sequence[int] = (),
        output: IO[str] | None = None,
        after_death: Callable[[int], None] | None = None,
    ) -> None:
        self.name = name
        # -P: a `broker` or `daemon` in the user's own directory is not ours.
        self._command = [sys.executable, "-P", "-m", "wheel_timer.cli.leash", module, *arguments]
        self._environ = dict(environ)
        self._is_ready = is_ready
        self._stop_s = stop_s
        self._listening_fds = tuple(listening_fds)
        self._output = output
        self._after_death = after_death
        self._process: Process | None = None

    @property
    def pid(self) -> int | None:
        """The process of the present life; None between lives."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if running and self._process else None

    async def start(self) -> None:
        """Spawn it. The leash is the pipe on its stdin, which only this process holds."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            env=self._environ,
            pass_fds=self._listening_fds,
            stdin=PIPE,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
        )

    async def ready(self) -> None:
        """Poll until it is ready. Raises StartRefused where it ended before that."""
        assert self._process is not None
        while not await self._is_ready():
            if self._process.returncode is not None:
                raise StartRefused(f"{self.name} did not start ({await self.died()})")
            await asyncio.sleep(READY_POLL_S)

    async def died(self) -> str:
        """Return once it ended: `exit code 1`, `signal SIGKILL`."""
        if self._process is None:
            return "not started"
        code = await self._process.wait()
        if self._after_death is not None:
            self._after_death(self._process.pid)
        return how_it_ended(code)

    async def stop(self) -> None:
        """SIGTERM, up to stop_s of grace, SIGKILL."""
        if self._process is None or self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()
        try:
            async with asyncio.timeout(self._stop_s):
                await self._process.wait()
        except TimeoutError:
            self.kill()
            await self._process.wait()

    def hurry(self) -> None:
        """
        A second signal, where the first was sent; up to HURRY_S, then SIGKILL. It is SIGINT: of two
        SIGTERM that come before a busy process has seen the first, it would see one.
        """
        if self._process is None or self._process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGINT)
        asyncio.get_running_loop().call_later(HURRY_S, self.kill)

    def kill(self) -> None:
        """SIGKILL, where it runs."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGKILL)


def how_it_ended(code: int | None) -> str:
    """`exit code 1`, `signal SIGKILL`; None: it never ran."""
    if code is None:
        return "not started"
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
