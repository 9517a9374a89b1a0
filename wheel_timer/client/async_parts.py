"""What of the client is not about single tasks, for an event loop."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any, Protocol, TypeVar, Unpack
from uuid import UUID

from wheel_timer.biz import BizTypeOut
from wheel_timer.client import biz as biz_calls
from wheel_timer.client import operations as operation_calls
from wheel_timer.client import schedules as schedule_calls
from wheel_timer.client.biz import BizVersion, RotatedSecret
from wheel_timer.client.call import Call
from wheel_timer.client.operations import Action, DryRun, Operation
from wheel_timer.client.results import Page
from wheel_timer.client.schedules import Occurrence, Run, Schedule, ScheduleFields
from wheel_timer.client.tasks import Filter, Seconds

T = TypeVar("T")


class Send(Protocol):
    """Sends a call, with its tries."""

    async def __call__(self, call: Call[T]) -> T: ...


async def pages(page: Callable[[str | None], Awaitable[Page[T]]]) -> AsyncIterator[T]:
    """The items of a list, page by page as they are asked for. page: called with a cursor."""
    cursor = None
    while True:
        found = await page(cursor)
        for item in found.items:
            yield item
        cursor = found.next_cursor
        if cursor is None:
            return


class AsyncBizTypes:
    """The configuration of lines of business."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def get(self, name: str) -> BizTypeOut:
        """A biz_type; write-only values as marks. Raises NotFound."""
        return await self._send(biz_calls.get(name))

    async def put(self, name: str, *, version: int | None = None, **settings: Any) -> BizTypeOut:
        """
        Make it what is given; the rest is as by default, but for write-only values, which stay.
        version: only where that is the newest one; else StaleVersion.
        """
        return await self._send(biz_calls.put(name, settings, version))

    async def patch(self, name: str, *, version: int | None = None, **settings: Any) -> BizTypeOut:
        """Change what is given; None is the default again."""
        return await self._send(biz_calls.patch(name, settings, version))

    async def delete(
        self, name: str, *, purge: bool = False, version: int | None = None
    ) -> Operation | None:
        """
        Take it away. purge: its tasks too, by the operation that is returned; without it, one that
        has tasks is BizTypeInUse.
        """
        return await self._send(biz_calls.delete(name, purge=purge, version=version))

    def list(self, *, page_size: int | None = None) -> AsyncIterator[BizTypeOut]:
        """All of them, by name."""
        return pages(lambda cursor: self._send(biz_calls.page(page_size, cursor)))

    def history(self, name: str, *, page_size: int | None = None) -> AsyncIterator[BizVersion]:
        """Its versions, newest first."""
        return pages(lambda cursor: self._send(biz_calls.history(name, page_size, cursor)))

    async def pause(self, name: str) -> BizTypeOut:
        """Call nothing of it until `resume`; submits go on."""
        return await self._send(biz_calls.pause(name))

    async def resume(self, name: str) -> BizTypeOut:
        """Call again."""
        return await self._send(biz_calls.resume(name))

    async def purge(self, name: str) -> Operation:
        """Delete every task of it; the operation that does it."""
        return await self._send(biz_calls.purge(name))

    async def test(self, name: str) -> dict[str, Any]:
        """Make one signed call now: the request, the address, the answer, the timings."""
        return await self._send(biz_calls.test(name))

    async def rotate_secret(
        self, name: str, secret: str | None = None, *, grace: Seconds | None = None
    ) -> RotatedSecret:
        """
        Sign with a new secret, and for `grace` with the old one too. Without one the server makes
        it, and this is the only time that it is shown.
        """
        grace_s = grace.total_seconds() if isinstance(grace, timedelta) else grace
        return await self._send(biz_calls.rotate_secret(name, secret, grace_s))

    async def stats(self, name: str) -> dict[str, Any]:
        """Its counts and its pace."""
        return await self._send(biz_calls.stats(name))


class AsyncOperations:
    """Changes of many tasks, done by the server in the background, paced, and stoppable."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def start(
        self,
        action: Action,
        *,
        delay: Seconds | None = None,
        rate: float | None = None,
        over: Seconds | None = None,
        all: bool = False,
        **filter_: Unpack[Filter],
    ) -> Operation:
        """
        Do `action` to the tasks of a filter; without one, all=True is needed. delay: of shift, in
        seconds. rate: tasks a second; or over: the seconds to spread them over.
        """
        options = {"delay": delay, "rate": rate, "over": over, "all": all or None}
        return await self._send(operation_calls.start(action, filter_, options))

    async def dry_run(
        self,
        action: Action,
        *,
        delay: Seconds | None = None,
        all: bool = False,
        **filter_: Unpack[Filter],
    ) -> DryRun:
        """What it would change."""
        return await self._send(
            operation_calls.dry_run(action, filter_, {"delay": delay, "all": all or None})
        )

    async def get(self, operation_id: str | UUID) -> Operation:
        """How far one is. Raises NotFound."""
        return await self._send(operation_calls.get(operation_id))

    def list(self, *, page_size: int | None = None) -> AsyncIterator[Operation]:
        """All of them, newest first."""
        return pages(lambda cursor: self._send(operation_calls.page(page_size, cursor)))

    async def stop(self, operation_id: str | UUID) -> Operation:
        """Go no further; what is done stays done."""
        return await self._send(operation_calls.stop(operation_id))


class AsyncSchedules:
    """Timers that come back by a calendar."""

    def __init__(self, send: Send) -> None:
        self._send = send

    async def put(self, biz_type: str, name: str, **fields: Unpack[ScheduleFields]) -> Schedule:
        """Make it what is given; the rest is as by default. Raises InvalidRequest, NotFound."""
        return await self._send(schedule_calls.put(biz_type, name, fields))

    async def patch(self, biz_type: str, name: str, **fields: Unpack[ScheduleFields]) -> Schedule:
        """Change what is given. What is to come is replaced; what came due goes on as it was."""
        return await self._send(schedule_calls.patch(biz_type, name, fields))

    async def get(self, biz_type: str, name: str) -> Schedule:
        """One of them. Raises NotFound."""
        return await self._send(schedule_calls.get(biz_type, name))

    async def delete(self, biz_type: str, name: str) -> None:
        """Take it away; once this returns no occurrence starts."""
        await self._send(schedule_calls.delete(biz_type, name))

    async def enable(self, biz_type: str, name: str) -> Schedule:
        """Let it come due from now on."""
        return await self._send(schedule_calls.enable(biz_type, name))

    async def disable(self, biz_type: str, name: str) -> Schedule:
        """Take its occurrences back; once this returns none starts."""
        return await self._send(schedule_calls.disable(biz_type, name))

    async def run(self, biz_type: str, name: str) -> Run:
        """One more occurrence, now."""
        return await self._send(schedule_calls.run(biz_type, name))

    async def upcoming(
        self, biz_type: str, name: str, count: int | None = None
    ) -> builtins.list[Occurrence]:
        """The next times that it comes due: 10, or `count`."""
        return await self._send(schedule_calls.upcoming(biz_type, name, count))

    def list(
        self, biz_type: str | None = None, *, page_size: int | None = None
    ) -> AsyncIterator[Schedule]:
        """All of them, or those of a biz_type, without their payloads."""
        return pages(lambda cursor: self._send(schedule_calls.page(biz_type, page_size, cursor)))
