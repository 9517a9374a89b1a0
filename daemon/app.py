"""
The composition of a daemon: which shards it stands by for, and the hands of those it leads.

    for each shard:  stand by (poll) -> lead: keep the lease, turn its hands -> ...

Shards are shared out evenly among the daemons alive: each takes its share at once; what nobody else
has taken for UNWANTED_S it takes as well; and it gives up one that is over its share.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any, Final

from starlette.applications import Starlette

from daemon.due import DueHand
from daemon.fill import FillHand
from daemon.hand import turn
from daemon.leader import POLL_S, Leader
from daemon.ledger import LedgerHand
from daemon.limits import Limits
from daemon.operations import OPERATIONS_SHARD, Operator
from daemon.reap import REAP_SHARD, ReapHand
from daemon.schedules import ScheduleHand
from daemon.sweep import SweepHand
from daemon.windows import Windows
from wheel_timer import metrics
from wheel_timer.clock import PULSE_IDLE_S, Clock
from wheel_timer.database import Database, Session
from wheel_timer.errors import StartRefused, WheelTimerError
from wheel_timer.eventcenter import EventCenter
from wheel_timer.heartbeat import Heartbeat
from wheel_timer.identity import identity
from wheel_timer.monotonic import monotonic_s
from wheel_timer.ops import Health, ops_routes
from wheel_timer.process import HttpServer, Stop, listen
from wheel_timer.scraper import reader
from wheel_timer.settings import Settings
from wheel_timer.store.leader import Term, cluster_id
from wheel_timer.store.migrate import check_schema

log: Final = logging.getLogger(__name__)

UNWANTED_S: Final = 1.0
FAULT_PAUSE_S: Final = 0.5
OPS_GRACE_S: Final = 1.0


class Daemon:
    """One daemon. `run` until `stop` is requested."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._identity = identity("daemon")
        self._db = Database(
            settings.database_url,
            schema=settings.database_schema,
            pool_size=settings.database_pool_size,
            name=self._identity,
        )
        self._session = Session(
            settings.database_direct_url or settings.database_url,
            schema=settings.database_schema,
            name=f"{self._identity} lease",
        )
        self._clock = Clock(self._db, jump_max_s=settings.clock_jump_max)
        self._leaders = [
            Leader(self._session, self._db, shard, self._identity)
            for shard in range(settings.shards)
        ]
        self._limits = Limits(self._db)
        self._clock.on_biz_version(self._limits.pulse)
        self._alive = 1
        self._heartbeat = Heartbeat(self._db, self._clock, self._identity, "daemon", self._beaten)
        self._measured_s = 0.0
        self._stopping = asyncio.Event()
        self.health = Health(self._ready)
        self.metrics_reader = reader(settings.admin_key, self._db)

    async def run(self, stop: Stop) -> None:
        """Stand by and lead until a stop is requested; then give every lease back."""
        await self._clock.measure()
        await self._limits.refresh()
        event_center = EventCenter(
            self._settings.redis_url,
            prefix=self._settings.redis_prefix,
            consumer=self._identity,
            cluster_id=await cluster_id(self._db),
        )
        beat = asyncio.create_task(self._heartbeat.run())
        shards = [
            asyncio.create_task(self._serve(leader, event_center)) for leader in self._leaders
        ]
        await stop.requested.wait()
        self.health.drain()
        self._stopping.set()
        for leader in self._leaders:
            await leader.resign()
        hurry = asyncio.create_task(stop.at_once.wait())
        ended = asyncio.gather(*shards)
        either: set[asyncio.Future[Any]] = {ended, hurry}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        # What a second signal cuts short belongs to the next leader already.
        for task in (hurry, beat, ended):
            task.cancel()
        await asyncio.gather(hurry, beat, return_exceptions=True)
        with suppress(asyncio.CancelledError):
            await ended
        await self._heartbeat.leave()
        await self._session.close()
        await event_center.close()
        await self._db.close()

    async def _serve(self, leader: Leader, event_center: EventCenter) -> None:
        """Stand by for one shard, lead it, again and again."""
        while not self._stopping.is_set():
            term = await self._stand_by(leader)
            if term is not None:
                await self._lead(leader, term, event_center)

    async def _stand_by(self, leader: Leader) -> Term | None:
        """Poll until the shard is ours; None once the daemon stops."""
        wanted_s = monotonic_s()
        while not self._stopping.is_set():
            if self._has_share() and monotonic_s() - wanted_s < UNWANTED_S:
                await asyncio.sleep(POLL_S)
                continue
            try:
                # The looks of a leader carry the clock along; a standby must ask for it.
                if monotonic_s() - self._measured_s >= PULSE_IDLE_S:
                    self._measured_s = monotonic_s()
                    await self._clock.measure()
                if self._clock.jump_ms is not None:
                    # It may be this machine's own clock that is wrong, and the others can go on.
                    await asyncio.sleep(POLL_S)
                    continue
                term = await leader.poll()
            except WheelTimerError as error:
                log.warning("shard %d cannot be polled: %s", leader.shard, error)
                metrics.database_up(False)
                await asyncio.sleep(FAULT_PAUSE_S)
                continue
            metrics.database_up(True)
            if term is not None:
                return term
            await asyncio.sleep(POLL_S)
        return None

    def _share(self) -> int:
        return -(-len(self._leaders) // self._alive)

    def _has_share(self) -> bool:
        return sum(leader.is_leader for leader in self._leaders) >= self._share()

    async def _lead(self, leader: Leader, term: Term, event_center: EventCenter) -> None:
        settings = self._settings
        windows = Windows(
            biz_types=self._limits.biz_types,
            visibility_s=settings.visibility,
            shards=settings.shards,
        )
        sweep = SweepHand(
            db=self._db,
            event_center=event_center,
            windows=windows,
            clock=self._clock,
            leader=leader,
            swept_ms=term.sweep_time_ms,
            current_ms=term.current_time_ms,
            visibility_s=settings.visibility,
        )
        operator = Operator(
            db=self._db,
            clock=self._clock,
            leader=leader,
            shards=settings.shards,
            lookahead_ms=round(settings.lookahead * 1000),
        )
        ledger = LedgerHand(db=self._db, leader=leader)
        due = DueHand(
            db=self._db,
            event_center=event_center,
            clock=self._clock,
            leader=leader,
            windows=windows,
            current_ms=term.current_time_ms,
            lookahead_ms=round(settings.lookahead * 1000),
            visibility_ms=round(settings.visibility * 1000),
            moved=sweep.follow,
            found_operations=operator.wake,
            found_deltas=ledger.wake,
        )
        fill = FillHand(
            clock=self._clock,
            db=self._db,
            event_center=event_center,
            leader=leader,
            limits=self._limits,
            windows=windows,
        )
        schedules = ScheduleHand(
            db=self._db,
            event_center=event_center,
            clock=self._clock,
            leader=leader,
            horizon_ms=round(settings.schedule_horizon * 1000),
            lookahead_ms=round(settings.lookahead * 1000),
        )
        hands = (due, sweep, fill, schedules)
        duties = [leader.keep(), *[turn(hand, leader) for hand in hands]]
        if leader.shard == OPERATIONS_SHARD:
            duties += [turn(operator, leader), turn(ledger, leader)]
        if leader.shard == REAP_SHARD:
            reap = ReapHand(
                db=self._db,
                clock=self._clock,
                leader=leader,
                shards=settings.shards,
                retention_s=settings.retention,
            )
            duties.append(turn(reap, leader))
        await asyncio.gather(*duties)
        if leader.shard == OPERATIONS_SHARD:
            ledger.end()
        # It may have ended without a word, by the clock alone: this process was frozen.
        leader.step_down("its lease was not renewed in time")
        await leader.resign()

    def _beaten(self, alive: int | None) -> None:
        """So many daemons share the shards. Give up a shard over our share."""
        if alive is not None:
            self._alive = alive
        leading = [leader for leader in self._leaders if leader.is_leader]
        if len(leading) > self._share():
            leading[-1].step_down(f"{self._alive} daemons share the shards")

    async def _ready(self) -> tuple[bool, dict[str, Any]]:
        """Leading or standing by, with a database that answers. Redis away only degrades."""
        leading = [leader.shard for leader in self._leaders if leader.is_leader]
        try:
            await self._clock.measure()
        except WheelTimerError as error:
            return False, {"reason": str(error), "leading": leading}
        if not self._clock.is_known():
            return False, {"reason": "the database's clock has jumped", "leading": leading}
        return True, {"leading": leading}


async def main(settings: Settings, stop: Stop, ops_port: int) -> None:
    """Run a daemon. With ADMIN_KEY its ops port serves other machines too, as the API does."""
    if not settings.database_url or not settings.redis_url:
        raise StartRefused("a daemon needs DATABASE_URL and REDIS_URL")
    await asyncio.to_thread(
        check_schema,
        settings.database_url,
        settings.database_schema,
        settings.shards,
        settings.instance,
    )
    daemon = Daemon(settings)
    key = settings.admin_key
    routes = ops_routes(daemon.health, daemon.metrics_reader)
    server = HttpServer(
        Starlette(routes=routes), [listen("0.0.0.0" if key else "127.0.0.1", ops_port)]
    )
    await server.start()
    try:
        await daemon.run(stop)
    finally:
        await server.stop(OPS_GRACE_S, stop.at_once)
