"""The client for an event loop."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack
from uuid import UUID
from weakref import WeakSet

import httpx

from wheel_timer.client import tasks as task_calls
from wheel_timer.client.async_parts import AsyncBizTypes, AsyncOperations, AsyncSchedules, pages
from wheel_timer.client.async_work import AsyncWork
from wheel_timer.client.call import TRIES, Call, Tries
from wheel_timer.client.connection import CONNECT_S, TOTAL_S, Options, unreachable
from wheel_timer.client.errors import ClientError, refused
from wheel_timer.client.pull import OnError, Terms
from wheel_timer.client.results import Submitted, Task
from wheel_timer.client.tasks import (
    Changes,
    ListFilter,
    NewTask,
    SubmittedMany,
    TaskFields,
)

T = TypeVar("T")


class AsyncClient:
    """
    A wheel-timer server, for the tasks of an event loop; in another loop, or a fork, it opens
    connections anew. All as in Client.

        async with AsyncClient() as client:
            await client.submit("orders", biz_id="1017", delay=1800, biz_data={"order": 1017})
    """

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        *,
        connect_s: float = CONNECT_S,
        total_s: float = TOTAL_S,
        tries: int = TRIES,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._options = Options(url, key, connect_s=connect_s, total_s=total_s, tries=tries)
        self._transport = transport
        self._home: tuple[int, asyncio.AbstractEventLoop] | None = None
        self._http: httpx.AsyncClient | None = None
        # Of a loop that has ended, or of a fork's parent: not ours to close.
        self._left_alone: list[httpx.AsyncClient] = []
        self._is_closed = False
        self._works = WeakSet[AsyncWork]()
        self.biz = AsyncBizTypes(self.send)
        self.operations = AsyncOperations(self.send)
        self.schedules = AsyncSchedules(self.send)

    async def submit(self, biz_type: str, **task: Unpack[TaskFields]) -> Submitted:
        """
        Set a timer; returns after its commit. Without a biz_id it gets a random one, so that a
        try whose answer was lost is not a second task. Raises KeyExists, BizTypeUnknown,
        RateLimited, QuotaUsedUp; ValueError for a datetime without a time zone.
        """
        return await self.send(task_calls.submit({"biz_type": biz_type, **task}))

    async def submit_many(
        self,
        tasks: Iterable[NewTask | Mapping[str, Any]] | AsyncIterable[NewTask | Mapping[str, Any]],
    ) -> SubmittedMany:
        """
        Set any number of timers in batches of a thousand; each is stored or rejected for itself.
        Takes them as they come from an iterator, and keeps a batch in memory. After an error the
        same tasks can be sent again where they have their biz_ids; so can those rejected whose
        error is_retryable (a limit, a quota).
        """
        many = SubmittedMany()
        gathered = task_calls.Chunks()
        async for task in _each(tasks):
            if (chunk := gathered.add(task)) is not None:
                chunk.add_up(await self.send(chunk.call()), many)
        rest = gathered.rest()
        if rest.tasks:
            rest.add_up(await self.send(rest.call()), many)
        return many

    async def get(self, task: str | UUID, biz_id: str | None = None) -> Task:
        """A task with its story: get(task_id), or get(biz_type, biz_id)."""
        return await self.send(task_calls.get(task, biz_id))

    async def cancel(
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
        return await self.send(task_calls.cancel(task, biz_id, stop=stop, discard=discard))

    async def reschedule(
        self, task: str | UUID, biz_id: str | None = None, **changes: Unpack[Changes]
    ) -> Task:
        """
        Change a task that is not being called yet: its time, its data, its callback, its policy.
        The id stays. Raises TaskDelivering, TaskSettled.
        """
        return await self.send(task_calls.change(task, biz_id, changes))

    async def run_now(self, task: str | UUID, biz_id: str | None = None) -> Task:
        """Call a pending task now. Raises TaskDelivering, TaskSettled."""
        return await self.send(task_calls.verb("run", task, biz_id, is_repeatable=True))

    async def replay(self, task: str | UUID, biz_id: str | None = None) -> Task:
        """Call a settled task again."""
        return await self.send(task_calls.verb("replay", task, biz_id, is_repeatable=False))

    def list(
        self, *, page_size: int | None = None, **filter_: Unpack[ListFilter]
    ) -> AsyncIterator[Task]:
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
    ) -> AsyncWork:
        """
        The tasks of a biz_type whose delivery is pull: see AsyncWork. concurrency: how many `run`
        has in hand at once. ttr: seconds after which a task is another's if this worker is silent;
        it is touched by itself. wait: seconds of one look for work. on_error: release (for
        error_delay seconds) or bury a task whose handler raised. Raises ValueError.
        """
        terms = Terms(
            biz_type=biz_type,
            concurrency=concurrency,
            ttr=ttr,
            wait=wait,
            on_error=on_error,
            error_delay=error_delay,
        )
        work = AsyncWork(self.send, terms)
        self._works.add(work)
        return work

    async def send(self, call: Call[T]) -> T:
        """Send a call, with its tries. Raises ClientError."""
        tries = Tries(call, self._options.tries)
        while True:
            try:
                return call.read(await self._answer(call))
            except ClientError as error:
                pause_s = tries.pause_s(error)
            await asyncio.sleep(pause_s)

    async def close(self) -> None:
        """
        Give back what its work loops have in hand, and close the connections; the client is of no
        use any more.
        """
        is_here = self._http is not None and self._home == _here()
        if is_here:
            for work in list(self._works):
                await work.give_back()
        self._is_closed = True
        if self._http is not None and is_here:
            await self._http.aclose()
        self._http = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncClient({self._options.url!r})"

    async def _answer(self, call: Call[Any]) -> bytes:
        """The body of a good answer to one try."""
        http = self._connections()
        try:
            async with asyncio.timeout(self._options.total_of(call)):
                answer = await http.request(**self._options.arguments(call))
        except (httpx.HTTPError, TimeoutError) as error:
            raise unreachable(error) from None
        if answer.is_success:
            return answer.content
        raise refused(
            answer.status_code, answer.content, answer.headers.get("retry-after"), time.time()
        )

    def _connections(self) -> httpx.AsyncClient:
        """Those of this process and this loop."""
        if self._is_closed:
            raise RuntimeError("this client is closed")
        here = _here()
        if self._http is None or self._home != here:
            if self._http is not None:
                self._left_alone.append(self._http)
            self._http = httpx.AsyncClient(
                headers=self._options.headers(), transport=self._transport
            )
            self._home = here
        return self._http


def _here() -> tuple[int, asyncio.AbstractEventLoop]:
    return os.getpid(), asyncio.get_running_loop()


async def _each(tasks: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    if isinstance(tasks, AsyncIterable):
        async for task in tasks:
            yield task
    else:
        for task in tasks:
            yield task
