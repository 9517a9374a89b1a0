"""
Submits that may put their moment and data in the place of what an existing task has:
on_duplicate replace, earliest, latest.

One to a transaction, outside of the group that found the biz_id taken, and few at a time: such a
submit waits for the lock of its task, and those that wait hold the fence.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final
from uuid import UUID
from weakref import WeakValueDictionary

from msgspec.structs import replace

from broker.near import NearPublisher
from broker.submission import Duplicate, Outcome, Replaced, Submission
from wheel_timer import signal
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.errors import (
    DatabaseUnavailable,
    DataRejected,
    FenceBusy,
    FieldError,
    InvalidTask,
    Overloaded,
    WheelTimerError,
)
from wheel_timer.store.change import Change, Changed, change
from wheel_timer.store.task import TaskRow, lookup
from wheel_timer.task import NewTask, Ref, Status

CALLS_MAX: Final = 2
RESEND_S_MAX: Final = 4.0
RESEND_WAIT_S: Final = 0.1

log = logging.getLogger(__name__)


class Replacer:
    """Used by the submitter alone."""

    def __init__(
        self, *, db: Database, clock: Clock, near: NearPublisher, lookahead_ms: int
    ) -> None:
        self._db = db
        self._clock = clock
        self._near = near
        self._lookahead_ms = lookahead_ms
        self._turns = asyncio.Semaphore(CALLS_MAX)
        # Of one task one at a time: two would outrun each other from place to place.
        self._by_task: WeakValueDictionary[UUID, asyncio.Lock] = WeakValueDictionary()

    async def replace(self, wanted: Submission, new: NewTask, existing: UUID) -> Outcome | None:
        """
        Judge the submit against the task that holds its biz_id; None where that is gone by now.

        Never raises an error of ours. Where a reply was lost the change is sent again, at the
        revision that the task had before: so it is done once, even where the new life was delivered
        in between.
        """
        assert wanted.on_duplicate in ("replace", "earliest", "latest")
        whole = Change(
            existing,
            wanted.on_duplicate,
            wanted.actor,
            to_time_ms=new.start_time_ms,
            has_data=True,
            biz_data=new.biz_data,
            has_content_type=True,
            content_type=new.content_type,
            has_callback=True,
            callback=new.callback,
            has_retry=True,
            retry=new.retry,
            has_max_age=True,
            max_age_ms=new.max_age_ms,
            has_traceparent=True,
            traceparent=new.traceparent,
        )
        try:
            own = self._by_task.setdefault(existing, asyncio.Lock())
            async with own, self._turns:
                before = (await lookup(self._db, [existing])).get(existing)
                if before is None:
                    return None
                changed = await self._change(whole, before)
            signal.reached("submit.replaced")
            if changed.verdict == "missing":
                return None
            if changed.verdict == "kept":
                task = (await lookup(self._db, [existing])).get(existing)
                return None if task is None else Duplicate(task)
        except DataRejected as error:
            log.warning("the database refused a task: %s", error)
            return InvalidTask([FieldError("the database refuses a value of this task", "#")])
        except WheelTimerError as error:
            return error
        start_ms = new.start_time_ms
        if changed.is_near:
            published_ms = int(self._clock.now_ms())
            self._near.publish_soon([Ref(existing, start_ms, start_ms, published_ms, new.biz_type)])
        return Replaced(existing, start_ms, changed.verdict == "revived")

    async def _change(self, whole: Change, before: TaskRow) -> Changed:
        """before: the task as it was before the first try."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + RESEND_S_MAX
        while True:
            try:
                (changed,) = await change(self._db, [whole], lookahead_ms=self._lookahead_ms)
                if changed.verdict != "changed":
                    return changed
                if whole.revision is not None and changed.start_time_ms is not None:
                    # By the first try, whose reply was lost; or by who came after it.
                    is_new = before.status is not Status.PENDING
                    return Changed("revived" if is_new else "done", changed.start_time_ms, False)
                error: WheelTimerError = Overloaded("other submits replace this task all the time")
            except (DatabaseUnavailable, FenceBusy) as fault:
                error = DatabaseUnavailable(str(fault))
                if isinstance(fault, DatabaseUnavailable) and whole.verb == "replace":
                    whole = replace(whole, revision=before.revision)
            if loop.time() + RESEND_WAIT_S > until_s:
                raise error
            await asyncio.sleep(RESEND_WAIT_S)
