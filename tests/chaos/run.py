"""Runs one case: a world, load, the fault in the middle, a drain, and the account."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import psycopg

from tests.chaos.account import Account, account
from tests.chaos.case import LATE_MS, Case, Skipped
from tests.chaos.log import Books
from tests.chaos.servers import Template
from tests.chaos.world import World, open_world
from tests.fault.harness import Nursery
from wheel_timer.errors import WheelTimerError

# A process that handles a hundred tasks a second and grows beyond this keeps something for ever.
MEMORY_MIB_MAX: Final = 400.0
REDIS_BYTES_MAX: Final = 64 * 2**20
SHOWN: Final = 5


class Result:
    """What one run of a case came to. verdict: ok, skipped, slow (late for too long: the machine
    may be why) or broken; problems: a sentence each."""

    def __init__(self, case: Case, seed: int, found: Account, problems: list[str]) -> None:
        self.case = case
        self.seed = seed
        self.account = found
        self.problems = problems
        self.skipped: str | None = None

    @property
    def is_slow(self) -> bool:
        return self.account.recovery_s > self.case.recovery_s or self.account.disturbed

    @property
    def verdict(self) -> str:
        if self.skipped is not None:
            return "skipped"
        if self.problems:
            return "BROKEN"
        return "SLOW" if self.is_slow else "ok"


async def run(case: Case, template: Template, nursery: Nursery, seed: int) -> Result:
    """One run. Never raises for what the product does wrong."""
    books = Books()
    problems: list[str] = []
    try:
        async with open_world(case, template, nursery, seed) as world:
            try:
                await _live(world, case, books)
            except (AssertionError, psycopg.Error, ExceptionGroup) as error:
                problems += _told(error)
            await world.drained()
            problems += await _left(world, books)
            if problems:
                problems += world.words()
    except Skipped as reason:
        result = Result(case, seed, Account(), [])
        result.skipped = str(reason)
        return result
    except AssertionError as error:
        # Before the load began: the world did not come up.
        return Result(case, seed, Account(), _told(error))
    found = account(books, case)
    return Result(case, seed, found, _broken(found, case) + problems)


async def _live(world: World, case: Case, books: Books) -> None:
    """Load, and the fault while it goes on."""
    watching = asyncio.create_task(world.watch.run())
    began_ns = time.time_ns()
    load = asyncio.create_task(world.load.run(case.rate_s, case.load_s))
    try:
        await asyncio.sleep(case.at_s)
        books.began_ns = time.time_ns()
        await case.fault(world)
        books.ended_ns = time.time_ns()
        await load
    finally:
        load.cancel()
        watching.cancel()
        await asyncio.gather(load, watching, return_exceptions=True)
        books.ended_ns = books.ended_ns or time.time_ns()
        books.load_ns = began_ns, time.time_ns()


async def _left(world: World, books: Books) -> list[str]:
    """What the world looks like when all is over."""
    problems = [f"watched: {sentence}" for sentence in world.watch.went_back]
    try:
        await world.books(books)
        if found := await world.audits():
            problems.append(f"audits: {found}")
    except (psycopg.Error, WheelTimerError) as error:
        problems.append(f"the database is away: {error}")
    problems += [f"refused: {sentence}" for sentence in books.refused[:SHOWN]]
    if (memory := world.memory_mib()) > MEMORY_MIB_MAX:
        problems.append(f"a process holds {memory:.0f} MiB")
    async with world.redis_client() as redis:
        if (used := (await redis.info("memory"))["used_memory"]) > REDIS_BYTES_MAX:
            problems.append(f"Redis holds {used / 2**20:.0f} MiB")
    return problems


def _broken(found: Account, case: Case) -> list[str]:
    """The bounds that do not hold."""
    problems: list[str] = []
    for word, sentences in (
        ("lost", found.lost),
        ("early", found.early),
        ("contradiction", found.contradictions),
    ):
        problems += [f"{word}: {sentence}" for sentence in sentences[:SHOWN]]
    if found.duplicates > found.duplicates_max:
        problems.append(f"{found.duplicates} duplicates, at most {found.duplicates_max} may be")
    if found.lost_attempts > case.lost_max:
        problems.append(f"{found.lost_attempts} lost attempts, at most {case.lost_max} may be")
    if problems:
        problems += found.repeats[:SHOWN]
    if not found.tasks:
        problems.append("nothing was accepted")
    return problems


def _told(error: BaseException) -> list[str]:
    if isinstance(error, BaseExceptionGroup):
        return [line for one in error.exceptions for line in _told(one)]
    return [f"{type(error).__name__}: {error}"]


def slowness(result: Result) -> str:
    """What is said of a run that was late for too long."""
    if result.account.disturbed:
        return f"its neighbours' p99 was {result.account.neighbours_ms:.0f} ms"
    return (
        f"what was due up to {result.account.recovery_s:.1f} s after the fault's end came more "
        f"than {LATE_MS:g} ms late; {result.case.recovery_s:g} s are allowed"
    )
