"""
The children of a parent process: how `up` and `broker --workers` start daemons and brokers.

What they share: the settings, as environment variables whatever file or flag they came from; the
directory of their metrics, so that /metrics of any of them is the sum; for brokers the listening
socket, bound once by the parent.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import IO, Final

import httpx
from prometheus_client.multiprocess import mark_process_dead

from wheel_timer.callback import TIMEOUT_S_MAX
from wheel_timer.cli.child import Child
from wheel_timer.errors import StartRefused
from wheel_timer.settings import Settings

BACKLOG: Final = 2_048
DRAIN_S_MAX: Final = TIMEOUT_S_MAX + 5  # a drain that is not set follows the biz_types' timeouts
KILL_AFTER_S: Final = 5.0  # beyond the drain, before a child is killed
_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class Staff:
    """Makes children of one parent. metrics: an empty directory. output: None is our terminal."""

    def __init__(
        self,
        settings: Settings,
        metrics: Path,
        http: httpx.AsyncClient,
        output: IO[str] | None = None,
    ) -> None:
        self._metrics = metrics
        self._http = http
        self._output = output
        self._environ = settings.child_environment(os.environ) | {
            "PROMETHEUS_MULTIPROC_DIR": str(metrics)
        }
        drain_s = DRAIN_S_MAX if settings.drain is None else settings.drain
        self._stop_s = settings.drain_delay + drain_s + KILL_AFTER_S

    def child(
        self,
        name: str,
        module: str,
        arguments: Sequence[str],
        *,
        ready_url: str,
        listening_fds: Sequence[int] = (),
    ) -> Child:
        """`python -m module arguments`; ready when ready_url answers 2xx."""

        async def is_ready() -> bool:
            try:
                return (await self._http.get(ready_url)).is_success
            except httpx.HTTPError:
                return False

        return Child(
            name,
            module,
            arguments,
            environ=self._environ,
            is_ready=is_ready,
            stop_s=self._stop_s,
            listening_fds=listening_fds,
            output=self._output,
            after_death=lambda pid: mark_process_dead(pid, str(self._metrics)),
        )

    def brokers(
        self, listener: socket.socket, url: str, count: int, arguments: Sequence[str]
    ) -> list[Child]:
        """Workers that share a listening socket; url is where it answers."""
        fd = listener.fileno()
        return [
            self.child(
                f"broker {number}",
                "broker",
                ["--fd", str(fd), *arguments],
                ready_url=f"{url}/readyz",
                listening_fds=[fd],
            )
            for number in range(1, count + 1)
        ]


def listening_socket(host: str, port: int, settings: Settings) -> socket.socket:
    """
    Bound and listening. Raises StartRefused, one line, where that cannot be had, or where strangers
    could reach a server without a key: the workers would refuse that, too, but later.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise StartRefused(
                f"port {port} of {host} is taken: name another with --port (0 takes a free one)"
            ) from None
        raise StartRefused(f"cannot listen on {host}:{port}: {error.strerror}") from None
    if not settings.admin_key and not ip_address(listener.getsockname()[0]).is_loopback:
        listener.close()
        raise StartRefused(f"{host} is not loopback: set ADMIN_KEY to serve others")
    return listener


def url_of(listener: socket.socket) -> str:
    """Where a listening socket answers, as seen from this machine."""
    host, port = listener.getsockname()[:2]
    host = _ANYWHERE.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def empty_directory(path: Path) -> Path:
    """The directory, with nothing in it."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    return path
