"""
Who acts in a run: daemons, writers, brokers. All of it is the product, taken step by step.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from psycopg import AsyncConnection, Error

from tests.fix_hands import BIZ_TYPE, Hands, ref_to
from tests.sim.turns import Turns
from wheel_timer.database import Database
from wheel_timer.errors import LeadershipLost
from wheel_timer.eventcenter import EventCenter
from wheel_timer.store.change import Change, Verb, change
from wheel_timer.store.claim import EARLY_MS, claim
from wheel_timer.store.settle import settle_again, settle_final
from wheel_timer.store.submit import submit
from wheel_timer.task import NewTask, Ref, Result

TIMEOUT_MS: Final = 1_000
RETENTION_MS: Final = 86_400_000
VERBS: Final[tuple[Verb, ...]] = ("cancel", "patch", "patch", "run", "replay")


@dataclass
class Known:
    """What the clients and the endpoint know. cancelled: those whose cancel was answered."""

    tasks: dict[UUID, NewTask] = field(default_factory=dict)
    called: set[UUID] = field(default_factory=set)
    cancelled: set[UUID] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)


class Transaction(Database):
    """One open transaction in the place of the pool: what is called on it is not committed yet."""

    def __init__(self, url: str, name: str) -> None:
        super().__init__(url, pool_size=1, name=name)
        self._url = url
        self.raw: AsyncConnection[Any]

    async def open(self) -> None:
        self.raw = await AsyncConnection.connect(self._url)

    @asynccontextmanager
    async def _lend(self) -> AsyncIterator[AsyncConnection[Any]]:
        yield self.raw

    async def close(self) -> None:
        """What was not committed is rolled back."""
        await self.raw.close()
        await super().close()


class World:
    """What the actors share: where they act, the clock, what is known."""

    def __init__(self, turns: Turns, database_url: str, center: EventCenter) -> None:
        self.turns = turns
        self.random = turns.random
        self.database_url = database_url
        self.center = center
        self.db = Database(database_url, pool_size=2, name="sim")
        self.known = Known()
        self.now_ms = 0

    def moment(self) -> int:
        """For a task: in the past, now, near, about where the hand closes, far."""
        return self.now_ms + self.random.choice((-800, 0, 40, 400, 990, 1_010, 1_490, 1_510, 2_600))

    def task(self, start_time_ms: int) -> NewTask:
        """A new one, with an id of this run's own chance."""
        bits = 8 << 76 | 0b10 << 62 | self.random.getrandbits(62)
        return NewTask(UUID(int=start_time_ms << 80 | bits), start_time_ms, BIZ_TYPE)


async def hand(world: World, name: str, hands: Hands) -> None:
    """A daemon: stands by, leads, turns its due hand; found out by an epoch, it stands by again."""

    hands.db.before = world.turns.mine
    while True:
        await world.turns.turn(name, "polls")
        if await hands.poll() is None:
            continue
        try:
            while True:
                await hands.serve()
        except LeadershipLost:
            hands.leader.step_down("another epoch leads")
            await hands.session.close()


async def sweeper(world: World, name: str, hands: Hands) -> None:
    """Its sweep hand, which turns beside the due hand and follows it."""
    while True:
        await world.turns.turn(name, "sweeps")
        if not hands.leader.is_leader:
            continue
        try:
            await hands.sweep.sweep_to(hands.due.current_ms)
        except LeadershipLost:
            continue


async def submitter(world: World, name: str) -> None:
    """Submits in transactions that stay open while others act; some are never committed."""
    while True:
        tasks = [world.task(world.moment()) for _ in range(world.random.randint(1, 3))]
        await world.turns.turn(name, "submits")
        async with _transaction(world, name) as own:
            answers = await submit(own, 0, tasks)
            await world.turns.turn(name, "commits")
            if world.random.random() < 0.15:
                continue
            if not await _commits(own):
                continue
        world.known.tasks |= {task.task_id: task for task in tasks}
        await world.turns.turn(name, "publishes")
        if world.random.random() < 0.7:
            near = [ref_to(t) for t, answer in zip(tasks, answers, strict=True) if answer.near]
            await world.center.publish_direct(near)


async def changer(world: World, name: str) -> None:
    """Cancels, moves, runs and replays. Each is one statement: with a row lock held over others'
    turns nobody could go on."""
    db = GatedTurns(world, name)
    try:
        while True:
            await world.turns.turn(name, "thinks")
            if world.known.tasks:
                await _change(world, name, db)
    finally:
        await db.close()


async def _change(world: World, name: str, db: Database) -> None:
    task_id = world.random.choice(sorted(world.known.tasks))
    verb = world.random.choice(VERBS)
    to_ms = world.moment() if verb == "patch" else None
    (answer,) = await change(db, [Change(task_id, verb, to_time_ms=to_ms)])
    if answer.verdict in ("done", "revived"):
        world.known.called.discard(task_id)
        world.known.cancelled.discard(task_id)
        if verb == "cancel":
            world.known.cancelled.add(task_id)
    if answer.is_near and answer.start_time_ms is not None:
        moment = answer.start_time_ms
        await world.turns.turn(name, "publishes")
        await world.center.publish_direct([Ref(task_id, moment, moment, moment, BIZ_TYPE)])


async def broker(world: World, name: str, center: EventCenter) -> None:
    """Reads, claims, calls, settles; it may die after each, and forget what it had in hand."""
    db = GatedTurns(world, name)
    try:
        while True:
            await world.turns.turn(name, "reads")
            refs = await read_all(center)
            if refs:
                await deliver(world, name, db, center, refs)
    finally:
        await db.close()


async def deliver(
    world: World,
    name: str,
    db: Database,
    center: EventCenter,
    refs: list[Ref],
    *,
    fair: bool = False,
) -> None:
    """One batch; but for fair ones the endpoint fails now and then, and the broker dies."""
    claimed = await claim(db, refs, [TIMEOUT_MS] * len(refs))
    final: list[Result] = []
    again: list[Result] = []
    for one in claimed.claims:
        if one.start_time_ms > world.now_ms + EARLY_MS:
            world.known.problems.append(f"{one.task_id} was claimed early")
        if one.task_id in world.known.cancelled:
            world.known.problems.append(f"{one.task_id} was claimed after its cancel")
        world.known.called.add(one.task_id)
        fails = not fair and world.random.random() < 0.25
        result = Result(
            task_id=one.task_id,
            start_time_ms=one.start_time_ms,
            biz_type=BIZ_TYPE,
            attempt=one.attempt,
            revision=one.revision,
            outcome="retry" if fails else "finished",
            delay_ms=world.random.choice((1, 900, 1_600)) if fails else 0,
            due_ms=one.start_time_ms,
            published_ms=one.start_time_ms,
            retention_ms=RETENTION_MS,
            broker=name,
            life=one.life,
        )
        (again if fails else final).append(result)
    if not fair and world.random.random() < 0.1:
        return
    await settle_final(db, final)
    near = await settle_again(db, 0, again)
    waiting = {ref.task_id for ref in refs} & {*claimed.early, *claimed.again}
    if not fair:
        await world.turns.turn(name, "acknowledges")
    await center.publish_direct(near)
    await center.hand_back([ref for ref in refs if ref.task_id in waiting])
    await center.ack([ref for ref in refs if ref.task_id not in waiting])


async def read_all(center: EventCenter) -> list[Ref]:
    """What lies in the lane, without waiting: Redis ends a wait at its own hz only."""
    await center._ensure_groups([BIZ_TYPE])
    return await center._read_group([BIZ_TYPE], ">", 100, None)


class GatedTurns(Database):
    """A broker's database: a turn before each statement."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world.database_url, pool_size=1, name=name)
        self._world = world
        self._actor = name

    async def fetch(self, name: str, *given: Any, **named: Any) -> Any:
        await self._world.turns.turn(self._actor, name)
        return await super().fetch(name, *given, **named)


@asynccontextmanager
async def _transaction(world: World, name: str) -> AsyncIterator[Transaction]:
    own = Transaction(world.database_url, name)
    await own.open()
    try:
        yield own
    finally:
        await asyncio.shield(own.close())


async def _commits(own: Transaction) -> bool:
    """Whether it could be: one that held the fence for too long was ended."""
    try:
        await own.raw.commit()
    except Error:
        return False
    return True
