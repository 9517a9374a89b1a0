"""
What becomes of a held lane's references: they go out of memory and out of the event center, into
requeue rows far ahead; and come back when the lane is open again.

    held    hold: references -> requeue rows `held`, an hour ahead and spread; then acknowledged.
            Some stay in the lane of an open breaker, to be its probes.
    open    fetch: held rows -> references in this broker, no more at a time than the lane takes
            at once: they come beside what is new, not before it.
            recall: where a breaker has closed, retries come within RECALL_MS, spread.

While the database's clock has jumped, and nobody has said that it is right, nothing is brought
back: its row would be put off by the wrong clock, and nothing is called.

All of it stands in Postgres: what was held survives brokers and Redis. Rows that nobody brought
back (their broker died meanwhile) are found by the next look, and come by themselves within the
hour. Brokers that do this at once take different rows.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Final

from broker.lane import PROBES, Lane
from wheel_timer import signal
from wheel_timer.backoff import reconnect_delay_s
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.errors import WheelTimerError
from wheel_timer.store.fetch import fetch
from wheel_timer.store.hold import PAGE_ROWS, held, hold, recall
from wheel_timer.task import Ref
from wheel_timer.wheel import home_of

HOLD_MS: Final = 3_600_000
SPREAD_MS: Final = 600_000
RECALL_MS: Final = 60_000
# A page each so often, and other lanes have the loop, and Postgres, in between: a small one where
# work is put off, 1,000/s, which empties a lane before the sweep would find its tasks again.
HOLD_ROWS: Final = 50
HOLD_EACH_S: Final = 0.05
FETCH_EACH_S: Final = 0.05
LOOK_EACH_S: Final = 30.0
# A half-open lane without a probe looks for one; where the clock has jumped: whether it is back.
PROBE_EACH_S: Final = 1.0

logger = logging.getLogger(__name__)


class Holding:
    """
    lanes: all there are. acknowledge: gives up references that were held. emptied: called with a
    lane that has room again. deliver: takes references that were brought back, to be claimed not
    before a moment (ms).

    shards: how many there are. `changed` is called whenever a lane may have become held or open,
    `look` when many may.
    """

    def __init__(
        self,
        *,
        db: Database,
        clock: Clock,
        shards: int,
        visibility_ms: int,
        lookahead_ms: int,
        lanes: Callable[[], dict[str, Lane]],
        acknowledge: Callable[[Sequence[Ref]], None],
        emptied: Callable[[Lane], None],
        deliver: Callable[[Sequence[Ref], int], None],
    ) -> None:
        self._db = db
        self._clock = clock
        self._shards = shards
        self._visibility_ms = visibility_ms
        self._lookahead_ms = lookahead_ms
        self._lanes = lanes
        self._acknowledge = acknowledge
        self._emptied = emptied
        self._deliver = deliver
        # A thousand lanes that are let go at once take turns.
        self._turn = asyncio.Semaphore(1)
        self._emptying: dict[str, asyncio.Task[None]] = {}
        self._filling: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._recalls: set[str] = set()
        self._looking = asyncio.Event()
        self._is_stopped = False

    def empty(self, lane: Lane) -> None:
        """A lane is held, or got references while it is: hold them."""
        if lane.biz_type not in self._emptying and not self._is_stopped:
            self._emptying[lane.biz_type] = asyncio.create_task(self._empty(lane))

    def fill(self, lane: Lane, *, with_retries: bool = False) -> None:
        """A lane is open: bring back what was held; with_retries: its breaker has closed."""
        if with_retries:
            self._recalls.add(lane.biz_type)
        if lane.biz_type in self._filling:
            # It may be at its end, and have overlooked what was put away since.
            self._again.add(lane.biz_type)
        elif not self._is_stopped:
            self._filling[lane.biz_type] = asyncio.create_task(self._fill(lane))

    def look(self) -> None:
        """Many lanes may be open now: see which of them have anything held."""
        self._looking.set()

    async def run(self) -> None:
        """Look at the start, when told to, and now and then."""
        while not self._is_stopped:
            self._looking.clear()
            try:
                await self._look()
            except WheelTimerError as error:
                logger.warning("what is held was not looked for: %s", error)
            except Exception:
                # Whatever it was: without this, what is held waits for its hour.
                logger.exception("looking for what is held failed")
            try:
                async with asyncio.timeout(LOOK_EACH_S):
                    await self._looking.wait()
            except TimeoutError:
                continue

    async def _look(self) -> None:
        names = await held(self._db)
        lanes = self._lanes()
        now_ms = self._clock.now_ms()
        for name in names:
            lane = lanes.get(name)
            if lane is not None and lane.slots and lane.gate.hold(now_ms) is None:
                self.fill(lane)

    async def stop(self) -> None:
        """Hold and bring back nothing more."""
        self._is_stopped = True
        self._looking.set()
        tasks = [*self._emptying.values(), *self._filling.values()]
        if tasks:
            await asyncio.wait(tasks)

    async def _empty(self, lane: Lane) -> None:
        try:
            await self._hold_all(lane)
        except Exception:
            logger.exception("holding what waits for %s failed", lane.biz_type)
        finally:
            del self._emptying[lane.biz_type]
        # Opened meanwhile: who looked for what is held then did not find what came last.
        if lane.gate.hold(self._clock.now_ms()) is None:
            self.fill(lane)

    async def _fill(self, lane: Lane) -> None:
        try:
            # What is being put away at this moment would be overlooked, and come half a minute on.
            if lane.biz_type in self._emptying:
                await asyncio.wait([self._emptying[lane.biz_type]])
            await self._fetch_all(lane)
        except Exception:
            logger.exception("bringing back what is held of %s failed", lane.biz_type)
        finally:
            del self._filling[lane.biz_type]
        if lane.biz_type in self._again:
            self._again.discard(lane.biz_type)
            self.fill(lane)

    async def _hold_all(self, lane: Lane) -> None:
        failures = 0
        while not self._is_stopped:
            why = lane.gate.hold(self._clock.now_ms())
            if why is None:
                break
            refs = lane.give_up_waiting(HOLD_ROWS, PROBES if why == "breaker_open" else 0)
            if not refs:
                break
            try:
                await self._hold(refs)
                failures = 0
            except WheelTimerError as error:
                logger.warning("%d references of %s stay: %s", len(refs), lane.biz_type, error)
                for ref in refs:
                    lane.put_back(ref, ref.moment_ms)
                failures += 1
                await asyncio.sleep(reconnect_delay_s(failures))
                continue
            signal.reached("delivery.held")
            self._acknowledge(refs)
            self._emptied(lane)
            await asyncio.sleep(HOLD_EACH_S)

    async def _hold(self, refs: Sequence[Ref]) -> None:
        due_ms = int(self._clock.now_ms()) + HOLD_MS
        by_shard: dict[int, dict[object, Ref]] = defaultdict(dict)
        for ref in refs:
            by_shard[home_of(ref.task_id)[1]][ref.task_id] = ref
        for shard, one_each in by_shard.items():
            page = list(one_each.values())
            dues = [due_ms + random.randrange(SPREAD_MS) for _ in page]
            await hold(self._db, shard, page, dues)

    async def _fetch_all(self, lane: Lane) -> None:
        shards = list(range(self._shards))
        failures = 0
        while (shards or lane.biz_type in self._recalls) and not self._is_stopped:
            now_ms = self._clock.now_ms()
            # Without a slot here it is others who bring it back.
            if not lane.slots or lane.gate.hold(now_ms) is not None:
                return
            if self._lanes().get(lane.biz_type) is not lane:
                return  # deleted, and perhaps there again
            if self._clock.jump_ms is not None:
                await asyncio.sleep(PROBE_EACH_S)
                continue
            try:
                if lane.biz_type in self._recalls:
                    await self._recall(lane.biz_type)
                room = lane.refillable(now_ms) if shards else 0
                if room and await self._fetch(lane, shards[0], room) < room:
                    shards.pop(0)
                failures = 0
            except WheelTimerError as error:
                logger.warning("what is held of %s stays: %s", lane.biz_type, error)
                failures += 1
                await asyncio.sleep(reconnect_delay_s(failures))
                continue
            is_closed = lane.gate.breaker.is_closed
            await asyncio.sleep(FETCH_EACH_S if is_closed else PROBE_EACH_S)

    async def _fetch(self, lane: Lane, shard: int, limit: int) -> int:
        async with self._turn:
            refs = await fetch(
                self._db,
                shard,
                {lane.biz_type: limit},
                reason="held",
                visibility_ms=self._visibility_ms,
                lookahead_ms=self._lookahead_ms,
            )
        signal.reached("delivery.unheld")
        self._deliver(refs, int(self._clock.now_ms()))
        return len(refs)

    async def _recall(self, biz_type: str) -> None:
        for shard in range(self._shards):
            rows = PAGE_ROWS
            while rows == PAGE_ROWS:
                rows = await recall(self._db, shard, biz_type, RECALL_MS)
        self._recalls.discard(biz_type)
