"""That no writer forgets the ledger: by what the functions say, and by what comes of using them."""

from __future__ import annotations

import random
import re
from typing import Final

import pytest

from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands, ref_to, task_at
from tests.fix_sessions import Sessions
from wheel_timer.database import Database
from wheel_timer.queries import sql_directory
from wheel_timer.store.change import Change, Verb, change
from wheel_timer.store.claim import claim
from wheel_timer.store.ledger import fold
from wheel_timer.store.settle import settle_again, settle_final
from wheel_timer.store.submit import submit
from wheel_timer.store.task import TaskRow, lookup
from wheel_timer.task import Claim, NewTask, Result, Status

# What puts a row on the wheel, takes one away, or changes its status.
WRITES: Final = re.compile(
    r"INSERT INTO (timer_task|%I)\b"
    r"|DELETE FROM (ONLY )?(timer_task|%I)\b"
    r"|TRUNCATE\b"
    r"|UPDATE (timer_task|%\S*I)\b[^;]*?\bstatus = (?!')",
)
COUNTS: Final = re.compile(r"\b(wheel_ledger_v1\(|INSERT INTO timer_ledger_delta\b)")
# Deletes rows that only forward, and they count for nothing.
FORWARDING: Final = {"wheel_repair_misplaced_v1"}
FUNCTIONS: Final = """
SELECT proname, regexp_replace(prosrc, '--[^\n]*', '', 'g')
FROM pg_proc WHERE pronamespace = CAST('public' AS regnamespace)
"""


async def test_every_function_that_writes_the_wheel_writes_the_ledger(sessions: Sessions) -> None:
    """Itself, or each that calls it does."""
    cursor = await (await sessions.open()).execute(FUNCTIONS)
    bodies: dict[str, str] = dict(await cursor.fetchall())
    writers = {name for name, body in bodies.items() if WRITES.search(body)}
    assert {
        *("wheel_submit_v1", "wheel_settle_final_v1", "wheel_settle_again_v1"),
        *("wheel_change_v1", "wheel_move_v1", "wheel_purge_v1"),
    } <= writers
    counting = {name for name, body in bodies.items() if COUNTS.search(body)}
    forgotten = set()
    for writer in writers - counting - FORWARDING:
        callers = {name for name, body in bodies.items() if f"{writer}(" in body}
        if not callers or not callers <= counting:
            forgotten.add(writer)
    assert forgotten == set()


BALANCE: Final = (sql_directory() / "audit" / "ledger_balance.sql").read_bytes()
HAPPENED: Final = """
SELECT sum(moved_in), sum(revived), sum(finished), sum(failed), sum(cancelled), sum(purged)
FROM timer_ledger_view
"""
OUTCOMES: Final = (
    *("finished", "failed", "failed", "cancelled"),
    *("retry", "released", "unstarted"),
)
BEGAN_MS: Final = 1_790_000_000_000
VERBS: Final[tuple[Verb, ...]] = (
    "cancel", "patch", "run", "replay", "replace", "earliest", "latest",
)  # fmt: skip
MOVES_MS: Final = (0, 0, 0, 1_000, 900_000, 86_400_000, 10_000_000_000)


class World:
    """Some tasks, and everything that may happen to them."""

    def __init__(self, db: Database, clock: DatabaseClock, sessions: Sessions, seed: int) -> None:
        self._db = db
        self._clock = clock
        self._sessions = sessions
        self._random = random.Random(seed)
        self._tasks: list[NewTask] = []
        self._claims: list[Claim] = []

    async def step(self, epoch: int) -> str:
        """Do something; returns what."""
        steps = (
            self._submit, self._submit, self._change, self._change, self._change, self._claim,
            self._claim, self._settle, self._settle, self._purge, self._wait,
        )  # fmt: skip
        step = self._random.choice(steps)
        await step()
        if self._random.random() < 0.3:
            await fold(self._db, epoch, self._random.choice((1, 3, 10_000)))
        return step.__name__

    def _some(self, count: int = 4) -> list[NewTask]:
        return self._random.sample(self._tasks, min(len(self._tasks), count))

    async def _found(self, count: int) -> list[TaskRow]:
        """Some as they are now; in an order that the seed decides."""
        ids = [task.task_id for task in self._some(count)]
        found = await lookup(self._db, ids)
        return [found[task_id] for task_id in ids if task_id in found]

    async def _submit(self) -> None:
        now_ms = self._clock.now_ms()
        new = [
            task_at(now_ms + self._random.choice(MOVES_MS), self._random.choice("ab"))
            for _ in range(self._random.randrange(1, 6))
        ]
        self._tasks += new
        # Some of it was sent before.
        await submit(self._db, 0, [*new, *self._some(2)])

    async def _change(self) -> None:
        now_ms = self._clock.now_ms()
        verb = self._random.choice(VERBS)
        changes = [
            Change(
                task.task_id,
                verb,
                to_time_ms=None
                if verb in ("cancel", "run", "replay")
                else now_ms + self._random.choice(MOVES_MS),
                stop=self._random.random() < 0.5,
                discard=self._random.random() < 0.5,
            )
            for task in self._some()
        ]
        if changes:
            await change(self._db, changes)

    async def _claim(self) -> None:
        rows = [row for row in await self._found(20) if row.status is Status.PENDING]
        refs = [
            ref_to(NewTask(row.task_id, row.start_time, row.biz_type), row.start_time)
            for row in rows
        ]
        mine = (await claim(self._db, refs, [1_000] * len(refs))).claims
        order = [row.task_id for row in rows]
        self._claims += sorted(mine, key=lambda one: order.index(one.task_id))

    async def _settle(self) -> None:
        """Results early and late, some of them twice, some of a task that was changed since."""
        outcome = self._random.choice(OUTCOMES)
        results: list[Result] = [
            Result(
                mine.task_id, mine.start_time_ms, mine.biz_type, mine.attempt, mine.revision,
                outcome, retention_ms=1_000,
            )
            for mine in self._random.sample(self._claims[-6:], min(len(self._claims), 3))
        ]  # fmt: skip
        unique = {result.task_id: result for result in results}
        if outcome in ("finished", "failed", "cancelled"):
            await settle_final(self._db, list(unique.values()))
        else:
            await settle_again(self._db, 0, list(unique.values()))

    async def _purge(self) -> None:
        rows = await self._found(2)
        await self._sessions.row(
            "SELECT wheel_purge_v1(0::smallint, %s::uuid[], %s::bigint[], %s::int[])",
            [row.task_id for row in rows],
            [row.start_time for row in rows],
            [row.revision for row in rows],
        )

    async def _wait(self) -> None:
        self._clock.advance(self._random.choice((100, 7_000, 1_000_000)))


@pytest.mark.parametrize("seed", range(2))
async def test_the_balance_holds_after_every_step(
    seed: int,
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    clock.freeze(BEGAN_MS)
    world = World(db, clock, sessions, seed)
    session = await sessions.open()
    done = []
    for _ in range(120):
        done.append(await world.step(hands.leader.epoch))
        found = await session.execute(BALANCE)
        assert await found.fetchall() == [], done
    await audits_hold()
    # It was worth it: everything has happened.
    assert 0 not in await sessions.row(HAPPENED), done
