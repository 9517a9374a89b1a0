"""
Operations: goes through the tasks of each operation that is running, a chunk at a time.

A chunk is: select the next tasks that fit -> change them, count them, note where the next chunk
begins, in one transaction. A crash before its commit leaves nothing of it, one after it leaves it
whole; so does a stop. Meant is what was there when the operation was asked for, and was not put on
the wheel anew since: so it does not meet again what it has moved ahead of itself.

Several operations take turns. One without a rate rests after each statement for REST_SHARE of the
time that it took, so that what else the database has to do finds room, and soon. Looking whether
there are any costs nothing: the due hand's look brings that along; in the busiest times, when it
has none, there is a look each LOOK_EACH_S. While there are some, they are looked up each NAP_S; in
between this leader knows where they stand, and is told where it does not (StepTaken).
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from daemon.hand import Tick
from daemon.leader import Leader
from wheel_timer import metrics
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.errors import DataRejected, StepTaken, WheelTimerError
from wheel_timer.signal import reached
from wheel_timer.store import operation as store
from wheel_timer.store.operation import Chunk, OperationRow
from wheel_timer.store.selection import Places, select_places

log: Final = logging.getLogger(__name__)

# Whose leader does it: it must be one.
OPERATIONS_SHARD: Final = 0
# 250 cancels are 3 ms of the fence and of one core: others hardly feel them.
CHUNK_ROWS: Final = 250
# With a rate, a chunk is what the rate gives in this time.
PACE_S: Final = 0.25
REST_SHARE: Final = 0.6
NAP_S: Final = 0.25
LOOK_EACH_S: Final = 20.0


class Operator:
    """What the leader does for operations. shards: how many there are."""

    name = "operations"

    def __init__(
        self, *, db: Database, clock: Clock, leader: Leader, shards: int, lookahead_ms: int
    ) -> None:
        self._db = db
        self._clock = clock
        self._leader = leader
        self._shards = shards
        self._lookahead_ms = lookahead_ms
        self._is_wanted = True
        self._looked_s = 0.0
        self._running: dict[UUID, OperationRow] = {}
        # When an operation's next chunk may begin, by the monotonic clock.
        self._turns: dict[UUID, float] = {}

    def wake(self) -> None:
        """There is something to do."""
        self._is_wanted = True

    async def tick(self) -> Tick:
        """One chunk of the operation whose turn it is."""
        began_s = time.monotonic()
        if not self._is_wanted and began_s - self._looked_s < LOOK_EACH_S:
            return Tick(0, NAP_S)
        if not self._running or began_s - self._looked_s >= NAP_S:
            await self._look(began_s)
            if not self._running:
                return Tick(0, NAP_S)
        operation = min(self._running.values(), key=self._turn_s)
        turn_s = self._turn_s(operation)
        if turn_s > began_s:
            return Tick(0, min(turn_s - began_s, NAP_S))
        # Whatever fails on the way: where it stands then is to be read.
        del self._running[operation.operation_id]
        rows, went_on = await self._go_on(operation)
        if went_on is not None:
            self._running[operation.operation_id] = went_on
        now_s = time.monotonic()
        if operation.rate is None:
            self._turns[operation.operation_id] = now_s
        else:
            turn_s = self._turns.get(operation.operation_id, began_s)
            self._turns[operation.operation_id] = turn_s + rows / operation.rate
        next_s = min(map(self._turn_s, self._running.values()), default=now_s)
        return Tick(rows, min(max(0.0, next_s - began_s), now_s - began_s + NAP_S))

    def _turn_s(self, operation: OperationRow) -> float:
        return self._turns.get(operation.operation_id, 0.0)

    async def _look(self, now_s: float) -> None:
        """Read what there is to go on with."""
        self._looked_s = now_s
        self._running = {one.operation_id: one for one in await store.running(self._db)}
        self._turns = {id_: at_s for id_, at_s in self._turns.items() if id_ in self._running}
        self._is_wanted = bool(self._running)

    async def _go_on(self, operation: OperationRow) -> tuple[int, OperationRow | None]:
        """
        One chunk: how many tasks were in it, and where the operation stands then; None where that
        is not known, or it has ended. Raises DatabaseUnavailable.
        """
        try:
            began_s = time.monotonic()
            page = await self._select(operation)
            await _rest(operation, began_s)
            reached("operation.selected")
            began_s = time.monotonic()
            operation = await self._apply(operation, page)
            reached("operation.chunk")
            await _rest(operation, began_s)
        except StepTaken as error:
            log.info("operation %s: %s", operation.operation_id, error)
            return 0, None
        except WheelTimerError:
            raise
        except Exception as error:
            # Its own fault, not the leader's: others go on.
            log.exception("operation %s failed", operation.operation_id)
            await store.fail(self._db, operation, f"error in the daemon: {type(error).__name__}")
            return 0, None
        if page.key is None:
            log.info("operation %s (%s) is done", operation.operation_id, operation.action)
            return page.rows, None
        return page.rows, operation._replace(key=page.key)

    async def _select(self, operation: OperationRow) -> Places:
        limit = CHUNK_ROWS
        if operation.rate is not None:
            limit = min(CHUNK_ROWS, max(1, round(operation.rate * PACE_S)))
        return await select_places(
            self._db,
            replace(operation.filter, asked_at=operation.create_time),
            operation.key,
            limit,
            now_ms=self._clock.now_ms(),
            shards=self._shards,
        )

    async def _apply(self, operation: OperationRow, page: Places) -> OperationRow:
        """
        Change a page's tasks, a transaction for each shard; the last one takes the key along.
        Returns where the operation stands then, but for the key.
        """
        is_last = page.key is None
        if not page.parts:
            await store.skip(self._db, operation, key=page.key, is_last=is_last)
            return operation._replace(step=operation.step + 1)
        now_ms = self._clock.now_ms()
        over_ms = 1000 * page.rows / operation.rate if operation.rate else 0.0
        left = len(page.parts)
        for part in page.parts:
            left -= 1
            chunk = Chunk(
                part,
                now_ms,
                over_ms / part.rows,
                page.key if left == 0 else None,
                is_last and left == 0,
            )
            operation = await self._change(operation, chunk)
        return operation

    async def _change(self, operation: OperationRow, chunk: Chunk) -> OperationRow:
        """Change a chunk, halved where Postgres refuses a value. Returns where it stands then."""
        try:
            done = await store.operate(self._db, operation, chunk, lookahead_ms=self._lookahead_ms)
            if operation.action == "cancel" and done:
                # Of several biz_types together where the filter names none.
                biz_type = operation.filter.biz_type or metrics.OTHER
                metrics.tasks_settled(biz_type, "cancelled", done)
        except DataRejected as error:
            if chunk.tasks.rows > 1:
                for half in _halves(chunk):
                    operation = await self._change(operation, half)
                return operation
            log.warning("operation %s: a task is left: %s", operation.operation_id, error)
            await store.skip(
                self._db, operation, matched=1, errors=1, key=chunk.key, is_last=chunk.is_last
            )
        return operation._replace(step=operation.step + 1)


async def _rest(operation: OperationRow, since_s: float) -> None:
    """Leave the database to others for a while after a statement; a rate is pace enough."""
    if operation.rate is None:
        await asyncio.sleep((time.monotonic() - since_s) * REST_SHARE)


def _halves(chunk: Chunk) -> tuple[Chunk, Chunk]:
    first, second = chunk.tasks.halves()
    later_ms = chunk.due_ms + first.rows * chunk.gap_ms
    return (
        chunk._replace(tasks=first, key=None, is_last=False),
        chunk._replace(tasks=second, due_ms=later_ms),
    )
