"""
The composition of a broker: builds everything, owns start and stop.

A broker has two roles, both by default: `api` takes submissions in, `notifier` makes the callbacks.
They share the clock, the registry and the event center, and have a pool of connections each, so
that a flood of submits cannot keep a callback from being settled.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any, Final, Literal
from uuid import UUID

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from broker import tracing
from broker.api.access import check_local
from broker.api.app import build_app
from broker.api.context import Context
from broker.auditor import Auditor
from broker.changer import Changer
from broker.console.app import Console, with_console
from broker.guard import Guard
from broker.keys import Keys
from broker.near import Deliver, left_to_nets
from broker.notifier import Notifier
from broker.pull import Pull
from broker.registry import Registry
from broker.reports import Reports
from broker.submitter import Submitter
from broker.testclock import TestClock
from wheel_timer import metrics
from wheel_timer.clock import Clock
from wheel_timer.database import Database, Session
from wheel_timer.echo import echo_route
from wheel_timer.errors import Forbidden, StartRefused, WheelTimerError
from wheel_timer.eventcenter import EventCenter
from wheel_timer.heartbeat import Heartbeat
from wheel_timer.identity import identity
from wheel_timer.ops import Health, ops_routes
from wheel_timer.process import HttpServer, Stop, listen
from wheel_timer.scraper import reader
from wheel_timer.settings import Settings
from wheel_timer.store.leader import cluster_id
from wheel_timer.store.migrate import check_schema
from wheel_timer.store.wheel import shards
from wheel_timer.task import Ref
from wheel_timer.window import window

log: Final = logging.getLogger(__name__)

Role = Literal["api", "notifier", "both"]

DRAIN_BEYOND_TIMEOUT_S: Final = 5.0


class Broker:
    """One broker process: `start`, then `stop`."""

    def __init__(
        self,
        settings: Settings,
        role: Role,
        *,
        demo_echo: bool,
        test_clock: bool,
        speaks_for_all: bool,
    ) -> None:
        self._settings = settings
        self._role = role
        self._demo_echo = demo_echo
        self._has_test_clock = test_clock
        self._speaks_for_all = speaks_for_all
        self._identity = identity("broker")
        self._api_db = self._database("api")
        self._db = self._database("notifier")
        self._clock = Clock(self._db, jump_max_s=settings.clock_jump_max)
        self._registry = Registry(self._api_db, Guard.of(settings).judge)
        self._clock.on_biz_version(self._registry.pulse)
        self._keys = Keys(self._api_db, self._clock)
        if role != "notifier":
            self._clock.on_biz_version(self._keys.pulse)
        self._heartbeat = Heartbeat(self._db, self._clock, self._identity, "broker", self._beaten)
        self._health = Health(self._ready)
        self._alive = 1
        self._loops: list[asyncio.Task[None]] = []
        self._submitter: Submitter | None = None
        self._changer: Changer | None = None
        self._auditor: Auditor | None = None
        self._notifier: Notifier | None = None
        self._pull: Pull | None = None
        self._reports: Reports | None = None
        self._pull_center: EventCenter | None = None
        self._event_center: EventCenter | None = None

    def _database(self, purpose: str) -> Database:
        settings = self._settings
        return Database(
            settings.database_url,
            schema=settings.database_schema,
            pool_size=max(2, settings.database_pool_size // 2),
            name=f"{self._identity} {purpose}",
        )

    async def start(self) -> ASGIApp:
        """Connect, begin to call back, and return the app to serve. Raises DatabaseUnavailable."""
        settings = self._settings
        await self._clock.measure()
        await self._registry.load()
        cluster = await cluster_id(self._db)
        event_center = EventCenter(
            settings.redis_url,
            prefix=settings.redis_prefix,
            consumer=self._identity,
            cluster_id=cluster,
        )
        event_center.window_of = self._window_of
        self._event_center = event_center
        self._loops = [
            asyncio.create_task(self._clock.run()),
            asyncio.create_task(self._heartbeat.run()),
        ]
        if self._role != "api":
            self._notifier = Notifier(
                db=self._db,
                event_center=event_center,
                clock=self._clock,
                registry=self._registry,
                settings=settings,
                broker_name=self._identity,
                alive=lambda: self._alive,
            )
            await self._notifier.start()
        if self._role == "notifier":
            return Starlette(routes=ops_routes(self._health, reader(settings.admin_key, self._db)))
        await self._keys.load()
        deliver = await self._start_pull(event_center, cluster)
        self._submitter = Submitter(
            db=self._api_db,
            event_center=event_center,
            clock=self._clock,
            shards=settings.shards,
            lookahead_ms=round(settings.lookahead * 1000),
            max_pending=lambda: self._registry.max_pending,
            deliver=deliver,
        )
        self._changer = Changer(
            db=self._api_db,
            event_center=event_center,
            clock=self._clock,
            lookahead_ms=round(settings.lookahead * 1000),
            deliver=deliver,
        )
        assert self._pull is not None
        assert self._reports is not None
        context = Context(
            settings=settings,
            db=self._api_db,
            clock=self._clock,
            event_center=event_center,
            registry=self._registry,
            keys=self._keys,
            submitter=self._submitter,
            changer=self._changer,
            pull=self._pull,
            reports=self._reports,
            health=self._health,
            test_clock=self._test_clock(settings) if self._has_test_clock else None,
        )
        self._auditor = context.auditor
        api = with_console(build_app(context), Console(context, cluster))
        return _with_echo(api, settings) if self._demo_echo else api

    async def _start_pull(self, event_center: EventCenter, cluster: UUID) -> Deliver:
        """Begin to serve workers; returns what takes near tasks while there is no event center."""
        settings = self._settings
        self._pull_center = EventCenter(
            settings.redis_url,
            prefix=settings.redis_prefix,
            consumer=identity("server"),
            cluster_id=cluster,
            members="servers",
        )
        self._pull = Pull(
            db=self._db,
            event_center=self._pull_center,
            clock=self._clock,
            registry=self._registry,
            settings=settings,
            broker_name=self._identity,
            alive=lambda: self._alive,
        )
        await self._pull.start()
        called = self._notifier.deliver if self._notifier else left_to_nets
        pulled = self._pull.deliver

        def deliver(refs: Sequence[Ref]) -> None:
            # Each takes those of its own lanes.
            called(refs)
            pulled(refs)

        self._reports = Reports(
            db=self._api_db,
            event_center=event_center,
            clock=self._clock,
            registry=self._registry,
            broker_name=self._identity,
            lookahead_ms=round(settings.lookahead * 1000),
            deliver=deliver,
            reported=self._pull.reported,
        )
        return deliver

    def _test_clock(self, settings: Settings) -> TestClock:
        turns = Session(
            settings.database_direct_url or settings.database_url,
            schema=settings.database_schema,
            name="test clock",
        )
        return TestClock(self._api_db, self._clock, turns)

    def _window_of(self, biz_type: str) -> int:
        """What a lane takes of near tasks; what it is worked off at, the daemon measures."""
        biz = self._registry.get(biz_type)
        return window(biz.rate_limit if biz else None, self._settings.visibility)

    async def stop(self, server: HttpServer, stop: Stop) -> None:
        """Callbacks stop being claimed now; the listener closes after DRAIN_DELAY."""
        self._health.drain()
        await asyncio.gather(
            self._stop_api(server, stop), self._stop_notifier(stop), self._stop_pull()
        )
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        await self._registry.stop()
        await self._heartbeat.leave()
        for center in (self._event_center, self._pull_center):
            if center is not None:
                await center.close()
        await self._api_db.close()
        await self._db.close()

    def _drain_s(self, longest_call_s: float = 0.0) -> float:
        """DRAIN, or what the longest callback may take, of a timeout of its own too, and a bit."""
        if self._settings.drain is not None:
            return self._settings.drain
        known = (self._registry.get(name) for name in self._registry.names())
        timeouts = [biz.timeout for biz in known if biz is not None]
        return max([longest_call_s, *timeouts]) + DRAIN_BEYOND_TIMEOUT_S

    async def _stop_api(self, server: HttpServer, stop: Stop) -> None:
        if not stop.by_terminal:
            await stop.pause(self._settings.drain_delay)
        await server.stop(self._drain_s(), stop.at_once)
        if self._submitter is not None:
            await self._submitter.stop()
        if self._changer is not None:
            await self._changer.stop()
        if self._auditor is not None:
            await self._auditor.stop()
        if self._reports is not None:
            await self._reports.stop()

    async def _stop_pull(self) -> None:
        """Nothing more is reserved; what workers have they report until the API is gone."""
        if self._pull is not None:
            await self._pull.stop()

    async def _stop_notifier(self, stop: Stop) -> None:
        """In-flight calls get DRAIN; a second signal ends that at once."""
        if self._notifier is not None:
            drain_s = self._drain_s(self._notifier.longest_call_s())
            await self._notifier.stop(drain_s, stop.at_once)

    def _beaten(self, alive: int | None) -> None:
        if alive is not None:
            self._alive = alive

    async def _unled(self) -> list[int]:
        """Shards without a leader. By a test's clock, which jumps, a lease may be over at once."""
        found = await shards(self._api_db)
        if self._has_test_clock:
            return [shard.shard for shard in found if shard.leader is None]
        return [shard.shard for shard in found if not shard.is_led]

    async def _ready(self) -> tuple[bool, dict[str, Any]]:
        """API: a commit is possible. Notifier: claims are. Redis away only degrades."""
        try:
            row = await self._api_db.fetch_one("can_commit")
        except WheelTimerError as error:
            metrics.database_up(False)
            # Everybody may ask this, and what the database says may name hosts and users.
            log.debug("a commit is not possible: %s", error)
            return False, {"reason": "the database does not answer"}
        metrics.database_up(True)
        if row != (True,):
            return False, {"reason": "the database is read-only"}
        if self._notifier is not None and not self._notifier.ready():
            return False, {"reason": "claims are not possible"}
        if self._speaks_for_all and (led_by_none := await self._unled()):
            return False, {"reason": f"no daemon leads shard {led_by_none[0]}"}
        assert self._event_center is not None
        try:
            await self._event_center.ping()
        except WheelTimerError:
            metrics.event_center_up(False)
            return True, {"degraded": ["event_center"]}
        metrics.event_center_up(True)
        return True, {}


def _with_echo(api: ASGIApp, settings: Settings) -> ASGIApp:
    """The app of `up`: its own endpoint beside the API."""
    echo = Starlette(routes=[echo_route(json_lines=settings.log_format == "json")])

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/demo/echo":
            await api(scope, receive, send)
            return
        try:
            # Whatever the method: it writes to a terminal, and that is not for any page to do.
            check_local("POST", scope["headers"])
        except Forbidden as error:
            await PlainTextResponse(str(error), 403)(scope, receive, send)
        else:
            await echo(scope, receive, send)

    return app


def check_bind(host: str, settings: Settings) -> None:
    """Without ADMIN_KEY anybody who reaches the port may do anything: loopback only."""
    if settings.admin_key is None and not ip_address(host).is_loopback:
        raise StartRefused(f"{host} is not loopback: set ADMIN_KEY to serve others")


async def main(
    settings: Settings,
    stop: Stop,
    *,
    sockets: list[socket.socket] | None,
    host: str,
    port: int,
    role: Role,
    demo_echo: bool,
    speaks_for_all: bool,
    test_clock: bool,
) -> None:
    """Run a broker on the given sockets, or on host and port, until a stop is requested."""
    if not settings.database_url or not settings.redis_url:
        raise StartRefused("a broker needs DATABASE_URL and REDIS_URL")
    await asyncio.to_thread(
        check_schema,
        settings.database_url,
        settings.database_schema,
        settings.shards,
        settings.instance,
    )
    if sockets is None:
        sockets = [listen(host, port)]
    for bound in sockets:
        check_bind(bound.getsockname()[0], settings)
    broker = Broker(
        settings,
        role,
        demo_echo=demo_echo,
        test_clock=test_clock,
        speaks_for_all=speaks_for_all,
    )
    tracing.set_up(os.environ)
    server = HttpServer(await broker.start(), sockets)
    await server.start()
    await stop.requested.wait()
    await broker.stop(server, stop)
    await tracing.stop()
