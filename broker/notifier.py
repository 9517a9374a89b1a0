"""
The way of a reference through a broker: read -> claim -> attempt -> settle -> acknowledge.

    reader      references of the event center             broker/reader.py
    intake      -> their lanes                             broker/intake.py
    lanes       hold them by moment, bound the work        broker/lane.py, gate.py
    tokens      leave to call, where there is a limit      broker/tokens.py
    timekeeper  what is claimed now, what starts now       broker/timekeeper.py
    claimer     the right to one attempt, in batches       broker/claimer.py
    caller      the attempt, and what its answer means     broker/caller.py, attempt.py, outcome.py
    results     the record of it                           broker/results.py
    settler     results to Postgres, then entries away     broker/settler.py
    holding     what becomes of a held lane's references   broker/holding.py
    direct      what is due, while there is no Redis       broker/direct.py
    recovery    endpoints that work again, told and heard  broker/recovery.py
    takeover    heartbeat, and what dead brokers held      broker/takeover.py
    handback    what others shall have                     broker/handback.py

What goes wrong where: a claim whose reply is lost comes back when its lease ends; a broker that
dies in a call leaves its lease, and the next claim counts the attempt as `lost`; one that dies
after a call, before the settle, makes the callback twice. No entry is given up but one whose task
was settled here, or of which the claim says that it is settled, gone, or somebody else's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from broker.caller import Caller
from broker.claimer import Claimer
from broker.direct import Direct
from broker.handback import HandBack
from broker.holding import Holding
from broker.intake import Intake
from broker.lane import Lane
from broker.lateness import LatenessTold
from broker.outcome import Unstarted
from broker.reader import Reader
from broker.recovery import Recovery
from broker.registry import Registry
from broker.report import Report
from broker.results import Results
from broker.settler import Settler
from broker.share import Share
from broker.takeover import TakeOver
from broker.timekeeper import Timekeeper
from broker.tokens import Tokens
from broker.transport import open_transport
from broker.waits import LaneWaits
from wheel_timer.biz import BizType
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.eventcenter import EventCenter
from wheel_timer.settings import Settings
from wheel_timer.store.brake import Brake
from wheel_timer.task import Ref

# A timer may come a little before its moment, and find the breaker still open.
TIMER_EARLY_S = 0.005
# What results get to reach Postgres at a stop, however short the drain.
SETTLE_S_MIN = 5.0

logger = logging.getLogger(__name__)


class Notifier:
    """All of a broker's delivery: `start` and `stop`, once each, in a running event loop."""

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
        self._event_center = event_center
        self._clock = clock
        self._registry = registry
        # Without a slot until the first heartbeat has told how many share them.
        self._share = Share(1, is_settled=False)
        self._lanes: dict[str, Lane] = {}
        self._loops: list[asyncio.Task[None]] = []
        self._intake = Intake(
            clock=clock,
            lanes=self._lanes,
            touched=lambda lane: self._timekeeper.touch(lane),
            held=lambda lane: self._holding.empty(lane),
            turned=lambda: self._timekeeper.turn_soon(),
        )
        # Of near tasks, where no event center takes them: called from here as far as there is room.
        self.deliver = self._intake.near
        self._hand_back = HandBack(db=db, event_center=event_center, let_go=self._let_go)
        self._lateness = LatenessTold(event_center=event_center, clock=clock)
        self._report = Report(self._lateness.add)
        self._transport = open_transport(settings)
        self._reader = Reader(
            event_center=event_center,
            lanes=lambda: list(self._lanes),
            lanes_with_room=self._lanes_with_room,
            deliver=self._intake.take,
        )
        self.takeover = TakeOver(
            event_center=event_center,
            lanes=lambda: list(self._lanes),
            lanes_with_slots=lambda: [name for name, lane in self._lanes.items() if lane.slots],
            deliver=self._intake.take,
            shared=self._take_share,
            alive=alive,
            lives=lambda: not clock.is_lost,
        )
        self._settler = Settler(
            db=db,
            event_center=event_center,
            lookahead_ms=round(settings.lookahead * 1000),
            acknowledged=self._let_go,
            reread=self._reader.reread,
            deliver=self.deliver,
            latest_ms=clock.latest_ms,
        )
        self._claimer = Claimer(
            db=db,
            clock=clock,
            settler=self._settler,
            ended=self._claim_ended,
            resumed=lambda: self._timekeeper.turn_soon(),
        )
        self._results = Results(
            clock=clock,
            settler=self._settler,
            report=self._report,
            broker_name=broker_name,
            is_known=lambda name: registry.get(name) is not None,
        )
        self._caller = Caller(
            transport=self._transport,
            clock=clock,
            results=self._results,
            slot_free=self._slot_free,
            answered=self._answered,
        )
        self._holding = Holding(
            db=db,
            clock=clock,
            shards=settings.shards,
            visibility_ms=round(settings.visibility * 1000),
            lookahead_ms=round(settings.lookahead * 1000),
            lanes=lambda: self._lanes,
            acknowledge=self._settler.acknowledge,
            emptied=self._see_room,
            deliver=self._intake.take,
        )
        self._direct = Direct(
            db=db,
            clock=clock,
            event_center=event_center,
            shards=settings.shards,
            visibility_ms=round(settings.visibility * 1000),
            lookahead_ms=round(settings.lookahead * 1000),
            lanes=lambda: self._lanes,
            deliver=self._intake.take,
        )
        self._waits = LaneWaits(event_center=event_center, db=db, clock=clock)
        self._recovery = Recovery(
            event_center=event_center, clock=clock, half_open=self._try_endpoint
        )
        self._tokens = Tokens(
            event_center=event_center,
            clock=clock,
            granted=lambda lane: self._timekeeper.touch(lane),
            brokers=lambda: self._share.brokers,
        )
        self._timekeeper = Timekeeper(
            clock=clock,
            claim=self._claimer.begin,
            start=self._caller.start,
            release=lambda lane, claim, ref: self._results.settle(lane, claim, ref, Unstarted()),
            may_claim=self._claimer.may_claim,
            ask=self._tokens.ask,
        )
        clock.on_test_pulse(self._timekeeper.turn_soon)
        clock.on_jump(self._reader.wake)

    async def start(self) -> None:
        """Begin to read and to call; the registry is loaded by then."""
        known = [self._registry.get(name) for name in self._registry.names()]
        self._configure([biz for biz in known if biz is not None])
        self._registry.on_change(self._configure)
        self._registry.on_delete(self._forget)
        self._registry.on_brake(self._brake)
        self._loops = [
            asyncio.create_task(self.takeover.run(), name="takeover"),
            asyncio.create_task(self._reader.run(), name="reader"),
            asyncio.create_task(self._holding.run(), name="holding"),
            asyncio.create_task(self._direct.run(), name="direct"),
        ]

    def ready(self) -> bool:
        """Whether a task that is due now would be claimed now."""
        return bool(self._loops) and self._clock.is_known() and not self._claimer.is_held

    @property
    def is_stopping(self) -> bool:
        """Whether nothing more is claimed."""
        return self._timekeeper.is_stopped

    def lane(self, biz_type: str) -> Lane:
        """A lane as it stands in this broker."""
        return self._lanes[biz_type]

    def longest_call_s(self) -> float:
        """What the call in flight with the longest timeout may take."""
        return self._caller.longest_call_s()

    async def stop(self, drain_s: float, at_once: asyncio.Event) -> None:
        """
        Read and claim nothing more, hand back what was not claimed, put back what was not started,
        let the calls in flight end for up to drain_s or until at_once is set, then put them back,
        too; settle and acknowledge everything.
        """
        self._timekeeper.stop()
        await self._tokens.stop()
        await self._holding.stop()
        self.takeover.leave()
        self._reader.stop()
        self._direct.stop()
        await self._claimer.drain()
        for lane in self._lanes.values():
            for claim, ref in lane.give_up_claimed():
                self._results.settle(lane, claim, ref, Unstarted())
        await self._hand_back.refs(self._waiting())
        await self._caller.drain(drain_s, at_once)
        await self._settle_all(SETTLE_S_MIN if at_once.is_set() else max(drain_s, SETTLE_S_MIN))
        self.takeover.stop()
        await asyncio.gather(*self._loops)
        await self._waits.stop()
        await self._recovery.stop()
        await self._hand_back.stop()
        # The read that was under way may have brought some more.
        await self._hand_back.refs(self._waiting())
        await self._hand_back.leave()
        self._report.state(self._lanes.values(), self._clock.now_ms())
        await self._lateness.stop()
        await self._transport.aclose()

    def _lanes_with_room(self) -> list[str]:
        """Those to read; none where the time never was known here: other brokers read them."""
        if self._clock.is_lost:
            return []
        now_ms = self._clock.now_ms()
        return [name for name, lane in self._lanes.items() if lane.has_room(now_ms)]

    def _configure(self, changed: Sequence[BizType]) -> None:
        # Workers reserve these from now on (broker/pull.py); calls under way end as they do.
        if pulled := self._leave([biz.biz_type for biz in changed if biz.delivery == "pull"]):
            self._hand_back.refs_soon(pulled)
        for biz in changed:
            if biz.delivery == "pull":
                continue
            lane = self._lanes.get(biz.biz_type)
            if lane is None:
                is_braked = self._registry.brake is not None
                lane = self._lanes[biz.biz_type] = Lane(biz, self._share, is_braked=is_braked)
            else:
                lane.configure(biz, self._share)
                self._reconsider(lane)
            self._tokens.open(lane)
        self._holding.look()
        self._reader.wake()

    def _brake(self, brake: Brake | None) -> None:
        """Nothing new is called, from this turn of the loop on; or it is again."""
        for lane in self._lanes.values():
            lane.gate.brake(brake is not None)
            self._reconsider(lane)
        self._holding.look()

    def _reconsider(self, lane: Lane) -> None:
        """What holds a lane may have changed."""
        self._timekeeper.touch(lane)
        if lane.gate.hold(self._clock.now_ms()) is not None:
            self._holding.empty(lane)

    def _answered(self, lane: Lane, is_good: bool | None, started_ms: float, now_ms: float) -> None:
        """A call has ended: the breaker of its lane may open or close by it."""
        breaker = lane.gate.breaker
        until_ms = breaker.until_ms
        lane.answered(is_good, started_ms, now_ms)
        if breaker.until_ms == until_ms:
            return
        if breaker.until_ms is None:
            logger.info("%s: its endpoint works again, the breaker has closed", lane.biz_type)
            self._recovery.tell(lane)
            self._holding.fill(lane, with_retries=True)
        else:
            open_s = (breaker.until_ms - now_ms) / 1000
            logger.info("%s: the breaker is open for %g s", lane.biz_type, open_s)
            asyncio.get_running_loop().call_later(open_s + TIMER_EARLY_S, self._holding.fill, lane)
        self._reconsider(lane)

    def _try_endpoint(self, lane: Lane) -> None:
        """The breaker of this lane lets a probe go: there may be none here but what is held."""
        self._timekeeper.touch(lane)
        self._holding.fill(lane)

    def _leave(self, names: Sequence[str]) -> list[Ref]:
        """Start nothing more of these biz_types, here; returns what waited for it."""
        waiting: list[Ref] = []
        for name in names:
            lane = self._lanes.pop(name, None)
            if lane is not None:
                for claim, ref in lane.give_up_claimed():
                    self._results.settle(lane, claim, ref, Unstarted())
                waiting += lane.give_up_waiting()
        return waiting

    def _forget(self, names: Sequence[str]) -> None:
        """These biz_types are gone: nothing more of them is started, their lanes are removed."""
        self._leave(names)
        self._reader.wake()
        # Made again meanwhile, a biz_type keeps its lane.
        self._hand_back.lanes_soon(lambda: [name for name in names if name not in self._lanes])

    def _take_share(self, share: Share) -> None:
        """Once a second: this broker's place among the others."""
        if share != self._share:
            self._share = share
            for lane in self._lanes.values():
                lane.share(share)
                self._timekeeper.touch(lane)
            # Lanes without a slot here are read by others.
            foreign = [
                ref
                for lane in self._lanes.values()
                if not lane.slots
                for ref in lane.give_up_waiting()
            ]
            if foreign:
                self._hand_back.refs_soon(foreign)
            self._holding.look()
            self._reader.wake()
        self._report.state(self._lanes.values(), self._clock.now_ms())
        self._lateness.look()
        self._waits.look(self._lanes.values())
        self._recovery.look(self._lanes.values())

    def _claim_ended(self, lanes: Iterable[Lane]) -> None:
        self._timekeeper.claim_ended(lanes)
        now_ms = self._clock.now_ms()
        for lane in lanes:
            self._see_room(lane)
            if lane.gate.is_narrow and lane.gate.hold(now_ms) is not None:
                self._holding.empty(lane)

    def _see_room(self, lane: Lane) -> None:
        """A full lane is left out of the blocking read under way: read anew once it has room."""
        if lane.is_full and lane.has_room(self._clock.now_ms()):
            self._reader.wake()

    def _slot_free(self, lane: Lane) -> None:
        lane.in_flight -= 1
        self._timekeeper.touch(lane)

    def _let_go(self, refs: Sequence[Ref]) -> None:
        for ref in refs:
            lane = self._lanes.get(ref.biz_type)
            if lane is not None:
                lane.let_go(ref)

    async def _settle_all(self, within_s: float) -> None:
        try:
            async with asyncio.timeout(within_s):
                await self._settler.drain()
        except TimeoutError:
            # Their leases end, and they are called again: after their answer, so twice.
            logger.error("%d results could not be settled in time", self._settler.backlog)

    def _waiting(self) -> list[Ref]:
        """All that was read and not claimed: no longer here."""
        return [ref for lane in self._lanes.values() for ref in lane.give_up_waiting()]
