"""
The world of one case: servers, daemons, brokers, an endpoint, clients; and hands to break it with.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal

import psycopg
from redis.asyncio import Redis

from tests.chaos.case import Case
from tests.chaos.load import BIZ_TYPE, NEIGHBOUR, Load
from tests.chaos.log import Books, Row
from tests.chaos.receiver import Receiver
from tests.chaos.servers import Servers, Template
from tests.chaos.watch import Watch
from tests.fault.harness import Nursery, Process
from tests.fault.launch import Order, Trouble
from tests.fix_audits import Auditor
from tests.fix_proxy import PostgresProxy, Proxy, RedisProxy
from wheel_timer.biz import Backoff, BizTypeIn, Breaker, RetryIn
from wheel_timer.database import Database
from wheel_timer.embedded import DataDirectory
from wheel_timer.store import biz as store_biz

PREFIX: Final = "wt"
LOOK_EACH_S: Final = 0.1
# The least that keeps the sweep out of a healthy run's way, so that cases need not take minutes.
SETTINGS: Final = {"visibility": 5, "drain_delay": 0, "log_level": "warning"}
BIZ: Final[dict[str, Any]] = {
    "timeout": 1.0,
    "retry": RetryIn(max_attempts=16, backoff=Backoff(initial=2, factor=1.5, max=5, jitter=0.1)),
    # A breaker would add its own waits to those of the fault.
    "breaker": Breaker(enabled=False),
}
ROWS: Final = """
SELECT t.biz_id, CAST(t.task_id AS text), t.status, t.start_time, t.create_time,
    coalesce(t.renew_time, 0),
    (SELECT count(*) FROM timer_attempt AS a
        WHERE a.task_id = t.task_id AND a.outcome IN ('retry', 'superseded', 'failed')
            AND a.attempt < t.attempts),
    (SELECT count(*) FROM timer_attempt AS a
        WHERE a.task_id = t.task_id AND a.outcome = 'lost'),
    (SELECT coalesce(jsonb_object_agg(a.attempt, a.started_time + a.duration_ms), '{}')
        FROM timer_attempt AS a WHERE a.task_id = t.task_id)
FROM timer_task AS t
WHERE t.status <> 4 AND t.biz_type IN ('chaos', 'neighbour')
"""
PENDING: Final = "SELECT count(*) FROM timer_task WHERE status = 0"


class World:
    """One case's world. Faults use it; `open_world` makes it and takes it down."""

    def __init__(
        self, case: Case, servers: Servers, nursery: Nursery, directory: Path, seed: int
    ) -> None:
        self.case = case
        self.random = random.Random(seed)
        self.postgres, self.redis = servers.postgres, servers.redis
        self.directory = directory
        self.daemons: list[Process] = []
        self.brokers: list[Process] = []
        self.offset_ms = 0
        self._nursery = nursery
        self._all: list[Process] = []
        self._ports: dict[str, int] = {}
        self._proxies: dict[str, tuple[PostgresProxy, RedisProxy]] = {}
        self.receiver = Receiver(lambda: self.offset_ms, case.answer_s)
        # What clients ask for goes by a clock of their own.
        self.asking_ms = 0
        self.load = Load(
            self._open_ports,
            lambda: self.asking_ms,
            seed,
            case.patience_s,
            has_neighbour=case.neighbour,
        )
        self.watch = Watch(self.postgres.url, case.back_ms)

    async def start(self) -> None:
        """Everything up, led, and able to call."""
        await self.receiver.endpoint.start()
        endpoint = self.receiver.endpoint
        await self._configure(NEIGHBOUR, endpoint.url, BIZ)
        self.endpoint_proxy = Proxy((endpoint.host, endpoint.port))
        await self.endpoint_proxy.start()
        await self.configure()
        for number in range(self.case.daemons):
            trouble = _at(self.case.daemon_troubles, number)
            await self.daemon(trouble=trouble)
            # The first leads, if it can: one that takes the clock for wrong does not.
            if not number and not trouble.skew_s:
                await self.led()
        for number in range(self.case.brokers):
            await self.broker(trouble=_at(self.case.broker_troubles, number))
        await self.led()

    async def configure(self, **fields: Any) -> None:
        """The one biz_type: what the case says of it, and now this."""
        proxy, url = self.endpoint_proxy, self.receiver.endpoint.url
        if self.case.endpoint_proxied:
            url = f"http://127.0.0.1:{proxy.port}/callback"
        await self._configure(BIZ_TYPE, url, {**BIZ, **self.case.biz, **fields})

    async def _configure(self, name: str, url: str, settings: dict[str, Any]) -> None:
        db = Database(self.postgres.url, pool_size=2, name="chaos")
        try:
            await store_biz.put(db, name, BizTypeIn(callback_url=url, **settings))
        finally:
            await db.close()

    async def daemon(
        self, *, die: tuple[str, int] | None = None, trouble: Trouble = Trouble()
    ) -> Process:
        """One more daemon."""
        told = ["leader.elected", "leader.stepped_down", "due.advanced", "due.unfenced"]
        process = await self._launch("daemon", ["--ops-port", "0"], told, die, trouble)
        self.daemons.append(process)
        return process

    async def broker(
        self, *, die: tuple[str, int] | None = None, trouble: Trouble = Trouble()
    ) -> Process:
        """One more broker, both roles, once it serves."""
        port = _free_port()
        process = await self._launch(
            "broker", ["--port", str(port)], ["clock.measured"], die, trouble
        )

        async def serves() -> bool:
            assert process.is_alive, f"{process.name} has ended: {process.said[-3:]}"
            return await _listens(port)

        await self.until(serves, f"{process.name} serves")
        self._ports[process.name] = port
        self.brokers.append(process)
        return process

    async def _launch(
        self,
        program: Literal["broker", "daemon"],
        arguments: list[str],
        told: list[str],
        die: tuple[str, int] | None,
        trouble: Trouble,
    ) -> Process:
        database_url, redis_url = self.postgres.url, self.redis.url
        proxies: tuple[PostgresProxy, RedisProxy] | None = None
        if self.case.proxied:
            proxies = PostgresProxy(database_url), RedisProxy(redis_url)
            for proxy in proxies:
                await proxy.start()
            database_url, redis_url = proxies[0].url, proxies[1].url
        given = {
            **SETTINGS,
            **self.case.settings,
            "database_url": database_url,
            "redis_url": redis_url,
            "redis_prefix": PREFIX,
        }
        environ = {f"WHEEL_TIMER_{name.upper()}": str(value) for name, value in given.items()}
        process = await self._nursery.start(
            Order(program, arguments, environ, "", told, die, trouble)
        )
        self._all.append(process)
        if proxies is not None:
            self._proxies[process.name] = proxies
        return process

    def gone(self, process: Process) -> None:
        """It serves nobody any more: a load balancer takes it out."""
        self._ports.pop(process.name, None)
        for some in (self.daemons, self.brokers):
            if process in some:
                some.remove(process)

    def port(self, broker: Process) -> int:
        """Where a broker serves."""
        return self._ports[broker.name]

    def _open_ports(self) -> Sequence[int]:
        return list(self._ports.values())

    def proxies(self, process: Process) -> tuple[PostgresProxy, RedisProxy]:
        """Between a process and the two servers; only where the case is proxied."""
        return self._proxies[process.name]

    def leader(self) -> Process | None:
        """Who was elected last and has not stepped down since; the dead are asked, too."""
        moments = [
            (moment, one)
            for one in self._all
            for moment in one.times("leader.elected")
            if max(one.times("leader.stepped_down"), default=0) < moment
        ]
        return max(moments, key=lambda found: found[0])[1] if moments else None

    async def led(self, other_than: Process | None = None, within_s: float = 30.0) -> Process:
        """The leader, as soon as there is one (another one)."""

        async def is_led() -> bool:
            return self.leader() not in (None, other_than)

        await self.until(is_led, "somebody leads", within_s)
        leader = self.leader()
        assert leader is not None
        return leader

    async def until(
        self, holds: Callable[[], Awaitable[bool]], what: str, within_s: float = 30.0
    ) -> None:
        """Return as soon as it holds; AssertionError once it is too late."""
        give_up_s = time.monotonic() + within_s
        while not await holds():
            assert time.monotonic() < give_up_s, f"not within {within_s:g} s: {what}"
            await asyncio.sleep(0.02)

    @asynccontextmanager
    async def session(self, **options: Any) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """A connection of somebody else's, in autocommit mode unless said otherwise."""
        given = {"autocommit": True, "connect_timeout": 5, **options}
        connection = await psycopg.AsyncConnection.connect(self.postgres.url, **given)
        try:
            yield connection
        finally:
            await connection.close()

    async def sql(self, statement: str, *values: Any) -> list[Any]:
        """Rows of one statement."""
        async with self.session() as connection:
            cursor = await connection.execute(statement.encode(), values)
            return await cursor.fetchall() if cursor.description else []

    @asynccontextmanager
    async def redis_client(self) -> AsyncIterator[Redis]:
        """A client of somebody else's."""
        client = Redis.from_url(self.redis.url)
        try:
            yield client
        finally:
            await client.aclose()

    async def drained(self) -> None:
        """Return once nothing is pending, or the case's time for that is over."""
        give_up_s = time.monotonic() + self.case.drain_s
        while time.monotonic() < give_up_s:
            try:
                if not (await self.sql(PENDING))[0][0]:
                    return
            except psycopg.Error:
                pass
            await asyncio.sleep(LOOK_EACH_S)

    async def books(self, books: Books) -> None:
        """Complete the books of this run."""
        books.submitted, books.refused = self.load.submitted, self.load.refused
        books.called = self.receiver.called
        books.rows = [Row(*row) for row in await self.sql(ROWS)]

    async def audits(self) -> str | None:
        """What the audits find; None where they hold."""
        auditor = Auditor(self.postgres.url)
        try:
            await auditor.hold()
        except AssertionError as found:
            return str(found)
        finally:
            await auditor.close()
        return None

    def words(self) -> list[str]:
        """The last of what each process has printed."""
        return [
            f"{one.name}: {line.strip()[:400]}"
            for one in self._all
            for line in [line for line in one.said if "broker.report" not in line][-8:]
        ]

    def memory_mib(self) -> float:
        """Of the largest of our processes."""
        alive = (one for one in (*self.daemons, *self.brokers) if one.is_alive)
        return max((one.memory_mib() for one in alive), default=0.0)

    async def close(self) -> None:
        for process in self._all:
            await process.end()
        for proxies in self._proxies.values():
            for proxy in proxies:
                await proxy.stop()
        await self.endpoint_proxy.stop()
        await self.receiver.endpoint.stop()


@asynccontextmanager
async def open_world(
    case: Case, template: Template, nursery: Nursery, seed: int
) -> AsyncIterator[World]:
    """A fresh world, running."""
    path = template.directory()
    async with AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, path, ignore_errors=True)
        if case.disk is not None:
            stack.enter_context(case.disk.mounted(path))
        await asyncio.to_thread(template.copy, path)
        directory = stack.enter_context(DataDirectory(path))
        servers = Servers(directory, case.postgres, case.redis)
        stack.push_async_callback(servers.stop)
        await servers.start()
        world = World(case, servers, nursery, path, seed)
        stack.push_async_callback(world.close)
        await world.start()
        yield world


def _at(troubles: Sequence[Trouble], number: int) -> Trouble:
    return troubles[number] if number < len(troubles) else Trouble()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
