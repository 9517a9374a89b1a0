"""The client for threads."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack
from uuid import UUID

import httpx

from wheel_timer.client import tasks as task_calls
from wheel_timer.client.call import TRIES, Call, Tries
from wheel_timer.client.connection import CONNECT_S, TOTAL_S, Options, unreachable
from wheel_timer.client.errors import ClientError, refused
from wheel_timer.client.parts import BizTypes, Operations, Schedules, pages
from wheel_timer.client.pull import OnError, Terms
from wheel_timer.client.results import Submitted, Task
from wheel_timer.client.tasks import (
    Changes,
    ListFilter,
    NewTask,
    SubmittedMany,
    TaskFields,
)
from wheel_timer.client.work import Work

T = TypeVar("T")


class Client:
    """
    A wheel-timer server, for any number of threads, and for processes forked from this one.

    url, key: default: the settings URL and KEY. A try takes total_s at most, connect_s of it for
    the connection; no answer, 429 and 503 are tried again, `tries` times in all, where that is
    safe, after what the server says in Retry-After. Every call raises a ClientError
    (wheel_timer/client/errors.py), most of all Unreachable, InvalidRequest and NotFound.

        with Client() as client:
            client.submit("orders", biz_id="1017", delay=1800, biz_data={"order": 1017})
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        connect_s: float = CONNECT_S,
        total_s: float = TOTAL_S,
        tries: int = TRIES,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._options = Options(url, key, connect_s=connect_s, total_s=total_s, tries=tries)
        self._transport = transport
        self._lock = threading.Lock()
        self._pid = 0
        self._http: httpx.Client | None = None
        # A parent's connections, in a fork: not ours to close.
        self._left_alone: list[httpx.Client] = []
        self._is_closed = False
        self.biz = BizTypes(self.send)
        self.operations = Operations(self.send)
        self.schedules = Schedules(self.send)

    def submit(self, biz_type: str, **task: Unpack[TaskFields]) -> Submitted:
        """
        Set a timer; returns after its commit. Without a biz_id it gets a random one, so that a
        try whose answer was lost is not a second task. Raises KeyExists, BizTypeUnknown,
        RateLimited, QuotaUsedUp; ValueError for a datetime without a time zone.
        """
        return self.send(task_calls.submit({"biz_type": biz_type, **task}))

    def submit_many(self, tasks: Iterable[NewTask | Mapping[str, Any]]) -> SubmittedMany:
        """
        Set any number of timers in batches of a thousand; each is stored or rejected for itself.
        Takes them as they come from an iterator, and keeps a batch in memory. After an error the
        same tasks can be sent again where they have their biz_ids; so can those rejected whose
        error is_retryable (a limit, a quota).
        """
        many = SubmittedMany()
        for chunk in task_calls.chunks(tasks):
            chunk.add_up(self.send(chunk.call()), many)
        return many

    def get(self, task: str | UUID, biz_id: str | None = None) -> Task:
        """A task with its story: get(task_id), or get(biz_type, biz_id)."""
        return self.send(task_calls.get(task, biz_id))

    def cancel(
        self,
        task: str | UUID,
        biz_id: str | None = None,
        *,
        stop: bool = False,
        discard: bool = False,
    ) -> Task:
        """
        Cancel a task by task_id, or by biz_type and biz_id; no callback starts after this returns.
        stop: where it is being called, no further attempt. discard: take a failed one away. Raises
        TaskDelivering, TaskSettled.
        """
        return self.send(task_calls.cancel(task, biz_id, stop=stop, discard=discard))

    def reschedule(
        self, task: str | UUID, biz_id: str | None = None, **changes: Unpack[Changes]
    ) -> Task:
        """
        Change a task that is not being called yet: its time, its data, its callback, its policy.
        The id stays. Raises TaskDelivering, TaskSettled.
        """
        return self.send(task_calls.change(task, biz_id, changes))

    def run_now(self, task: str | UUID, biz_id: str | None = None) -> Task:
        """Call a pending task now. Raises TaskDelivering, TaskSettled."""
        return self.send(task_calls.verb("run", task, biz_id, is_repeatable=True))

    def replay(self, task: str | UUID, biz_id: str | None = None) -> Task:
        """Call a settled task again."""
        return self.send(task_calls.verb("replay", task, biz_id, is_repeatable=False))

    def list(
        self, *, page_size: int | None = None, **filter_: Unpack[ListFilter]
    ) -> Iterator[Task]:
        """The tasks of a filter, page by page as they are asked for."""
        return pages(lambda cursor: self.send(task_calls.page(filter_, page_size, cursor)))

    def work(
        self,
        biz_type: str,
        *,
        concurrency: int = 1,
        ttr: float = 60.0,
        wait: float = 5.0,
        on_error: OnError = "release",
        error_delay: float = 10.0,
    ) -> Work:
        """
        The tasks of a biz_type whose delivery is pull: see Work. concurrency: how many `run` has in
        hand at once. ttr: seconds after which a task is another's if this worker is silent; it is
        touched by itself. wait: seconds of one look for work. on_error: release (for error_delay
        seconds) or bury a task whose handler raised. Raises ValueError.
        """
        terms = Terms(
            biz_type=biz_type,
            concurrency=concurrency,
            ttr=ttr,
            wait=wait,
            on_error=on_error,
            error_delay=error_delay,
        )
        return Work(self.send, terms)

    def send(self, call: Call[T]) -> T:
        """Send a call, with its tries. Raises ClientError."""
        tries = Tries(call, self._options.tries)
        while True:
            try:
                return call.read(self._answer(call))
            except ClientError as error:
                time.sleep(tries.pause_s(error))

    def close(self) -> None:
        """Close the connections; the client is of no use any more."""
        with self._lock:
            self._is_closed = True
            if self._http is not None and self._pid == os.getpid():
                self._http.close()
            self._http = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Client({self._options.url!r})"

    def _answer(self, call: Call[Any]) -> bytes:
        """The body of a good answer to one try."""
        http = self._connections()
        deadline_s = time.monotonic() + self._options.total_of(call)
        body = bytearray()
        try:
            with http.stream(**self._options.arguments(call)) as answer:
                for piece in answer.iter_bytes():
                    body += piece
                    # httpx bounds each read; all of them together are bounded here.
                    if time.monotonic() > deadline_s:
                        raise TimeoutError("the answer trickles")
        except (httpx.HTTPError, TimeoutError) as error:
            raise unreachable(error) from None
        if answer.is_success:
            return bytes(body)
        raise refused(
            answer.status_code, bytes(body), answer.headers.get("retry-after"), time.time()
        )

    def _connections(self) -> httpx.Client:
        """Those of this process: a fork that used its parent's would read the parent's answers."""
        if self._http is None or self._pid != os.getpid():
            self._connect()
        assert self._http is not None
        return self._http

    def _connect(self) -> None:
        if self._pid != os.getpid() and self._http is not None:
            # A lock that another thread of the parent held would be held here for ever.
            self._lock = threading.Lock()
        with self._lock:
            if self._is_closed:
                raise RuntimeError("this client is closed")
            if self._http is not None and self._pid == os.getpid():
                return
            if self._http is not None:
                self._left_alone.append(self._http)
            self._http = httpx.Client(headers=self._options.headers(), transport=self._transport)
            self._pid = os.getpid()
