"""
The seeded scheduler: actors come to a turn before everything they do, and one at a time goes on.

Between two turns an actor does one thing: a statement that commits by itself, a step of a
transaction that stays open, a command to Redis. So a seed is an order of these, and a run with the
same seed is the same run, but for where a lock is waited for in vain.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final

STEP_S: Final = 20.0
# How likely who stands before this goes on; 1 for all else. Transactions stay open for long, so
# that the hands pass what they have written, and who has nothing to do takes few of the steps.
WEIGHTS: Final = {"commits": 0.1, "acts": 2.0, "polls": 0.4, "reads": 0.5, "thinks": 0.5}


class Over(Exception):
    """The run is over; an actor ends where it stands, as one that is killed does."""


class Turns:
    """trace: who went on, and before what; of all steps so far."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.trace: list[str] = []
        self._standing: dict[str, tuple[str, asyncio.Future[None]]] = {}
        self._actors: dict[str, asyncio.Task[None]] = {}
        self._news = asyncio.Event()

    def add(self, name: str, life: Callable[[], Awaitable[None]]) -> None:
        """One more actor."""

        async def live() -> None:
            try:
                await self.turn(name, "begins")
                await life()
            except Over:
                pass
            finally:
                self._news.set()

        self._actors[name] = asyncio.create_task(live(), name=name)

    async def turn(self, name: str, what: str) -> None:
        """Stand here until it is our turn. Raises Over."""
        go_on = asyncio.get_running_loop().create_future()
        self._standing[name] = what, go_on
        self._news.set()
        await go_on

    async def mine(self, what: str) -> None:
        """A turn of the actor that calls. Who is none, an errand of theirs, just goes on."""
        task = asyncio.current_task()
        assert task is not None
        if task.get_name() in self._actors:
            await self.turn(task.get_name(), what)

    async def step(self) -> None:
        """Let one of those who stand at a turn go on, and wait until it stands at the next."""
        await self._all_stand()
        if not self._standing:
            return
        names = sorted(self._standing)
        weights = [WEIGHTS.get(self._standing[name][0], 1.0) for name in names]
        (name,) = self.random.choices(names, weights)
        what, go_on = self._standing.pop(name)
        self.trace.append(f"{name}: {what}")
        go_on.set_result(None)
        await self._all_stand()

    def standing(self) -> list[str]:
        """Who waits for a turn."""
        return sorted(self._standing)

    def kill(self, name: str) -> None:
        """It ends before what it stands at."""
        if name in self._standing:
            self.trace.append(f"{name}: is killed")
            self._standing.pop(name)[1].set_exception(Over())

    async def end(self) -> None:
        """Everybody is killed."""
        await self._all_stand()
        for name in list(self._standing):
            self.kill(name)
        await asyncio.gather(*self._actors.values())

    async def _all_stand(self) -> None:
        async with asyncio.timeout(STEP_S):
            while True:
                self._news.clear()
                for name, actor in list(self._actors.items()):
                    if actor.done():
                        del self._actors[name]
                        await actor  # what went wrong in it went wrong in the run
                if self._actors.keys() <= self._standing.keys():
                    return
                await self._news.wait()
