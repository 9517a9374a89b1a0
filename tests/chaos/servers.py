"""
Postgres and Redis of one case: its own, so that it may do anything to them.

The cluster is made and migrated once a run and copied for each case, in memory where there is room.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil

from tests.fix_postgres import SCHEMA, SHARDS
from tests.processes import tell
from wheel_timer.embedded import DataDirectory, EmbeddedPostgres, EmbeddedRedis
from wheel_timer.embedded.redis import SETTINGS as REDIS_SETTINGS
from wheel_timer.store.migrate import migrate

READY_S: Final = 60.0


class Redis(EmbeddedRedis):
    """An embedded Redis with settings of its case's own."""

    def __init__(self, directory: DataDirectory, settings: Mapping[str, str]) -> None:
        super().__init__(directory)
        self._settings = settings

    def command(self) -> list[str]:
        added = [part for name, value in self._settings.items() for part in (f"--{name}", value)]
        return [*super().command(), *added]


class Servers:
    """The servers of one case, running."""

    def __init__(
        self, directory: DataDirectory, postgres: Mapping[str, str], redis: Mapping[str, str]
    ) -> None:
        assert redis.keys() <= REDIS_SETTINGS.keys() | {"maxmemory"}
        self.postgres = EmbeddedPostgres(directory, settings=postgres)
        self.redis = Redis(directory, redis)

    async def start(self) -> None:
        for server in (self.postgres, self.redis):
            await asyncio.to_thread(server.start)
        for server in (self.postgres, self.redis):
            await asyncio.to_thread(server.wait_ready, READY_S)

    async def stop(self) -> None:
        for server in (self.redis, self.postgres):
            thaw(server)
            await asyncio.to_thread(server.stop)


def processes(server: EmbeddedPostgres | EmbeddedRedis) -> list[psutil.Process]:
    """A server's process, and its children."""
    if not server.is_running():
        return []
    assert server.process is not None
    whole = psutil.Process(server.process.pid)
    return [whole, *whole.children(recursive=True)]


def freeze(server: EmbeddedPostgres | EmbeddedRedis) -> None:
    """SIGSTOP to all of it."""
    tell(processes(server), signal.SIGSTOP)


def thaw(server: EmbeddedPostgres | EmbeddedRedis) -> None:
    """SIGCONT to all of it."""
    tell(processes(server), signal.SIGCONT)


async def crash(server: EmbeddedPostgres | EmbeddedRedis) -> None:
    """SIGKILL to all of it."""
    assert server.process is not None
    tell(processes(server), signal.SIGKILL)
    await asyncio.to_thread(server.process.wait)


async def start(server: EmbeddedPostgres | EmbeddedRedis) -> None:
    """Again, and wait until it answers."""
    await asyncio.to_thread(server.start)
    await asyncio.to_thread(server.wait_ready, READY_S)


class Template:
    """A migrated cluster that nobody runs. parent: where the directories of all cases lie."""

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        self._cases = itertools.count(1)
        self._made = parent / "template"
        with DataDirectory(self._made) as directory:
            server = EmbeddedPostgres(directory)
            server.start()
            try:
                server.wait_ready(READY_S)
                migrate(server.url, SCHEMA, SHARDS)
            finally:
                server.stop()

    def directory(self) -> Path:
        """Of a new case, with nothing in it."""
        path = self._parent / f"case-{next(self._cases)}"
        path.mkdir()
        return path

    def copy(self, path: Path) -> None:
        """Put a cluster into a case's directory."""
        made, copied = self._made / "postgres", path / "postgres"
        owner = made.stat()
        shutil.copytree(made, copied, symlinks=True, dirs_exist_ok=True)
        for one in (copied, *copied.rglob("*")):
            os.chown(one, owner.st_uid, owner.st_gid)
