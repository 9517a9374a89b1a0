"""
A Hypothesis state machine against the real service: `up` with a test's clock, one of each process.

Its model of a task is three words: when it is due, whether it is settled and how, how often it was
called. The clock stands still but where a rule moves it, and a move returns when all that is due is
settled: so after each rule the model says exactly what the API must answer, whatever was killed,
flushed or changed before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import ClassVar, Final
from uuid import UUID

import httpx
import psutil
import redis
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from tests.processes import arguments
from wheel_timer.client.errors import TaskSettled
from wheel_timer.testing import Clock, Received, Server
from wheel_timer.testing.endpoint import Endpoint

BIZ_TYPE: Final = "any"
DELAYS_S: Final = st.sampled_from((0.0, 0.4, 1.2, 30.0, 3_600.0, 90_000.0))
READY_S: Final = 30.0
SETTLE_S: Final = 15.0
SETTINGS: Final = settings(
    max_examples=3,
    stateful_step_count=10,
    deadline=None,
    database=None,
    derandomize=True,
    # A service that was killed in between is not the same one again: nothing is tried anew.
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


@dataclass
class Expected:
    """A task as it must be. settled: None while it is pending."""

    due: datetime
    settled: str | None = None
    calls: int = 0


class Service(RuleBasedStateMachine):
    """
    server, clock, received, redis_socket: running, the same for all examples; set first. others:
    the pids of what ran before, and is not to be killed.
    """

    server: ClassVar[Server]
    clock: ClassVar[Clock]
    received: ClassVar[Received]
    redis_socket: ClassVar[str]
    others: ClassVar[frozenset[int]]
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
        if self.expected[task_id].settled is None:
            self.server.client.run_now(task_id)
            self._begin_anew(task_id, self.now)
        else:
            self._refused(self.server.client.run_now, task_id)

    @rule(task_id=tasks)
    def replay(self, task_id: UUID) -> None:
        if self.expected[task_id].settled is not None:
            self.server.client.replay(task_id)
            # At its own moment, where that is still to come.
            self._begin_anew(task_id, max(self.now, self.expected[task_id].due))

    @rule(by_s=st.sampled_from((0.5, 1.5, 60.0, 4_000.0)))
    def advance(self, by_s: float) -> None:
        self.now += timedelta(seconds=by_s)
        self._settle()

    @rule(program=st.sampled_from(("broker", "daemon")))
    def kill(self, program: str) -> None:
        """SIGKILL; `up` starts it again."""
        for doomed in processes(f"leash {program} ", self.others):
            doomed.kill()
            psutil.wait_procs([doomed])
        self._wait_ready()

    @rule()
    def flush(self) -> None:
        """Everything in Redis is gone; it may be away itself, after the rule below."""
        no_retry = Retry(NoBackoff(), 0)
        with (
            redis.Redis(unix_socket_path=self.redis_socket, retry=no_retry) as client,
            suppress(RedisError),
        ):
            client.flushall()

    @rule()
    def restart_redis(self) -> None:
        """SIGKILL; `up` starts it again."""
        for doomed in processes("redis-server", self.others):
            doomed.kill()
            psutil.wait_procs([doomed])

    @invariant()
    def every_task_is_as_it_must_be(self) -> None:
        for task_id, task in self.expected.items():
            found = self.server.client.get(task_id)
            assert found.status == (task.settled or "pending"), (task_id, found.status, task)
            calls = sum(str(call.task_id) == str(task_id) for call in self.received)
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

    def _begin_anew(self, task_id: UUID, due: datetime) -> None:
        task = self.expected[task_id]
        task.due, task.settled = due, None
        self._settle()

    def _settle(self) -> None:
        """Move the service's clock to ours: all that is due is called, once. After a fault a move
        may return while something still waits for a process to be back."""
        due = [
            task_id
            for task_id, task in self.expected.items()
            if task.settled is None and task.due <= self.now
        ]
        give_up_s = time.monotonic() + SETTLE_S
        while True:
            assert self.clock.to(self.now).now == self.now
            if all(self.server.client.get(task_id).is_settled for task_id in due):
                break
            assert time.monotonic() < give_up_s, f"not called within {SETTLE_S:g} s: {due}"
        for task_id in due:
            self.expected[task_id].settled = "finished"
            self.expected[task_id].calls += 1

    @staticmethod
    def _refused(call: object, *given: object, **named: object) -> None:
        assert callable(call)
        try:
            call(*given, **named)
        except TaskSettled:
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


@contextmanager
def serving() -> Iterator[type[Service]]:
    """The machine, with a service that runs."""
    Service.others = frozenset(one.pid for one in processes(""))
    with Server() as server, Endpoint() as endpoint, endpoint.opened() as received:
        server.biz(BIZ_TYPE, callback_url=received.url)
        Service.server, Service.clock, Service.received = server, Clock(server.client), received
        Service.redis_socket = redis_socket(Service.others)
        yield Service


def explore(first: int, seconds: float) -> int:
    """How many examples held, drawn by this seed and those after it. Exits where one does not."""
    end_s = time.monotonic() + seconds
    drawn = settings(SETTINGS, derandomize=False)
    number = first
    with serving() as service:
        while number == first or time.monotonic() < end_s:
            try:
                run_state_machine_as_test(seed(number)(service), settings=drawn)
            except BaseException:
                print(f"again: python -m tests.sim --service --seconds 0 --seed {number}")
                raise
            number += 1
    return (number - first) * drawn.max_examples


def processes(word: str, others: Collection[int] = ()) -> list[psutil.Process]:
    """Of our own children those whose command says so, without these others."""
    children = psutil.Process(os.getpid()).children(recursive=True)
    ours = [one for one in children if one.pid not in others]
    return [one for one in ours if word in " ".join(arguments(one))]


def redis_socket(others: Collection[int]) -> str:
    """Where the Redis of the one `up` beside these others listens."""
    (process,) = processes("redis-server", others)
    command = " ".join(arguments(process))
    return command.partition("unixsocket:")[2].split()[0]
