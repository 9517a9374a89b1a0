"""
The real code, one step at a time, in an order that a seed decides.

Two daemons, submitters, a changer and brokers on the embedded Postgres and Redis; the database's
clock is frozen and moves when chance says so, as do the faults: a clock that is set back, Redis
emptied, a leader's lock session cut (it goes on as a zombie), daemons and brokers killed where they
stand. After every step the invariant of docs/design.md is asked of the database. At the end all
faults cease, and hands and brokers taking turns must settle every task that was accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from psycopg import AsyncConnection
from redis.asyncio import Redis

from tests.fix_clock import SET
from tests.fix_hands import CLUSTER, Hands
from tests.sim.actors import World, broker, changer, deliver, hand, read_all, submitter, sweeper
from tests.sim.turns import Turns
from wheel_timer.eventcenter import EventCenter
from wheel_timer.wheel import LAP_S

STEPS: Final = 150
VISIBILITY_S: Final = 2.0
APART_MS: Final = 60_000
ROUNDS_MAX: Final = 60
ROUND_MS: Final = 400
LEASE_OVER_MS: Final = 15_000

HANDS: Final = """
SELECT p.epoch, p.sweep_time, p."current_time", wheel_closed_to_v1(p.shard)
FROM timer_pointer AS p WHERE p.shard = 0
"""
# Word for word the invariant; the range of slots keeps it to a partition or two.
UNCOVERED: Final = """
SELECT t.task_id, t.start_time, p.sweep_time, p."current_time", q.due_at, q.reason
FROM timer_task AS t
JOIN timer_pointer AS p ON p.shard = 0
LEFT JOIN timer_requeue AS q ON q.task_id = t.task_id
WHERE t.slot BETWEEN %s AND %s AND t.status = 0
    AND NOT (t.start_time > p.sweep_time OR coalesce(q.due_at > p."current_time", false))
"""
STATUSES: Final = """
SELECT t.task_id, t.status FROM timer_task AS t WHERE t.slot BETWEEN %s AND %s AND t.status <> 4
"""
# Where the wheel stands, and room behind it, so that runs share a database.
BEGIN: Final = """
SELECT greatest(wheel_closed_to_v1(CAST(0 AS smallint)), wheel_now_ms()) + %s
"""


@dataclass
class Run:
    """What became of a run. problem: the first thing that did not hold, or None."""

    seed: int
    steps: int
    tasks: int
    problem: str | None
    trace: list[str]

    def story(self) -> str:
        """The steps, one a line."""
        return "\n".join([f"seed {self.seed}: {self.problem}", *self.trace])


class Drive:
    """One run. `await Drive(...).run()`."""

    def __init__(self, seed: int, database_url: str, redis_url: str) -> None:
        self._seed = seed
        self._database_url = database_url
        self._redis_url = redis_url
        self._prefix = f"sim-{uuid4().hex[:10]}"
        self._turns = Turns(seed)
        self._random = self._turns.random
        self._hands: dict[str, Hands] = {}
        self._centers: list[EventCenter] = []
        self._names = 0
        self._seen: tuple[int, ...] = (0, 0, 0, 0)
        self._slots = (0, 0)

    async def run(self, steps: int = STEPS) -> Run:
        """So many steps, and the end."""
        self._look = await AsyncConnection.connect(self._database_url, autocommit=True)
        self._world = World(self._turns, self._database_url, self._center("direct"))
        try:
            await self._begin()
            problem = None
            for _ in range(steps):
                await self._turns.step()
                if problem := await self._wrong():
                    break
            await self._turns.end()
            problem = problem or await self._settle()
            tasks = len(self._world.known.tasks)
            return Run(self._seed, steps, tasks, problem, self._turns.trace)
        finally:
            await self._turns.end()
            await self._close()

    async def _begin(self) -> None:
        cursor = await self._look.execute(BEGIN, (APART_MS,))
        row = await cursor.fetchone()
        assert row is not None
        await self._show(int(row[0]))
        first_slot = self._world.now_ms // 1000 % LAP_S
        # A run is shorter than the distance to the next; one over the ring's end is not looked at.
        self._slots = (first_slot - 30, first_slot + 600)
        for _ in range(2):
            self._add_daemon()
            self._add_broker()
        for number in range(2):
            self._turns.add(f"submitter-{number}", self._life(submitter, f"submitter-{number}"))
        self._turns.add("changer", self._life(changer, "changer"))
        self._turns.add("chance", self._chance)

    def _life(self, actor: Any, name: str, *given: Any) -> Any:
        return lambda: actor(self._world, name, *given)

    def _name(self, what: str) -> str:
        self._names += 1
        return f"{what}-{self._names}"

    def _center(self, consumer: str) -> EventCenter:
        center = EventCenter(
            self._redis_url, prefix=self._prefix, consumer=consumer, cluster_id=CLUSTER
        )
        self._centers.append(center)
        return center

    def _add_daemon(self) -> None:
        name = self._name("daemon")
        hands = self._hands[name] = self._new_hands()
        self._turns.add(name, self._life(hand, name, hands))
        self._turns.add(f"{name}-sweep", self._life(sweeper, f"{name}-sweep", hands))

    def _new_hands(self) -> Hands:
        return Hands(self._database_url, self._redis_url, self._prefix, visibility_s=VISIBILITY_S)

    def _add_broker(self) -> None:
        name = self._name("broker")
        self._turns.add(name, self._life(broker, name, self._center(name)))

    async def _chance(self) -> None:
        """The clock, and what goes wrong."""
        while True:
            await self._turns.turn("chance", "acts")
            drawn = self._random.random()
            if drawn < 0.82:
                await self._show(self._world.now_ms + self._random.choice((1, 20, 300, 700)))
            elif drawn < 0.86:
                await self._show(self._world.now_ms - 400)
            elif drawn < 0.90:
                await self._lose_redis()
            elif drawn < 0.95:
                name = self._random.choice(sorted(self._hands))
                self._turns.trace.append(f"chance: {name}'s lock session is cut")
                await self._hands[name].session.close()
            elif drawn < 0.975:
                await self._kill_daemon(self._random.choice(sorted(self._hands)))
            else:
                brokers = [name for name in self._turns.standing() if name.startswith("broker")]
                self._turns.kill(self._random.choice(brokers))
                self._add_broker()

    async def _kill_daemon(self, name: str) -> None:
        self._turns.kill(name)
        self._turns.kill(f"{name}-sweep")
        await self._hands.pop(name).close()
        self._add_daemon()

    async def _lose_redis(self) -> None:
        self._turns.trace.append("chance: Redis is emptied")
        client = Redis.from_url(self._redis_url)
        keys = [key async for key in client.scan_iter(f"{self._prefix}:*", count=1000)]
        if keys:
            await client.delete(*keys)
        await client.aclose()

    async def _show(self, now_ms: int) -> None:
        """The database's clock stands at now_ms."""
        self._turns.trace.append(f"the clock: {now_ms}")
        await self._look.execute(SET, {"shown_us": now_ms * 1000, "frozen": True})
        self._world.now_ms = now_ms

    async def _wrong(self) -> str | None:
        """What does not hold now."""
        if self._world.known.problems:
            return self._world.known.problems[0]
        now = await (await self._look.execute(HANDS)).fetchone()
        assert now is not None
        before, self._seen = self._seen, now
        if any(after < earlier for earlier, after in zip(before, now, strict=True)):
            return f"a hand went back: {before} to {now}"
        _, sweep, current, closed = now
        if not sweep <= current <= closed:
            return f"the hands are out of order: {now}"
        uncovered = await (await self._look.execute(UNCOVERED, self._slots)).fetchall()
        return f"behind both hands: {uncovered}" if uncovered else None

    async def _settle(self) -> str | None:
        """Fair execution, by a new daemon and a new broker."""
        for hands in self._hands.values():
            await hands.close()
        self._hands = {}
        await self._show(self._world.now_ms + LEASE_OVER_MS)
        hands, center = self._new_hands(), self._center("last")
        try:
            assert await hands.poll() is not None
            for _ in range(ROUNDS_MAX):
                await hands.serve()
                await hands.sweep.sweep_to(hands.due.current_ms)
                if refs := await read_all(center):
                    await deliver(self._world, "last", self._world.db, center, refs, fair=True)
                if problem := await self._wrong():
                    return problem
                if not await self._unsettled():
                    return None
                await self._show(self._world.now_ms + ROUND_MS)
            return f"never settled: {await self._unsettled()}"
        finally:
            await hands.close()

    async def _unsettled(self) -> list[str]:
        """Accepted tasks that have not ended as they should."""
        rows = await (await self._look.execute(STATUSES, self._slots)).fetchall()
        statuses: dict[Any, int] = dict(rows)
        known = self._world.known
        return [
            f"{task_id}: status {statuses.get(task_id)}"
            for task_id in known.tasks
            if statuses.get(task_id) != (3 if task_id in known.cancelled else 1)
            or (task_id not in known.cancelled and task_id not in known.called)
        ]

    async def _close(self) -> None:
        await self._lose_redis()
        for hands in self._hands.values():
            await hands.close()
        for center in self._centers:
            await center.close()
        await self._world.db.close()
        await self._look.close()
