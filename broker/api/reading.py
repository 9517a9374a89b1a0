"""
The tasks of one request, read against the configuration.

A task is refused only by the newest configuration: where a biz_type is unknown here, or the
refusal hangs on what it allows, the registry looks into the database once (for the whole request's
part at hand) and those tasks are read again. So a PUT that one broker has answered holds for the
next submit at any other.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Final

from msgspec import Raw
from starlette.requests import Request

from broker import tracing
from broker.api.actor import actor_of
from broker.api.context import Context
from broker.api.intake import (
    RefusedByBizType,
    check_biz_type,
    decode_task,
    read_task,
    valid_traceparent,
)
from broker.api.problems import Refused
from broker.submission import Submission
from wheel_timer.errors import BizTypeUnknown, WheelTimerError

# Reading so many tasks takes about a millisecond; then the callbacks of this process have the loop.
READ_AT_ONCE: Final = 250

Read = Submission | WheelTimerError | Refused


class TaskReader:
    """Reads the tasks of one request; its headers hold for each of them."""

    def __init__(self, context: Context, request: Request, biz_id: str | None = None) -> None:
        self._registry = context.registry
        self._clock = context.clock
        self._body_bytes_max = context.settings.max_body
        own = tracing.traceparent_of(request)
        self._traceparent = own or valid_traceparent(request.headers.get("traceparent"))
        self._biz_id = biz_id
        self._actor = actor_of(request)
        self._guard = context.guard
        self._admission = context.admission

    async def read(self, raws: Sequence[bytes | Raw]) -> list[Read]:
        """The submission of each task, or what is wrong with it. Raises DatabaseUnavailable."""
        found: list[Read] = []
        version = self._registry.version
        for raw in raws:
            found.append(self._read(raw))
            if len(found) % READ_AT_ONCE == 0:
                await asyncio.sleep(0)
        doubtful = [
            i for i, read in enumerate(found) if isinstance(read, BizTypeUnknown | RefusedByBizType)
        ]
        if doubtful:
            await self._registry.refresh()
            # The news may have come by itself while we were reading: compare with where we began.
            if self._registry.version != version:
                for i in doubtful:
                    found[i] = self._read(raws[i])
        await self._admit(found)
        return found

    async def _admit(self, found: list[Read]) -> None:
        """Refuse what is beyond the submit_rate_limit of its biz_type: the last ones of each."""
        limits = [
            biz
            for name in {read.biz_type for read in found if isinstance(read, Submission)}
            if (biz := self._registry.get(name)) is not None and biz.submit_rate_limit is not None
        ]
        if not limits:
            return
        tasks = Counter(read.biz_type for read in found if isinstance(read, Submission))
        limited = [(biz, tasks[biz.biz_type]) for biz in limits]
        for name, (over, error) in (await self._admission.refused(limited)).items():
            places = [
                i
                for i, read in enumerate(found)
                if isinstance(read, Submission) and read.biz_type == name
            ]
            for i in places[-over:]:
                found[i] = error

    def _read(self, raw: bytes | Raw) -> Read:
        try:
            task = decode_task(raw)
            self._actor.check_sees(task.biz_type)
            biz = self._registry.get(task.biz_type)
            if biz is None:
                check_biz_type(task.biz_type)
                return BizTypeUnknown(task.biz_type)
            submission = read_task(
                task,
                biz,
                now_ms=self._clock.now_ms(),
                body_bytes_max=self._body_bytes_max,
                default_biz_id=self._biz_id,
                traceparent=self._traceparent,
                actor=self._actor.name,
            )
            if task.callback is not None:
                url = task.callback.url
                errors = self._guard.check(url, biz.callback_allow, "#/callback/url")
                if errors:
                    return RefusedByBizType(errors)
            return submission
        except (WheelTimerError, Refused) as error:
            return error
