"""
Operations: goes through the tasks of each operation that is running, a chunk at a time.

A chunk is: select the next tasks that fit -> change them, count them, note where the next chunk
begins, in one transaction. A crash before its commit leaves nothing of it, one after it leaves it
whole; so does a stop. Meant is what was there when the operation was asked for, and was not put on
the wheel anew since: so it does not meet again what it has moved ahead of itself.

Several operations take turns. One without a rate rests half as long as it has worked, so that what
else the database has to do finds room. Looking whether there are any costs nothing: the due hand's
look brings that along; in the busiest times, when it has none, there is a look each LOOK_EACH_S.
"""

from __future__ import annotations

import logging
import time
from typing import Final
from uuid import UUID

from msgspec.structs import replace

from daemon.hand import Tick
from daemon.leader import Leader
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
# 250 cancels are 5 ms of the fence and of one core: others hardly feel them.
CHUNK_ROWS: Final = 250
# With a rate, a chunk is what the rate gives in this time.
PACE_S: Final = 0.25
REST_SHARE: Final = 0.5
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
        self._looked_s = began_s
        operations = await store.running(self._db)
        ids = {one.operation_id for one in operations}
        self._turns = {id_: turn_s for id_, turn_s in self._turns.items() if id_ in ids}
        self._is_wanted = bool(operations)
        if not operations:
            return Tick(0, NAP_S)
        operation = min(operations, key=lambda one: self._turns.get(one.operation_id, 0.0))
        turn_s = self._turns.get(operation.operation_id, began_s)
        if turn_s > began_s:
            return Tick(0, min(turn_s - began_s, NAP_S))
        rows = await self._go_on(operation)
        if operation.rate is None:
            worked_s = time.monotonic() - began_s
            next_s = time.monotonic() + worked_s * REST_SHARE
        else:
            next_s = turn_s + rows / operation.rate
        self._turns[operation.operation_id] = next_s
        return Tick(rows, 0.0)

    async def _go_on(self, operation: OperationRow) -> int:
        """One chunk; returns how many tasks were in it. Raises DatabaseUnavailable."""
        try:
            page = await self._select(operation)
            reached("operation.selected")
            await self._apply(operation, page)
        except StepTaken as error:
            log.info("operation %s: %s", operation.operation_id, error)
            return 0
        except WheelTimerError:
            raise
        except Exception as error:
            # Its own fault, not the leader's: others go on.
            log.exception("operation %s failed", operation.operation_id)
            await store.fail(self._db, operation, f"error in the daemon: {type(error).__name__}")
            return 0
        reached("operation.chunk")
        if page.key is None:
            log.info("operation %s (%s) is done", operation.operation_id, operation.action)
        return page.rows

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

    async def _apply(self, operation: OperationRow, page: Places) -> None:
        """Change a page's tasks, a transaction for each shard; the last one takes the key along."""
        is_last = page.key is None
        if not page.parts:
            await store.skip(self._db, operation, key=page.key, is_last=is_last)
            return
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

    async def _change(self, operation: OperationRow, chunk: Chunk) -> OperationRow:
        """Change a chunk, halved where Postgres refuses a value. Returns where it stands then."""
        try:
            await store.operate(self._db, operation, chunk, lookahead_ms=self._lookahead_ms)
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


def _halves(chunk: Chunk) -> tuple[Chunk, Chunk]:
    first, second = chunk.tasks.halves()
    later_ms = chunk.due_ms + first.rows * chunk.gap_ms
    return (
        chunk._replace(tasks=first, key=None, is_last=False),
        chunk._replace(tasks=second, due_ms=later_ms),
    )
