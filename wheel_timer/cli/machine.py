"""
Everything on this machine: the servers, the daemons, the broker's workers, under one supervisor.

    1. the data directory is locked and the listening socket bound, so that a second `up` and a
       taken port are one line each, before anything was started
    2. Postgres and Redis, embedded, unless the settings name others
    3. the schema, and the biz_types that are to exist
    4. daemons and broker workers; the workers share the socket, so a restarted one has its port

`up` and `demo` are two ways to show it.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Final, NamedTuple

import httpx
import msgspec

from wheel_timer.biz import BizTypeIn
from wheel_timer.cli.child import Child
from wheel_timer.cli.embedded_service import EmbeddedService
from wheel_timer.cli.staff import Staff, empty_directory, listening_socket, url_of
from wheel_timer.cli.supervisor import Service, Supervisor
from wheel_timer.database import Database
from wheel_timer.embedded import DataDirectory, EmbeddedPostgres, EmbeddedRedis
from wheel_timer.errors import StartRefused
from wheel_timer.settings import Settings
from wheel_timer.store import biz as biz_store
from wheel_timer.store import testclock
from wheel_timer.store.migrate import check_schema, migrate

DRAIN_S: Final = 10.0  # what Ctrl-C grants the calls under way, where DRAIN does not say
LOOPBACK: Final = ("127.0.0.0/8", "::1/128")  # where /demo/echo is


class Plan(NamedTuple):
    """
    What to run. port 0: a free one. biz_types: made where they do not exist yet.

    output: where the children write; None is our own terminal. test_clock: the database's clock is
    a test's, with /v1/clock to set it.
    """

    host: str
    port: int
    data_dir: Path
    brokers: int
    daemons: int
    biz_types: Mapping[str, BizTypeIn]
    demo_echo: bool = True
    test_clock: bool = False
    output: IO[str] | None = None


class Machine:
    """`start`, then `url`, `settings`; `stop`, `hurry`, `kill` from any state, `stop` after all."""

    def __init__(self, settings: Settings, plan: Plan) -> None:
        self.settings = settings
        self._plan = plan
        self._supervisor = Supervisor()
        self._directory = DataDirectory(plan.data_dir)
        self._metrics: Path | None = None
        self._socket: socket.socket | None = None
        self._http = httpx.AsyncClient(timeout=2.0)

    @property
    def url(self) -> str:
        """Where the API answers, as seen from this machine."""
        assert self._socket is not None
        return url_of(self._socket)

    @property
    def has_test_clock(self) -> bool:
        """Whether time is what PUT /v1/clock says."""
        return self._plan.test_clock

    async def start(self, say: Callable[[str], None]) -> None:
        """
        All of it, ready. say: told what is being started.

        Raises StartRefused with one line, DatabaseUnavailable.
        """
        self._directory.lock()
        self._socket = listening_socket(self._plan.host, self._plan.port, self.settings)
        self._metrics = empty_directory(self._plan.data_dir.absolute() / "metrics")
        await self._start_servers(say)
        say("the schema")
        await asyncio.to_thread(
            migrate,
            self.settings.database_direct_url or self.settings.database_url,
            self.settings.database_schema,
            self.settings.shards,
            self.settings.instance,
        )
        await asyncio.to_thread(
            check_schema,
            self.settings.database_url,
            self.settings.database_schema,
            self.settings.shards,
            self.settings.instance,
        )
        await self._prepare()
        say("the daemon and the brokers")
        await self._supervisor.start([*self._daemons(), *self._brokers()])

    async def stop(self) -> None:
        """Brokers and daemons with their drain, then Redis and Postgres in order."""
        await self._supervisor.stop()
        await self._http.aclose()
        if self._socket is not None:
            self._socket.close()
        if self._metrics is not None:
            shutil.rmtree(self._metrics, ignore_errors=True)
        self._directory.unlock()

    def hurry(self) -> None:
        """Calls under way are given back; a `stop` under way then returns soon."""
        self._supervisor.hurry()

    def kill(self) -> None:
        """Everything at once; a `stop` under way then returns soon."""
        self._supervisor.kill()

    async def _start_servers(self, say: Callable[[str], None]) -> None:
        servers: list[Service] = []
        changes: dict[str, str] = {}
        if not self.settings.database_url:
            postgres = EmbeddedPostgres(self._directory)
            changes["database_url"] = postgres.url
            # SIGQUIT is Postgres' own "at once": its children go with it.
            servers.append(EmbeddedService(postgres, signal.SIGQUIT))
        if not self.settings.redis_url:
            redis = EmbeddedRedis(self._directory)
            changes["redis_url"] = redis.url
            servers.append(EmbeddedService(redis, signal.SIGKILL))
        if servers:
            say(" and ".join(server.name.capitalize() for server in servers))
            await self._supervisor.start(servers)
        self.settings = msgspec.structs.replace(self.settings, **changes)

    async def _prepare(self) -> None:
        """The clock, and the biz_types that are to exist. Raises StartRefused."""
        db = Database(
            self.settings.database_url,
            schema=self.settings.database_schema,
            pool_size=1,
            name="wheel-timer up",
        )
        try:
            await self._set_up_clock(db)
            # What a user changed of one that exists stays.
            for name, wanted in self._plan.biz_types.items():
                if await biz_store.load(db, name) is None:
                    await biz_store.put(db, name, wanted)
        finally:
            await db.close()

    async def _set_up_clock(self, db: Database) -> None:
        """
        A database keeps to one kind of clock: tasks that were set by a test's would come due, or
        never, by the other.
        """
        if self._plan.test_clock:
            await testclock.begin(db)
        is_test = await testclock.shown(db) is not None
        if self._plan.test_clock and not is_test:
            raise StartRefused("--test-clock is for a database without tasks: a new --data-dir")
        if is_test and not self._plan.test_clock:
            raise StartRefused(
                "this database's clock is a test's: start with --test-clock, or a new --data-dir"
            )

    def _daemons(self) -> list[Child]:
        ports = free_ports(self._plan.daemons)
        return [
            self._staff().child(
                f"daemon {number}",
                "daemon",
                ["--ops-port", str(port)],
                ready_url=f"http://127.0.0.1:{port}/readyz",
            )
            for number, port in enumerate(ports, 1)
        ]

    def _brokers(self) -> list[Child]:
        assert self._socket is not None
        arguments = ["--speak-for-all"]
        if self._plan.demo_echo:
            arguments.append("--demo-echo")
        if self._plan.test_clock:
            arguments.append("--test-clock")
        return self._staff().brokers(self._socket, self.url, self._plan.brokers, arguments)

    def _staff(self) -> Staff:
        """No load balancer stands before this machine: a listener may close at once."""
        assert self._metrics is not None
        settings = self.settings
        allow = settings.callback_allow
        if self._plan.demo_echo and settings.admin_key is not None:
            allow = (*allow, *LOOPBACK)
        drain = DRAIN_S if settings.drain is None else settings.drain
        settings = msgspec.structs.replace(
            settings, drain=drain, drain_delay=0.0, callback_allow=allow
        )
        return Staff(settings, self._metrics, self._http, self._plan.output)


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody has just now, all different."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]
