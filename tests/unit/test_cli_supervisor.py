"""The supervisor: order of start and stop, restarts, a start that fails."""

from __future__ import annotations

import asyncio

import pytest

from wheel_timer.cli import supervisor as supervisor_module
from wheel_timer.cli.supervisor import Supervisor
from wheel_timer.errors import StartRefused


class Fake:
    """A service that does nothing but write down what is done with it."""

    def __init__(self, name: str, told: list[str], *, refuses: bool = False) -> None:
        self.name = name
        self.started = asyncio.Event()
        self._told = told
        self._refuses = refuses
        self._dead = asyncio.Event()

    async def start(self) -> None:
        self._told.append(f"start {self.name}")
        self._dead.clear()
        self.started.set()

    async def ready(self) -> None:
        if self._refuses:
            raise StartRefused(f"{self.name} did not start")
        self._told.append(f"ready {self.name}")

    async def died(self) -> str:
        await self._dead.wait()
        return "signal SIGKILL"

    async def stop(self) -> None:
        self._told.append(f"stop {self.name}")

    def hurry(self) -> None:
        self._told.append(f"hurry {self.name}")

    def kill(self) -> None:
        self._told.append(f"kill {self.name}")

    def die(self) -> None:
        self.started.clear()
        self._dead.set()


async def test_groups_start_in_order_and_stop_in_reverse() -> None:
    told: list[str] = []
    supervisor = Supervisor()
    await supervisor.start([Fake("postgres", told), Fake("redis", told)])
    await supervisor.start([Fake("broker", told)])
    await supervisor.stop()
    assert told == [
        *("start postgres", "start redis", "ready postgres", "ready redis"),
        *("start broker", "ready broker"),
        *("stop broker", "stop postgres", "stop redis"),
    ]


async def test_what_dies_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "RESTART_S_MIN", 0.001)
    told: list[str] = []
    service = Fake("broker", told)
    supervisor = Supervisor()
    await supervisor.start([service])
    for _ in range(3):
        service.die()
        await asyncio.wait_for(service.started.wait(), timeout=5)
    await supervisor.stop()
    assert told.count("start broker") == 4


async def test_what_is_stopped_is_not_started_again() -> None:
    told: list[str] = []
    service = Fake("broker", told)
    supervisor = Supervisor()
    await supervisor.start([service])
    service.die()
    await supervisor.stop()
    assert told == ["start broker", "ready broker", "stop broker"]


async def test_a_start_that_fails_is_not_repeated_and_stops_the_rest() -> None:
    told: list[str] = []
    supervisor = Supervisor()
    await supervisor.start([Fake("postgres", told)])
    with pytest.raises(StartRefused, match="broker did not start"):
        await supervisor.start([Fake("broker", told, refuses=True)])
    await supervisor.stop()
    assert told[2:] == ["start broker", "stop broker", "stop postgres"]


async def test_kill_reaches_everything_at_once() -> None:
    told: list[str] = []
    supervisor = Supervisor()
    await supervisor.start([Fake("postgres", told)])
    await supervisor.start([Fake("broker", told)])
    supervisor.kill()
    assert told[4:] == ["kill broker", "kill postgres"]
    await supervisor.stop()
