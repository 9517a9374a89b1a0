"""
A Hypothesis state machine against the real service: `up` with a test's clock, one of each process.

Its model of a task is three words: when it is due, whether it is settled and how, how often it was
called. The clock stands still but where a rule moves it, and a move returns when all that is due is
settled: so after each rule the model says exactly what the API must answer, whatever was killed,
flushed or changed before.
"""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Final
from uuid import UUID

import httpx
import psutil
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from wheel_timer.errors import Conflict
from wheel_timer.testing import Clock, Received, Server

BIZ_TYPE: Final = "any"
DELAYS_S: Final = st.sampled_from((0.0, 0.4, 1.2, 30.0, 3_600.0, 90_000.0))
READY_S: Final = 30.0
SETTINGS: Final = settings(
    max_examples=5,
    stateful_step_count=14,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@dataclass
class Expected:
    """A task as it must be. settled: None while it is pending."""

    due: datetime
    settled: str | None = None
    calls: int = 0


class Service(RuleBasedStateMachine):
    """server, clock, received: running, for all examples of a session; set before it is used."""

    server: ClassVar[Server]
    clock: ClassVar[Clock]
    received: ClassVar[Received]
    tasks = Bundle("tasks")

    def __init__(self) -> None:
        super().__init__()
        self.received.clear()
        self.now = self.clock.freeze().now
        self.expected: dict[UUID, Expected] = {}

    @rule(target=tasks, delay_s=DELAYS_S)
    def submit(self, delay_s: float) -> UUID:
        task_id = self.server.client.submit(BIZ_TYPE, delay=delay_s).task_id
        self.expected[task_id] = Expected(self.now + timedelta(seconds=delay_s))
        self._settle()
        return task_id

    @rule(task_id=tasks)
    def cancel(self, task_id: UUID) -> None:
        task = self.expected[task_id]
        if task.settled in (None, "cancelled"):
            self.server.client.cancel(task_id)
            task.settled = "cancelled"
        else:
            self._refused(self.server.client.cancel, task_id)

    @rule(task_id=tasks, delay_s=DELAYS_S)
    def reschedule(self, task_id: UUID, delay_s: float) -> None:
        task = self.expected[task_id]
        if task.settled is None:
            self.server.client.reschedule(task_id, delay=delay_s)
            task.due = self.now + timedelta(seconds=delay_s)
            self._settle()
        else:
            self._refused(self.server.client.reschedule, task_id, delay=delay_s)

    @rule(task_id=tasks)
    def run_now(self, task_id: UUID) -> None:
        self.server.client.run_now(task_id)
        self._is_due(task_id)

    @rule(task_id=tasks)
    def replay(self, task_id: UUID) -> None:
        if self.expected[task_id].settled is not None:
            self.server.client.replay(task_id)
            self._is_due(task_id)

    @rule(by_s=st.sampled_from((0.5, 1.5, 60.0, 4_000.0)))
    def advance(self, by_s: float) -> None:
        self.now += timedelta(seconds=by_s)
        self._settle()

    @rule(program=st.sampled_from(("broker", "daemon")))
    def kill(self, program: str) -> None:
        """SIGKILL; `up` starts it again."""
        (doomed, *_) = _processes(f"-m {program}")
        doomed.kill()
        psutil.wait_procs([doomed])
        self._wait_ready()

    @rule()
    def flush(self) -> None:
        """Everything in Redis is gone."""
        with redis.Redis(unix_socket_path=_redis_socket()) as client:
            client.flushall()

    @rule()
    def restart_redis(self) -> None:
        """SIGKILL; `up` starts it again."""
        (doomed,) = _processes("redis-server")
        doomed.send_signal(signal.SIGKILL)
        psutil.wait_procs([doomed])

    @invariant()
    def every_task_is_as_it_must_be(self) -> None:
        for task_id, task in self.expected.items():
            found = self.server.client.get(task_id)
            assert found.status == (task.settled or "pending"), (task_id, found.status, task)
            calls = sum(call.task_id == str(task_id) for call in self.received)
            assert calls == task.calls, (task_id, calls, task)

    @invariant()
    def the_audits_hold(self) -> None:
        answer = httpx.get(f"{self.server.url}/v1/audits").raise_for_status().json()
        found = [
            audit["name"]
            for audit in answer["items"]
            if audit["kind"] == "violation" and audit["rows"]
        ]
        assert found == []

    def _is_due(self, task_id: UUID) -> None:
        task = self.expected[task_id]
        task.due, task.settled = self.now, None
        self._settle()

    def _settle(self) -> None:
        """Move the service's clock to ours: all that is due is called, once."""
        assert self.clock.to(self.now).now == self.now
        for task in self.expected.values():
            if task.settled is None and task.due <= self.now:
                task.settled = "finished"
                task.calls += 1

    @staticmethod
    def _refused(call: object, *given: object, **named: object) -> None:
        assert callable(call)
        try:
            call(*given, **named)
        except Conflict:
            return
        raise AssertionError("a settled task was changed")

    def _wait_ready(self) -> None:
        for attempt in Retrying(
            stop=stop_after_delay(READY_S),
            wait=wait_fixed(0.05),
            retry=retry_if_exception_type(httpx.HTTPError),
            reraise=True,
        ):
            with attempt:
                httpx.get(f"{self.server.url}/readyz").raise_for_status()


def _processes(word: str) -> list[psutil.Process]:
    """Of our own children, those whose command says so."""
    children = psutil.Process(os.getpid()).children(recursive=True)
    return [one for one in children if word in " ".join(one.cmdline())]


def _redis_socket() -> str:
    (process,) = _processes("redis-server")
    command = " ".join(process.cmdline())
    return command.partition("unixsocket:")[2].split()[0]
