"""
Real processes against the session's servers, an endpoint that counts, and load that does not wait.

    cluster.daemon(), cluster.broker()     processes; they end with the test
    cluster.load(...)                      open-loop submits: at fixed times, whatever comes of them
    cluster.all_arrive(...)                every task submitted was called, none early; audits hold
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal
from uuid import UUID

import msgspec
import psutil
import pytest_asyncio

from tests.fault.launch import Order, Trouble
from tests.fix_audits import Auditor
from tests.fix_endpoint import Endpoint
from tests.fix_hands import BIZ_TYPE, ref_to, task_at
from wheel_timer import AsyncClient
from wheel_timer.biz import BizTypeIn
from wheel_timer.cli.machine import free_ports
from wheel_timer.database import Database
from wheel_timer.errors import Unavailable
from wheel_timer.eventcenter import EventCenter
from wheel_timer.store import biz as store_biz
from wheel_timer.store.leader import cluster_id
from wheel_timer.store.submit import submit
from wheel_timer.task import NewTask

START_S: Final = 30.0
SETTLE_S: Final = 30.0
LOOK_EACH_S: Final = 0.05
BATCH_EACH_S: Final = 0.05


class Nursery:
    """The process that all others are forked from: tests/fault/launch.py."""

    def __init__(self, process: asyncio.subprocess.Process, directory: Path) -> None:
        self._process = process
        self._directory = directory
        self._started: asyncio.Queue[int] = asyncio.Queue()
        self._codes: dict[int, asyncio.Future[int]] = {}
        self._numbers = itertools.count()
        self._listener = asyncio.create_task(self._listen())

    @classmethod
    async def open(cls, directory: Path) -> Nursery:
        """Start it; it imports while the test goes on."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.fault.launch"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        return cls(process, directory)

    async def _listen(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            facts = msgspec.json.decode(line, type=dict[str, int])
            if "code" in facts:
                self._codes[facts["pid"]].set_result(facts["code"])
            else:
                self._codes[facts["pid"]] = asyncio.get_running_loop().create_future()
                self._started.put_nowait(facts["pid"])

    async def start(self, order: Order) -> Process:
        """Fork a process; not to be called twice at once."""
        fifo = self._directory / str(next(self._numbers))
        os.mkfifo(fifo)
        # For writing too, so that neither end waits for the other, and none sees an early end.
        descriptor = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
        )
        assert self._process.stdin is not None
        order = msgspec.structs.replace(order, fifo=str(fifo))
        self._process.stdin.write(msgspec.json.encode(order) + b"\n")
        async with asyncio.timeout(START_S):
            pid = await self._started.get()
        return Process(order.program, pid, self._codes[pid], reader, transport)

    async def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        await self._process.wait()
        await self._listener


class Process:
    """One daemon or broker. said: what it has printed."""

    def __init__(
        self,
        program: str,
        pid: int,
        code: asyncio.Future[int],
        reader: asyncio.StreamReader,
        transport: asyncio.ReadTransport,
    ) -> None:
        self.name = f"{program} {pid}"
        self._pid = pid
        self._code = code
        self._transport = transport
        self._told: dict[str, list[int]] = defaultdict(list)
        self._news = asyncio.Event()
        self.said: list[str] = []
        self._listener = asyncio.create_task(self._listen(reader))
        code.add_done_callback(lambda _: self._news.set())

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while line := (await reader.readline()).decode():
            point, _, moment = line.strip().partition(" ")
            if moment.isdigit() and "." in point:
                self._told[point].append(int(moment))
                self._news.set()
            else:
                self.said.append(line)

    def times(self, point: str) -> list[int]:
        """When it came to a point, monotonic ns of this machine."""
        return self._told[point]

    async def comes_to(self, point: str, times: int = 1, timeout_s: float = START_S) -> int:
        """Return as soon as it has come to a point so often; when that was, monotonic ns."""
        try:
            async with asyncio.timeout(timeout_s):
                while len(self._told[point]) < times:
                    self._news.clear()
                    if self._code.done():
                        raise TimeoutError
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"{self.name} did not come to {point}: {self.said}") from None
        return self._told[point][times - 1]

    def kill(self) -> int:
        """SIGKILL; returns when, monotonic ns."""
        self._send(signal.SIGKILL)
        return time.monotonic_ns()

    def stop(self) -> None:
        """Ask it to end in order."""
        self._send(signal.SIGTERM)

    @property
    def is_alive(self) -> bool:
        """Whether it runs, frozen or not."""
        return not self._code.done()

    def memory_mib(self) -> float:
        """What it keeps in memory."""
        return float(psutil.Process(self._pid).memory_info().rss / 2**20)

    def freeze(self) -> None:
        self._send(signal.SIGSTOP)

    def thaw(self) -> None:
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        # Its pid is nobody else's before its end is known here.
        assert not self._code.done(), f"{self.name} has ended: {self.said}"
        os.kill(self._pid, number)

    async def gone(self, timeout_s: float = START_S) -> int:
        """Its exit code, once it has ended by itself."""
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(self._code)
        except TimeoutError:
            raise AssertionError(f"{self.name} did not end: {self.said}") from None

    async def end(self) -> None:
        """Kill it where it still runs."""
        if not self._code.done():
            self.kill()
        await self._code
        self._transport.close()
        self._listener.cancel()
        await asyncio.gather(self._listener, return_exceptions=True)


class Cluster:
    """Daemons, brokers and submitters on one database and one prefix."""

    def __init__(
        self,
        nursery: Nursery,
        database_url: str,
        redis_url: str,
        prefix: str,
        endpoint: Endpoint,
    ) -> None:
        self._nursery = nursery
        self.database_url = database_url
        self.redis_url = redis_url
        self._prefix = prefix
        self.endpoint = endpoint
        self.db = Database(database_url, pool_size=4, name="submitter")
        self._event_center: EventCenter
        self._processes: list[Process] = []
        self.submitted: dict[UUID, NewTask] = {}

    async def start(self) -> None:
        """Set up the biz_type and the way of near tasks."""
        await self.configure()
        self._event_center = EventCenter(
            self.redis_url,
            prefix=self._prefix,
            consumer="submitter",
            cluster_id=await cluster_id(self.db),
        )

    async def configure(self, **biz: Any) -> None:
        """What the one biz_type has beside its URL."""
        await store_biz.put(self.db, BIZ_TYPE, BizTypeIn(callback_url=self.endpoint.url, **biz))

    async def daemon(
        self,
        *,
        die: tuple[str, int] | None = None,
        trouble: Trouble = Trouble(),
        **settings: object,
    ) -> Process:
        """Start a daemon; it stands by, or leads, once `leader.elected` is told."""
        told = (
            *("leader.elected", "leader.stepped_down", "due.advanced", "sweep.done"),
            "clock.measured",
        )
        return await self._launch("daemon", ["--ops-port", "0"], die, told, settings, trouble)

    async def broker(
        self,
        *,
        die: tuple[str, int] | None = None,
        role: str = "notifier",
        port: int = 0,
        trouble: Trouble = Trouble(),
        **settings: object,
    ) -> Process:
        """Start a broker; if nothing else is said, one that only delivers."""
        told = ("clock.measured", "delivery.claimed")
        arguments = ["--port", str(port), "--role", role]
        return await self._launch("broker", arguments, die, told, settings, trouble)

    async def api(self) -> AsyncClient:
        """Start a broker that only takes orders; a client of it, for the test to close."""
        (port,) = free_ports(1)
        arguments = ["--port", str(port), "--role", "api"]
        process = await self._launch("broker", arguments, None, ("clock.measured",), {})
        await process.comes_to("clock.measured")
        return AsyncClient(f"http://127.0.0.1:{port}", tries=20)

    async def _launch(
        self,
        program: Literal["broker", "daemon"],
        arguments: list[str],
        die: tuple[str, int] | None,
        told: Sequence[str],
        settings: dict[str, object],
        trouble: Trouble = Trouble(),
    ) -> Process:
        given = {
            "database_url": self.database_url,
            "redis_url": self.redis_url,
            "redis_prefix": self._prefix,
            # No load balancer has to hear of an end first.
            "drain_delay": 0,
            **settings,
        }
        environ = {f"WHEEL_TIMER_{name.upper()}": str(value) for name, value in given.items()}
        order = Order(program, arguments, environ, "", list(told), die, trouble)
        self._processes.append(await self._nursery.start(order))
        return self._processes[-1]

    async def submit(self, tasks: Sequence[NewTask]) -> None:
        """Store tasks, again with the same ids until that has worked, and publish the near ones."""
        while True:
            try:
                answers = await submit(self.db, 0, tasks)
                break
            except Unavailable:
                await asyncio.sleep(LOOK_EACH_S)
        self.submitted |= {task.task_id: task for task in tasks}
        near = [ref_to(t) for t, answer in zip(tasks, answers, strict=True) if answer.near]
        with contextlib.suppress(Unavailable):
            await self._event_center.publish_direct(near)

    async def submit_at(self, *ahead_ms: int, **fields: Any) -> list[UUID]:
        """Submit a task for each distance from now. fields: more of each."""
        now_ms = time.time_ns() // 1_000_000
        tasks = [task_at(now_ms + ms, **fields) for ms in ahead_ms]
        await self.submit(tasks)
        return [task.task_id for task in tasks]

    async def load(self, rate_s: int, duration_s: float, ahead_ms: int) -> None:
        """rate_s tasks a second, evenly spread, each submitted ahead_ms before it is due."""
        began_s = time.monotonic()
        batch = max(1, round(rate_s * BATCH_EACH_S))
        submits = []
        for number in range(round(duration_s / BATCH_EACH_S)):
            await asyncio.sleep(max(0.0, began_s + number * BATCH_EACH_S - time.monotonic()))
            gaps = [round(BATCH_EACH_S * 1000 * n / batch) for n in range(batch)]
            submits.append(asyncio.create_task(self.submit_at(*(ahead_ms + gap for gap in gaps))))
        await asyncio.gather(*submits)

    async def all_arrive(self, timeout_s: float = SETTLE_S) -> Counter[str]:
        """Calls by task: each submitted one is there, settled, and none was early."""
        deadline_s = time.monotonic() + timeout_s
        while await self._pending():
            if time.monotonic() > deadline_s:
                raise AssertionError(f"{await self._pending()} still pending: {self._logs()}")
            await asyncio.sleep(LOOK_EACH_S)
        calls = Counter(call.task_id for call in self.endpoint.received)
        assert set(calls) == {str(task_id) for task_id in self.submitted}
        assert self.lateness_ms()[0] >= 0
        await self.audits_hold()
        return calls

    async def _pending(self) -> int:
        _, rows = await self.db.read(
            "SELECT count(*) FROM timer_task WHERE status = 0", timeout_s=10
        )
        return int(rows[0][0])

    def lateness_ms(self, from_ns: int = 0, to_ns: int = sys.maxsize) -> list[float]:
        """How late the first call of each task came in that was due between these times (of
        `time.time_ns`), in order, by the machine's clock, which is the database's."""
        first: dict[str, int] = {}
        for call in self.endpoint.received:
            first.setdefault(call.task_id, call.arrival_ns)
        return sorted(
            first[str(task_id)] / 1e6 - task.start_time_ms
            for task_id, task in self.submitted.items()
            if str(task_id) in first and from_ns <= task.start_time_ms * 1_000_000 < to_ns
        )

    async def audits_hold(self) -> None:
        auditor = Auditor(self.database_url)
        await auditor.hold()
        await auditor.close()

    def _logs(self) -> str:
        return "".join(line for process in self._processes for line in process.said[-20:])

    async def end(self) -> None:
        for process in self._processes:
            await process.end()
        await self._event_center.close()
        await self.db.close()


NewCluster = Callable[[str, str, str], Awaitable[Cluster]]


@pytest_asyncio.fixture
async def new_cluster(endpoint: Endpoint, tmp_path: Path) -> AsyncIterator[NewCluster]:
    """`await new_cluster(database_url, redis_url, prefix)`: what it starts ends with the test."""
    nursery = await Nursery.open(tmp_path)
    made: list[Cluster] = []

    async def new(database_url: str, redis_url: str, prefix: str) -> Cluster:
        made.append(Cluster(nursery, database_url, redis_url, prefix, endpoint))
        await made[-1].start()
        return made[-1]

    yield new
    for one in made:
        await one.end()
    await nursery.close()


@pytest_asyncio.fixture
async def cluster(
    new_cluster: NewCluster, database_url: str, redis_url: str, redis_prefix: str
) -> Cluster:
    """On the session's servers; nothing runs yet but those."""
    return await new_cluster(database_url, redis_url, redis_prefix)
