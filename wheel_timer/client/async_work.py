"""The work loop for an event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, TypeVar

from wheel_timer.client import pull
from wheel_timer.client.call import Call
from wheel_timer.client.errors import ClaimLost, ClientError
from wheel_timer.client.pull import Reserved, Terms
from wheel_timer.client.results import Task

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Send(Protocol):
    """AsyncClient.send."""

    async def __call__(self, call: Call[T], /) -> T: ...


class AsyncJob:
    """
    A task that this worker holds. It is touched by itself while its handler works; is_lost: it was
    not in time, and another worker may be at it.
    """

    def __init__(self, task: Reserved, send: Send) -> None:
        self.task = task
        self.is_reported = False
        self.is_lost = False
        self._send = send

    @property
    def biz_data(self) -> Any:
        """The payload: JSON, or bytes."""
        bytes_ = self.task.biz_data_base64
        return self.task.biz_data if bytes_ is None else bytes_

    async def finish(self) -> Task:
        """It is done. Raises ClaimLost."""
        return await self.report(pull.report("finish", self.task))

    async def release(self, delay: float = 0) -> Task:
        """Not now: it is due again after `delay` seconds; no failure is spent. Raises ClaimLost."""
        return await self.report(pull.report("release", self.task, delay=delay))

    async def bury(self, reason: str | None = None) -> Task:
        """Not at all, until somebody replays it. Raises ClaimLost."""
        return await self.report(pull.report("bury", self.task, reason=reason))

    async def touch(self, ttr: float) -> Task:
        """It takes longer: it stays this worker's for `ttr` seconds from now. Raises ClaimLost."""
        return await self._send(pull.report("touch", self.task, ttr=ttr))

    async def report(self, call: Call[Task]) -> Task:
        """Say how it ended; the loop says nothing more of it."""
        self.is_reported = True
        return await self._send(call)

    def __repr__(self) -> str:
        return f"AsyncJob({self.task!r})"


class AsyncWork:
    """
    The tasks of a pulled biz_type, one after the other, or several at once:

        async for job in client.work("mails"):
            await send(job.biz_data)

        await client.work("mails", concurrency=20).run(handler)

    In the loop a step forward finishes the task before, unless it was reported; who leaves the loop
    gives it back. `run` finishes a task when its handler returns; one that raises releases or
    buries it, as on_error says. After `stop` nothing more is taken, and what is in hand ends.
    """

    def __init__(self, send: Send, terms: Terms) -> None:
        self._send = send
        self._terms = terms
        self._stopped = asyncio.Event()
        # What `async for` has in hand; the lock: who says how it ended.
        self._looped: dict[AsyncJob, asyncio.Lock] = {}

    def stop(self) -> None:
        """Take nothing more. The loop ends when the work in hand has."""
        self._stopped.set()

    async def __aiter__(self) -> AsyncIterator[AsyncJob]:
        while not self._stopped.is_set():
            for job in await self._take(1):
                touching = asyncio.create_task(self._keep(job))
                self._looped[job] = asyncio.Lock()
                is_done = False
                try:
                    yield job
                    is_done = True
                finally:
                    touching.cancel()
                    await self._end(job, is_done=is_done)

    async def run(self, handler: Callable[[AsyncJob], Awaitable[object]]) -> None:
        """Call `handler` with each task, `concurrency` at once, until stopped. Raises ClientError
        for what trying again does not mend, after the work in hand has ended."""
        running: set[asyncio.Task[None]] = set()
        try:
            while not self._stopped.is_set():
                free = self._terms.concurrency - len(running)
                if not free:
                    await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                    continue
                for job in await self._take(free):
                    call = asyncio.create_task(self._handle(handler, job))
                    running.add(call)
                    call.add_done_callback(running.discard)
        finally:
            if running:
                await asyncio.wait(running)

    async def give_back(self) -> None:
        """What a loop that was left has in hand still: Python ends such a loop some time later,
        when the client may be closed."""
        for job in list(self._looped):
            await self._end(job, is_done=False)

    async def _end(self, job: AsyncJob, *, is_done: bool) -> None:
        """Report what a loop had in hand, unless that was said."""
        lock = self._looped.get(job)
        if lock is None:
            return
        async with lock:
            if not job.is_reported:
                if is_done:
                    call = pull.report("finish", job.task)
                else:
                    call = pull.report("release", job.task, delay=0)
                await self._say(job, call)
            self._looped.pop(job, None)

    async def _take(self, wanted: int) -> list[AsyncJob]:
        """Tasks, or none after a while. What came in the last look before a stop goes back."""
        terms, failures = self._terms, 0
        call = pull.reserve(terms.biz_type, wanted, wait=terms.wait, ttr=terms.ttr)
        while not self._stopped.is_set():
            try:
                jobs = [AsyncJob(task, self._send) for task in await self._send(call)]
            except ClientError as error:
                if not error.is_retryable:
                    raise
                failures += 1
                logger.warning("no work is taken of %s: %s", terms.biz_type, error)
                await self._pause(max(pull.again_s(failures), error.retry_after_s or 0))
                continue
            if self._stopped.is_set():
                for job in jobs:
                    await self._say(job, pull.report("release", job.task, delay=0))
                return []
            return jobs
        return []

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopped.wait()
        except TimeoutError:
            pass

    async def _handle(
        self, handler: Callable[[AsyncJob], Awaitable[object]], job: AsyncJob
    ) -> None:
        touching = asyncio.create_task(self._keep(job))
        try:
            await handler(job)
            call = pull.report("finish", job.task)
        except asyncio.CancelledError:
            call = pull.report("release", job.task, delay=0)
        except Exception as error:
            logger.exception("the handler of %s failed", job.task)
            call = pull.failed(job.task, error, self._terms)
        finally:
            touching.cancel()
        if not job.is_reported:
            await self._say(job, call)

    async def _say(self, job: AsyncJob, call: Call[Task]) -> None:
        """Report for the loop: whatever goes wrong, the task comes again by itself."""
        try:
            await job.report(call)
        except ClaimLost:
            job.is_lost = True
            logger.warning("%s was no longer ours: it may be done twice", job.task)
        except ClientError as error:
            logger.warning("%s could not be reported, and comes again: %s", job.task, error)

    async def _keep(self, job: AsyncJob) -> None:
        """Touch it until cancelled."""
        while not job.is_reported:
            await asyncio.sleep(self._terms.touch_each_s)
            try:
                await job.touch(self._terms.ttr)
            except ClaimLost:
                # Or its report was faster than this touch.
                if not job.is_reported:
                    job.is_lost = True
                    logger.warning("%s is no longer ours", job.task)
                return
            except ClientError as error:
                logger.warning("%s could not be touched: %s", job.task, error)
