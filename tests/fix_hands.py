"""A daemon's leader and hands in the test's own event loop, turned step by step."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from uuid import UUID, uuid4

import pytest_asyncio

from daemon.due import DueHand
from daemon.fill import FillHand
from daemon.hand import Tick
from daemon.leader import Leader
from daemon.limits import Limits
from daemon.reap import ReapHand
from daemon.sweep import SweepHand
from daemon.windows import Windows
from wheel_timer import signal
from wheel_timer.clock import Clock
from wheel_timer.database import STATEMENT_TIMEOUT_S, Database, Rows, Session
from wheel_timer.eventcenter import EventCenter
from wheel_timer.monotonic import monotonic_s
from wheel_timer.store.leader import Term
from wheel_timer.task import NewTask, Ref
from wheel_timer.wheel import new_task_id

BIZ_TYPE: Final = "orders"
CLUSTER: Final = UUID(int=7)
LOOKAHEAD_MS: Final = 1000
VISIBILITY_S: Final = 60.0
RETENTION_S: Final = 400 * 86_400.0
MEASURES_MAX: Final = 20


class Gate:
    """A place where a call waits. Leaving the block lets it go on."""

    def __init__(self) -> None:
        self._arrived = asyncio.Event()
        self._opened = asyncio.Event()

    async def arrived(self) -> None:
        """Return as soon as somebody stands before it."""
        async with asyncio.timeout(10):
            await self._arrived.wait()

    async def pass_through(self) -> None:
        self._arrived.set()
        await self._opened.wait()

    def open(self) -> None:
        self._opened.set()


class GatedDatabase(Database):
    """
    A database whose named queries can be held up before they are sent: one by `gate`, all by
    `before`, which is called with each one's name.
    """

    def __init__(self, url: str, name: str) -> None:
        super().__init__(url, pool_size=4, name=name)
        self._gates: dict[str, Gate] = {}
        self.before: Callable[[str], Awaitable[None]] | None = None

    @contextmanager
    def gate(self, query: str) -> Iterator[Gate]:
        """Hold up the next call of this query until the block is left."""
        gate = self._gates[query] = Gate()
        try:
            yield gate
        finally:
            gate.open()

    async def fetch(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout_s: float = STATEMENT_TIMEOUT_S,
    ) -> Rows:
        await self._hold_up(name)
        return await super().fetch(name, params, timeout_s=timeout_s)

    async def fetch_timed(
        self, name: str, params: Mapping[str, Any] | None = None
    ) -> tuple[tuple[Any, ...], float, float]:
        sent_s = monotonic_s()
        await self._hold_up(name)
        row, _, came_s = await super().fetch_timed(name, params)
        return row, sent_s, came_s

    async def _hold_up(self, name: str) -> None:
        if self.before is not None:
            await self.before(name)
        gate = self._gates.pop(name, None)
        if gate is not None:
            await gate.pass_through()


class Hands:
    """
    One daemon of shard 0. `lead` makes it the leader; `serve`, `sweep_to` and `reap_all` are
    steps of its hands, which never turn by themselves.
    """

    def __init__(
        self, database_url: str, redis_url: str, prefix: str, *, visibility_s: float
    ) -> None:
        self.name = f"daemon-{uuid4().hex[:6]}"
        self.db = GatedDatabase(database_url, self.name)
        self.session = Session(database_url, schema="public", name=f"{self.name} lease")
        self.clock = Clock(self.db)
        self.leader = Leader(self.session, self.db, 0, self.name)
        self.event_center = EventCenter(
            redis_url, prefix=prefix, consumer=self.name, cluster_id=CLUSTER
        )
        self.reach = self.event_center.reach
        self.limits = Limits(self.db)
        self.clock.on_biz_version(self.limits.pulse)
        self.windows = Windows(biz_types=self.limits.biz_types, visibility_s=visibility_s, shards=1)
        self._visibility_s = visibility_s
        self.due: DueHand
        self.sweep: SweepHand
        self.reap: ReapHand
        self.fill: FillHand

    async def poll(self) -> Term | None:
        """One look at the shard, as a standby's; its hands exist once it leads."""
        term = await self.leader.poll()
        if term is not None:
            self.sweep = SweepHand(
                db=self.db,
                event_center=self.event_center,
                windows=self.windows,
                clock=self.clock,
                leader=self.leader,
                swept_ms=term.sweep_time_ms,
                current_ms=term.current_time_ms,
                visibility_s=self._visibility_s,
            )
            self.due = DueHand(
                db=self.db,
                event_center=self.event_center,
                clock=self.clock,
                leader=self.leader,
                windows=self.windows,
                current_ms=term.current_time_ms,
                lookahead_ms=LOOKAHEAD_MS,
                visibility_ms=round(self._visibility_s * 1000),
                moved=self.sweep.follow,
            )
            self.reap = ReapHand(
                db=self.db,
                clock=self.clock,
                leader=self.leader,
                shards=1,
                retention_s=RETENTION_S,
            )
            self.fill = FillHand(
                clock=self.clock,
                db=self.db,
                event_center=self.event_center,
                leader=self.leader,
                limits=self.limits,
                windows=self.windows,
            )
        return term

    async def lead(self) -> Term:
        """Be the leader, which nobody else is."""
        term = await self.poll()
        assert term is not None, "somebody else leads"
        return term

    async def serve(self) -> None:
        """Close a look-ahead ahead and publish what that has closed."""
        await self.clock.measure()
        await self.due.serve()

    async def measure(self) -> None:
        """Know the clock, if that can be had: a busy machine's first answer may be too slow for it,
        and then a tick would do nothing."""
        for _ in range(MEASURES_MAX):
            await self.clock.measure()
            if self.clock.is_known():
                break

    async def tick(self) -> Tick:
        """A tick of the due hand, by a clock that it knows."""
        await self.measure()
        return await self.due.tick()

    async def reap_all(self) -> int:
        """One round of the reap hand; the rows that it has deleted."""
        await self.clock.measure()
        return sum([rows async for rows in self.reap.round()])

    async def close(self) -> None:
        await self.event_center.close()
        await self.session.close()
        await self.db.close()


NewHands = Callable[..., Hands]


@pytest_asyncio.fixture
async def new_hands(
    database_url: str, redis_url: str, redis_prefix: str
) -> AsyncIterator[NewHands]:
    """`new_hands()` -> one more daemon on the test's database and prefix; it does not lead yet."""
    made: list[Hands] = []

    def new(*, visibility_s: float = VISIBILITY_S, database: str = database_url) -> Hands:
        made.append(Hands(database, redis_url, redis_prefix, visibility_s=visibility_s))
        return made[-1]

    yield new
    for hands in made:
        await hands.close()
    signal.clear()


@pytest_asyncio.fixture
async def hands(new_hands: NewHands) -> Hands:
    """The daemon that leads."""
    made = new_hands()
    await made.lead()
    return made


def task_at(start_time_ms: int, biz_type: str = BIZ_TYPE, **fields: Any) -> NewTask:
    """A task with its home at this moment."""
    return NewTask(new_task_id(start_time_ms), start_time_ms, biz_type, **fields)


def ref_to(task: NewTask, moment_ms: int | None = None) -> Ref:
    """The reference that a hand would publish of it."""
    at_ms = task.start_time_ms if moment_ms is None else moment_ms
    return Ref(task.task_id, task.start_time_ms, at_ms, at_ms, task.biz_type)
