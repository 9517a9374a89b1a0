"""
Pull: what is due of biz_types whose workers come for it; beside the notifier, in whoever serves the
API, for that is where workers come to.

    worker waits    reserve: an open worker in its lane             broker/pull_lane.py
    reader          references, while somebody here waits for some  broker/reader.py
    timekeeper      at their moments                                broker/timekeeper.py
    tokens          leave, where there is a rate limit              broker/tokens.py
    reserving       the claim, the requeue row at its lease's end   broker/reserving.py
    reports         finish, release, bury, touch                    broker/reports.py

It reads under a name of its own and beats among those who do the same (`servers`), so that the
notifiers' shares of a lane know nothing of it. A lane is read only while a worker waits for it
here. What was read and nobody here wants goes back at once: no worker elsewhere waits for what is
due.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from broker.direct import Direct
from broker.handback import HandBack
from broker.holding import Holding
from broker.intake import Intake
from broker.lane import Lane
from broker.outcome import Unstarted
from broker.pull_lane import LINGER_S, PullLane, Worker
from broker.reader import READ_COUNT, Reader
from broker.registry import Registry
from broker.report import Report
from broker.reserving import Reserving
from broker.results import Results
from broker.settler import Settler
from broker.share import Share
from broker.takeover import TakeOver
from broker.timekeeper import Timekeeper
from broker.tokens import Tokens
from broker.waits import LaneWaits
from wheel_timer.biz import BizType
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.errors import FieldError, InvalidTask, NotFound, Overloaded
from wheel_timer.eventcenter import EventCenter
from wheel_timer.settings import Settings
from wheel_timer.store.brake import Brake
from wheel_timer.task import Claim, Ref

# Who does not wait is told "nothing" only after a look: a read takes a millisecond, a fetch fifty.
WAIT_S_MIN: Final = 0.2
# A worker that waits looks for what was held; so many look together.
LOOK_HELD_S: Final = 1.0
WORKERS_MAX: Final = 10_000
SETTLE_S_MAX: Final = 5.0

logger = logging.getLogger(__name__)


class Pull:
    """
    All of a broker's reserves: `start` and `stop`, once each. event_center: one of its own.

    alive: how many brokers there are as far as Postgres knows.
    """

    def __init__(
        self,
        *,
        db: Database,
        event_center: EventCenter,
        clock: Clock,
        registry: Registry,
        settings: Settings,
        broker_name: str,
        alive: Callable[[], int] = lambda: 1,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._event_center = event_center
        self._clock = clock
        self._registry = registry
        self._lanes: dict[str, PullLane] = {}
        self._brokers = 1
        self._loops: list[asyncio.Task[None]] = []
        self._is_stopping = False
        self._tidy_handle: asyncio.TimerHandle | None = None
        self._looked_s = 0.0
        self._waiters = 0
        visibility_ms = round(settings.visibility * 1000)
        lookahead_ms = round(settings.lookahead * 1000)
        self._intake = Intake(
            clock=clock,
            lanes=self._lanes,
            touched=lambda lane: self._timekeeper.touch(lane),
            held=lambda _lane: self._tidy_soon(),
            turned=lambda: self._timekeeper.turn_soon(),
        )
        # Of near tasks, where no event center takes them.
        self.deliver = self._intake.near
        self._hand_back = HandBack(db=db, event_center=event_center, let_go=self._let_go)
        self._report = Report()
        self._reader = Reader(
            event_center=event_center,
            lanes=lambda: list(self._lanes),
            lanes_with_room=self._lanes_with_room,
            deliver=self._take,
            count=self._read_count,
        )
        self._takeover = TakeOver(
            event_center=event_center,
            lanes=lambda: list(self._lanes),
            lanes_with_slots=lambda: [name for name, lane in self._lanes.items() if lane.wishes],
            deliver=self._take,
            shared=self._beaten,
            alive=alive,
            # Who serves no lane need not be known to anybody.
            lives=lambda: bool(self._lanes) and not clock.is_lost,
        )
        self._settler = Settler(
            db=db,
            event_center=event_center,
            lookahead_ms=lookahead_ms,
            acknowledged=self._let_go,
            reread=self._reader.reread,
            deliver=self.deliver,
            latest_ms=clock.latest_ms,
        )
        self._results = Results(
            clock=clock,
            settler=self._settler,
            report=self._report,
            broker_name=broker_name,
            is_known=lambda name: registry.get(name) is not None,
        )
        self._reserving = Reserving(
            db=db,
            clock=clock,
            settler=self._settler,
            settle=self._results.settle,
            ended=self._claim_ended,
            resumed=lambda: self._timekeeper.turn_soon(),
            touched=lambda lane: self._timekeeper.touch(lane),
        )
        self._direct = Direct(
            db=db,
            clock=clock,
            event_center=event_center,
            shards=settings.shards,
            visibility_ms=visibility_ms,
            lookahead_ms=lookahead_ms,
            lanes=lambda: dict(self._lanes),
            deliver=self._take,
        )
        self._holding = Holding(
            db=db,
            clock=clock,
            shards=settings.shards,
            visibility_ms=visibility_ms,
            lookahead_ms=lookahead_ms,
            lanes=lambda: dict(self._lanes),
            acknowledge=self._settler.acknowledge,
            emptied=lambda _lane: None,
            deliver=self._intake.take,
        )
        self._waits = LaneWaits(event_center=event_center, db=db, clock=clock)
        self._tokens = Tokens(
            event_center=event_center,
            clock=clock,
            granted=lambda lane: self._timekeeper.touch(lane),
            brokers=lambda: self._brokers,
        )
        self._timekeeper = Timekeeper(
            clock=clock,
            claim=self._reserving.begin,
            # Nothing is claimed before there is a worker for it: there is nothing to start later.
            start=_never,
            release=_never,
            may_claim=self._reserving.may_reserve,
            ask=self._tokens.ask,
        )
        clock.on_test_pulse(self._timekeeper.turn_soon)
        clock.on_jump(self._reader.wake)

    async def start(self) -> None:
        """Begin to serve; the registry is loaded by then."""
        known = [self._registry.get(name) for name in self._registry.names()]
        self._configure([biz for biz in known if biz is not None])
        self._registry.on_change(self._configure)
        self._registry.on_delete(self._leave)
        self._registry.on_brake(self._brake)
        self._loops = [
            asyncio.create_task(self._takeover.run(), name="pull takeover"),
            asyncio.create_task(self._reader.run(), name="pull reader"),
            asyncio.create_task(self._direct.run(), name="pull direct"),
            asyncio.create_task(self._holding.run(), name="pull holding"),
        ]

    async def reserve(
        self, biz_type: str, wanted: int, ttr_ms: int, wait_s: float, gone: asyncio.Task[None]
    ) -> list[Claim]:
        """
        Reserve up to `wanted` tasks for ttr_ms; waits up to wait_s for the first of them.

        gone: done when nobody waits for the answer any more; what was reserved is given back then.
        Raises NotFound; InvalidTask where it is not pulled; Overloaded where too many wait, or this
        broker is stopping.
        """
        if self._is_stopping:
            raise Overloaded("this broker is stopping")
        lane = self._lanes.get(biz_type)
        if lane is None:
            await self._registry.refresh()
            lane = self._lanes.get(biz_type)
        if lane is None:
            if self._registry.get(biz_type) is None:
                raise NotFound(f"there is no biz_type {biz_type[:64]!r}")
            detail = f"{biz_type!r} is not pulled: its delivery is callback"
            raise InvalidTask([FieldError(detail, "#")])
        if self._waiters >= WORKERS_MAX:
            raise Overloaded("too many workers wait at this broker")
        worker = Worker(wanted, ttr_ms)
        self._waiters += 1
        self._join(lane, worker)
        try:
            await asyncio.wait(
                {worker.answer, gone},
                timeout=max(wait_s, WAIT_S_MIN),
                return_when=asyncio.FIRST_COMPLETED,
            )
            if not lane.leave(worker) and not worker.answer.done():
                # A call is under way for it: what it brings is this worker's.
                worker.is_leaving = True
                await worker.answer
        finally:
            self._waiters -= 1
            lane.leave(worker)
            self._tidy_soon()
        if gone.done() and worker.got:
            logger.debug("a worker of %s has gone: %d go back", biz_type, len(worker.got))
            self.give_back(worker.got)
            return []
        return worker.got

    def give_back(self, claims: Sequence[Claim]) -> None:
        """Nobody got these: they are due again at once, without a failure."""
        for claim in claims:
            lane = self._lanes.get(claim.biz_type)
            if lane is not None:
                ref = Ref(claim.task_id, claim.start_time_ms, claim.start_time_ms, 0, lane.biz_type)
                self._results.settle(lane, claim, ref, Unstarted())

    def reported(self, biz_type: str) -> None:
        """A reservation was given up: where as many are made as may be, there is room for one."""
        lane = self._lanes.get(biz_type)
        if lane is not None:
            self._reserving.relieve(lane)

    async def stop(self) -> None:
        """Send all who wait away; hand back what was read. Reports go on. Twice is as good."""
        if self._is_stopping:
            return
        self._is_stopping = True
        self._reserving.stop()
        for lane in self._lanes.values():
            self._send_away(lane)
        self._timekeeper.stop()
        await self._tokens.stop()
        await self._holding.stop()
        self._takeover.leave()
        self._reader.stop()
        self._direct.stop()
        await self._reserving.drain()
        await self._hand_back.refs(self._waiting())
        try:
            async with asyncio.timeout(SETTLE_S_MAX):
                await self._settler.drain()
        except TimeoutError:
            logger.error("%d results could not be settled in time", self._settler.backlog)
        self._takeover.stop()
        if self._tidy_handle is not None:
            self._tidy_handle.cancel()
        await asyncio.gather(*self._loops)
        await self._waits.stop()
        await self._hand_back.stop()
        # The read that was under way may have brought some more.
        await self._hand_back.refs(self._waiting())
        await self._hand_back.leave()
        self._report.count()

    def _join(self, lane: PullLane, worker: Worker) -> None:
        lane.join(worker)
        self._timekeeper.touch(lane)
        if lane.biz_type not in self._reader.reads and lane.has_room(self._clock.now_ms()):
            self._reader.wake()
        self._tidy_soon()
        now_s = self._loop.time()
        if now_s - self._looked_s >= LOOK_HELD_S:
            self._looked_s = now_s
            self._holding.look()

    def _claim_ended(self, lanes: Iterable[Lane]) -> None:
        """Read on at once for who got nothing: what was read were copies."""
        self._timekeeper.claim_ended(lanes)
        if set(self._lanes_with_room()) - self._reader.reads:
            self._reader.wake()

    def _send_away(self, lane: PullLane) -> None:
        for worker in list(lane.workers):
            lane.leave(worker)
            worker.send_away()

    def _lanes_with_room(self) -> list[str]:
        if self._clock.is_lost or self._is_stopping:
            return []
        now_ms = self._clock.now_ms()
        return [name for name, lane in self._lanes.items() if lane.has_room(now_ms)]

    def _read_count(self) -> int:
        """As many as are wanted: more would be in others' way; and more and more of later ones."""
        wishes = [max(lane.wishes, lane.depth) for lane in self._lanes.values() if lane.wishes]
        return min(READ_COUNT, max(wishes, default=1))

    def _take(self, refs: Sequence[Ref]) -> None:
        known = [ref for ref in refs if ref.biz_type in self._lanes]
        self._intake.take(known)
        if len(known) < len(refs):
            # Its biz_type is not pulled any more; they are others' to read.
            self._hand_back.refs_soon([ref for ref in refs if ref.biz_type not in self._lanes])
        self._tidy_soon()

    def _tidy_soon(self) -> None:
        if self._tidy_handle is None and not self._is_stopping:
            self._tidy_handle = self._loop.call_later(LINGER_S, self._tidy)

    def _tidy(self) -> None:
        """What nobody here wants is for others; a lane that nobody waits for is not read."""
        self._tidy_handle = None
        now_ms, now_s = self._clock.now_ms(), self._loop.time()
        surplus = [ref for lane in self._lanes.values() for ref in lane.surplus(now_ms, now_s)]
        if surplus:
            self._hand_back.refs_soon(surplus)
        must_read = set(self._lanes_with_room())
        if self._reader.reads - must_read or must_read - self._reader.reads:
            self._reader.wake()
        if must_read or any(lane.depth or lane.wishes for lane in self._lanes.values()):
            self._tidy_soon()

    def _configure(self, changed: Sequence[BizType]) -> None:
        self._leave([biz.biz_type for biz in changed if biz.delivery != "pull"])
        pulled = [biz for biz in changed if biz.delivery == "pull"]
        for biz in pulled:
            lane = self._lanes.get(biz.biz_type)
            if lane is None:
                is_braked = self._registry.brake is not None
                lane = self._lanes[biz.biz_type] = PullLane(biz, is_braked=is_braked)
            else:
                lane.configure(biz, Share(1))
                self._timekeeper.touch(lane)
            self._tokens.open(lane)
        if pulled:
            self._holding.look()
            self._tidy_soon()

    def _brake(self, brake: Brake | None) -> None:
        for lane in self._lanes.values():
            lane.gate.brake(brake is not None)
            self._timekeeper.touch(lane)
        self._tidy_soon()

    def _leave(self, names: Sequence[str]) -> None:
        """These are not pulled any more, or gone; the notifiers remove the lanes of the gone."""
        waiting: list[Ref] = []
        for name in names:
            lane = self._lanes.pop(name, None)
            if lane is not None:
                self._send_away(lane)
                waiting += lane.give_up_waiting()
        if waiting:
            self._hand_back.refs_soon(waiting)

    def _beaten(self, share: Share) -> None:
        """Once a second."""
        self._brokers = share.brokers
        self._report.count()
        self._waits.look(self._lanes.values())

    def _let_go(self, refs: Sequence[Ref]) -> None:
        for ref in refs:
            lane = self._lanes.get(ref.biz_type)
            if lane is not None:
                lane.let_go(ref)

    def _waiting(self) -> list[Ref]:
        return [ref for lane in self._lanes.values() for ref in lane.give_up_waiting()]


def _never(lane: object, claim: object, ref: object) -> None:
    raise AssertionError(lane, claim, ref)
