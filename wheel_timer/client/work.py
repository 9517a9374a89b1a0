"""The work loop for threads."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Protocol, TypeVar

from wheel_timer.client import pull
from wheel_timer.client.call import Call
from wheel_timer.client.errors import ClaimLost, ClientError
from wheel_timer.client.pull import Reserved, Terms
from wheel_timer.client.results import Task

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Send(Protocol):
    """Client.send."""

    def __call__(self, call: Call[T], /) -> T: ...


class Job:
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

    def finish(self) -> Task:
        """It is done. Raises ClaimLost."""
        return self.report(pull.report("finish", self.task))

    def release(self, delay: float = 0) -> Task:
        """Not now: it is due again after `delay` seconds; no failure is spent. Raises ClaimLost."""
        return self.report(pull.report("release", self.task, delay=delay))

    def bury(self, reason: str | None = None) -> Task:
        """Not at all, until somebody replays it. Raises ClaimLost."""
        return self.report(pull.report("bury", self.task, reason=reason))

    def touch(self, ttr: float) -> Task:
        """It takes longer: it stays this worker's for `ttr` seconds from now. Raises ClaimLost."""
        return self._send(pull.report("touch", self.task, ttr=ttr))

    def report(self, call: Call[Task]) -> Task:
        """Say how it ended; the loop says nothing more of it."""
        self.is_reported = True
        return self._send(call)

    def __repr__(self) -> str:
        return f"Job({self.task!r})"


class Work:
    """
    The tasks of a pulled biz_type, one after the other, or several at once in threads:

        for job in client.work("mails"):
            send(job.biz_data)

        client.work("mails", concurrency=20).run(handler)

    All as in AsyncWork. `stop` may be called from any thread, and from a signal handler.
    """

    def __init__(self, send: Send, terms: Terms) -> None:
        self._send = send
        self._terms = terms
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Take nothing more. The loop ends when the work in hand has."""
        self._stopped.set()

    def __iter__(self) -> Iterator[Job]:
        with _Toucher(self._terms) as toucher:
            while not self._stopped.is_set():
                for job in self._take(1):
                    toucher.hold(job)
                    is_done = False
                    try:
                        yield job
                        is_done = True
                    finally:
                        toucher.let_go(job)
                        if not job.is_reported:
                            said = ("finish", {}) if is_done else ("release", {"delay": 0})
                            _say(job, pull.report(said[0], job.task, **said[1]))

    def run(self, handler: Callable[[Job], object]) -> None:
        """Call `handler` with each task, in `concurrency` threads, until stopped. Raises
        ClientError for what trying again does not mend, after the work in hand has ended."""
        running: set[Future[None]] = set()
        with (
            _Toucher(self._terms) as toucher,
            ThreadPoolExecutor(self._terms.concurrency, "wheel-timer-work") as threads,
        ):
            while not self._stopped.is_set():
                running = {call for call in running if not call.done()}
                free = self._terms.concurrency - len(running)
                if not free:
                    wait(running, return_when=FIRST_COMPLETED)
                    continue
                for job in self._take(free):
                    toucher.hold(job)
                    running.add(threads.submit(self._handle, handler, job, toucher))

    def _take(self, wanted: int) -> list[Job]:
        """Tasks, or none after a while. What came in the last look before a stop goes back."""
        terms, failures = self._terms, 0
        call = pull.reserve(terms.biz_type, wanted, wait=terms.wait, ttr=terms.ttr)
        while not self._stopped.is_set():
            try:
                jobs = [Job(task, self._send) for task in self._send(call)]
            except ClientError as error:
                if not error.is_retryable:
                    raise
                failures += 1
                logger.warning("no work is taken of %s: %s", terms.biz_type, error)
                self._stopped.wait(max(pull.again_s(failures), error.retry_after_s or 0))
                continue
            if self._stopped.is_set():
                for job in jobs:
                    _say(job, pull.report("release", job.task, delay=0))
                return []
            return jobs
        return []

    def _handle(self, handler: Callable[[Job], object], job: Job, toucher: _Toucher) -> None:
        try:
            handler(job)
            call = pull.report("finish", job.task)
        except Exception as error:
            logger.exception("the handler of %s failed", job.task)
            call = pull.failed(job.task, error, self._terms)
        finally:
            toucher.let_go(job)
        if not job.is_reported:
            _say(job, call)


class _Toucher:
    """One thread that touches all jobs in hand, each in its time."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._changed = threading.Condition()
        self._next_s: dict[Job, float] = {}
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="wheel-timer-touch", daemon=True)

    def __enter__(self) -> _Toucher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify()
        self._thread.join()

    def hold(self, job: Job) -> None:
        """From now on."""
        with self._changed:
            self._next_s[job] = time.monotonic() + self._terms.touch_each_s
            self._changed.notify()

    def let_go(self, job: Job) -> None:
        """No more."""
        with self._changed:
            self._next_s.pop(job, None)

    def _run(self) -> None:
        while (jobs := self._due()) is not None:
            for job in jobs:
                try:
                    job.touch(self._terms.ttr)
                except ClaimLost:
                    if not job.is_reported:
                        job.is_lost = True
                        logger.warning("%s is no longer ours", job.task)
                    self.let_go(job)
                except ClientError as error:
                    logger.warning("%s could not be touched: %s", job.task, error)

    def _due(self) -> list[Job] | None:
        """Wait for the next that are to be touched; None at the end."""
        with self._changed:
            while not self._is_over:
                now_s = time.monotonic()
                due = [job for job, at_s in self._next_s.items() if at_s <= now_s]
                for job in due:
                    self._next_s[job] = now_s + self._terms.touch_each_s
                if due:
                    return due
                soonest_s = min(self._next_s.values(), default=None)
                self._changed.wait(None if soonest_s is None else soonest_s - now_s)
        return None


def _say(job: Job, call: Call[Task]) -> None:
    """Report for the loop: whatever goes wrong, the task comes again by itself."""
    try:
        job.report(call)
    except ClaimLost:
        job.is_lost = True
        logger.warning("%s was no longer ours: it may be done twice", job.task)
    except ClientError as error:
        logger.warning("%s could not be reported, and comes again: %s", job.task, error)
