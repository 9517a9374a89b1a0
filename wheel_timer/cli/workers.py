"""`broker --workers N`: a parent that binds the port once and keeps N workers running."""

from __future__ import annotations

import asyncio
import shutil
import socket
import tempfile
from collections.abc import Sequence
from pathlib import Path

import httpx

from wheel_timer.cli.exits import DONE
from wheel_timer.cli.staff import Staff, listening_socket, url_of
from wheel_timer.cli.supervisor import Supervisor
from wheel_timer.settings import Settings


class Workers:
    """`run` until it is cancelled; then `stop`, which `hurry` makes shorter; or `kill`."""

    def __init__(
        self, settings: Settings, host: str, port: int, count: int, arguments: Sequence[str]
    ) -> None:
        self._settings = settings
        self._address = (host, port)
        self._count = count
        self._arguments = arguments
        self._supervisor = Supervisor()
        self._http = httpx.AsyncClient(timeout=2.0)
        self._metrics = Path(tempfile.mkdtemp(prefix="wheel-timer-metrics-"))
        self._socket: socket.socket | None = None

    async def run(self) -> int:
        """Start the workers and keep them. Raises StartRefused."""
        self._socket = listening_socket(*self._address, self._settings)
        staff = Staff(self._settings, self._metrics, self._http)
        workers = staff.brokers(self._socket, url_of(self._socket), self._count, self._arguments)
        await self._supervisor.start(workers)
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            return DONE
        return DONE

    async def stop(self) -> None:
        """Every worker, with its drain."""
        await self._supervisor.stop()
        await self._http.aclose()
        if self._socket is not None:
            self._socket.close()
        shutil.rmtree(self._metrics, ignore_errors=True)

    def hurry(self) -> None:
        """Calls under way are given back; a `stop` under way then returns soon."""
        self._supervisor.hurry()

    def kill(self) -> None:
        """Every worker at once."""
        self._supervisor.kill()
