"""
Tasks as lines of JSON, any number of them, in flat memory.

    read    pieces of the body, cut into lines; no line beyond MAX_REQUEST
    part    up to PART_LINES lines, read and given to the submitter; at most PARTS_MAX at a time,
            so a client that sends faster than the database takes is not read any further
    settle  parts are settled in their order: everything up to committed_lines has its outcome
    answer  once, after the last line. An answer that began earlier would deadlock clients that
            send everything before they read
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any, Final

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from broker.api.body import ClientGone
from broker.api.context import Context
from broker.api.operation import json_answer
from broker.api.outcomes import counted, error_of, kept
from broker.api.problems import Refused, problem_of
from broker.api.reading import Read, TaskReader
from broker.submission import Accepted, Duplicate, Outcome, Replaced, Submission
from broker.submitter import Submitter
from wheel_timer.errors import Overloaded, TooLarge, Unavailable, WheelTimerError

PART_LINES: Final = 1000
PART_BYTES: Final = 1024 * 1024
PARTS_MAX: Final = 2
ERRORS_MAX: Final = 1000
# A full queue is no error of a stream: it waits, and its client with it.
PATIENCE_S: Final = 10.0
_QUEUE_LOOK_S: Final = 0.02


class LineError(Struct):
    """A line that was refused, counting from 1."""

    line: int
    error: Annotated[
        dict[str, Any], Meta(extra_json_schema={"$ref": "#/components/schemas/Problem"})
    ]


class LinesOut(Struct):
    """
    What became of the lines (blank ones count as lines only). errors: of the first 1,000 refused.
    committed_lines: everything up to this line has its outcome; all of them at the end.
    """

    lines: int = 0
    accepted: int = 0
    duplicates: int = 0
    rejected: int = 0
    committed_lines: int = 0
    errors: list[LineError] = []


class _Part:
    """Some lines in a row and what was read from them. last_line: counting blank ones too."""

    def __init__(self, numbers: list[int], reads: list[Read], last_line: int) -> None:
        self.numbers = numbers
        self.reads = reads
        self.last_line = last_line
        self.outcomes: asyncio.Task[list[Outcome]] | None = None

    def submissions(self) -> list[Submission]:
        return [read for read in self.reads if isinstance(read, Submission)]


async def submit_lines(context: Context, request: Request) -> Response:
    """Store the body's tasks as they arrive; answer when the last has its outcome."""
    upload = _Upload(context, request)
    try:
        await upload.run(request)
    except (WheelTimerError, Refused) as error:
        await upload.settle_all()
        problem = problem_of(error)
        so_far = {"committed_lines": upload.out.committed_lines}
        raise Refused(problem._replace(extra=dict(problem.extra) | so_far)) from error
    except ClientGone:
        await upload.settle_all()
        raise
    return json_answer(upload.out)


class _Upload:
    """One body on its way through."""

    def __init__(self, context: Context, request: Request) -> None:
        self.out = LinesOut()
        self._context = context
        self._reader = TaskReader(context, request)
        self._lines: list[bytes] = []
        self._numbers: list[int] = []
        self._bytes = 0
        self._parts: deque[_Part] = deque()

    async def run(self, request: Request) -> None:
        """Everything from the first byte to the last outcome."""
        line_bytes_max = self._context.bodies.limit_bytes
        rest: list[bytes] = []
        rest_bytes = 0
        async for piece in self._context.bodies.stream(request):
            # A list, because a long line that is put together anew with each piece is quadratic.
            first, *others = piece.split(b"\n")
            rest.append(first)
            rest_bytes += len(first)
            if others:
                last = others.pop()
                for line in (b"".join(rest), *others):
                    self._add(line)
                    if len(self._lines) >= PART_LINES or self._bytes >= PART_BYTES:
                        await self._send()
                rest = [last]
                rest_bytes = len(last)
            if rest_bytes > line_bytes_max:
                await self._send()
                raise TooLarge(f"a line has at most {line_bytes_max} bytes (MAX_REQUEST)")
            # A slow client's lines do not wait for company while the database has nothing to do.
            if self._lines and len(self._parts) < PARTS_MAX:
                await self._send()
            await asyncio.sleep(0)
        if rest_bytes:
            self._add(b"".join(rest))
        await self._send()
        while self._parts:
            await self._settle_first()
        self.out.committed_lines = self.out.lines

    async def settle_all(self) -> None:
        """After an error: count what was on its way, and let nothing go on behind the answer."""
        with suppress(WheelTimerError):
            while self._parts:
                await self._settle_first()

    async def _wait_for_all(self) -> None:
        """A part broke: what was sent after it may be there or not, and counts for nothing."""
        going = [part.outcomes for part in self._parts if part.outcomes is not None]
        await asyncio.gather(*going, return_exceptions=True)
        self._parts.clear()

    def _add(self, line: bytes) -> None:
        self.out.lines += 1
        if line and not line.isspace():
            self._lines.append(line)
            self._numbers.append(self.out.lines)
            self._bytes += len(line)

    async def _send(self) -> None:
        """Hand the lines at hand to the submitter, as soon as there is room for a part."""
        if not self._lines:
            return
        reads = await self._reader.read(self._lines)
        part = _Part(self._numbers, reads, self.out.lines)
        self._lines, self._numbers, self._bytes = [], [], 0
        while len(self._parts) >= PARTS_MAX:
            await self._settle_first()
        part.outcomes = asyncio.create_task(
            _submit_patiently(self._context.submitter, part.submissions())
        )
        self._parts.append(part)

    async def _settle_first(self) -> None:
        """Count the oldest part's outcomes. Raises the first that is no outcome at all."""
        part = self._parts.popleft()
        assert part.outcomes is not None
        try:
            stored = iter(await part.outcomes)
        except WheelTimerError:
            await self._wait_for_all()
            raise
        now_ms = self._context.clock.now_ms()
        for number, read in zip(part.numbers, part.reads, strict=True):
            found = next(stored) if isinstance(read, Submission) else read
            if isinstance(found, Unavailable | Overloaded):
                await self._wait_for_all()
                raise found
            if isinstance(found, Accepted):
                self.out.accepted += 1
            elif isinstance(found, Replaced):
                self.out.accepted += found.is_revived
                self.out.duplicates += not found.is_revived
            elif isinstance(found, Duplicate):
                assert isinstance(read, Submission)
                existing = kept(read, found, now_ms)
                if isinstance(existing, Refused):
                    self._reject(number, existing)
                else:
                    self.out.duplicates += 1
            else:
                self._reject(number, found)
            self.out.committed_lines = number
        self.out.committed_lines = part.last_line

    def _reject(self, number: int, error: WheelTimerError | Refused) -> None:
        self.out.rejected += 1
        problem = error_of(error, "#")
        if len(self.out.errors) < ERRORS_MAX:
            self.out.errors.append(LineError(number, problem))


async def _submit_patiently(
    submitter: Submitter, submissions: Sequence[Submission]
) -> list[Outcome]:
    """Submit; where the queue is full, wait for room. Raises Overloaded when none comes."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + PATIENCE_S
    while True:
        try:
            return await submitter.submit(submissions)
        except Overloaded as error:
            if submitter.is_stopping or loop.time() > until_s:
                raise counted(error, len(submissions)) from None
            await asyncio.sleep(_QUEUE_LOOK_S)
