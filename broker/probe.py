"""
A test call: one callback now, by the very code that makes the real ones (attempt, transport, guard,
signature), and everything that can be told of it. Nothing of it is stored or tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Final, NamedTuple

import httpx

from broker.attempt import EXCERPT_BYTES_MAX, attempt, cleaned
from broker.deadlines import Deadlines
from broker.outcome import Answer, Outcome, decide
from broker.terms import TermsOf
from broker.transport import AnswerBody, CallbackRequest, Field, open_transport
from wheel_timer.biz import BizType
from wheel_timer.clock import Clock
from wheel_timer.errors import Overloaded
from wheel_timer.monotonic import monotonic_s
from wheel_timer.settings import Settings
from wheel_timer.task import Claim

# Somebody waits for the answer, and each holds a connection of ours: less than a callback may take.
TIMEOUT_MS_MAX: Final = 30_000
AT_ONCE_MAX: Final = 16
ANSWER_HEADERS_MAX: Final = 64
# So that a receiver can tell it from the real thing. Nobody else can send a header of this prefix.
MARK: Final[Field] = ("wheel-timer-test", "true")


class Probed(NamedTuple):
    """
    What became of a test call.

    head_ms: until the answer's headers were there; None where they never were. outcome: what would
    have become of a task by this answer.
    """

    method: str
    url: str
    fields: Sequence[Field]
    body: bytes
    answer: Answer
    answer_headers: Sequence[Field]
    excerpt: str
    remote_address: str | None
    started_ms: float
    head_ms: int | None
    duration_ms: int
    timeout_ms: int
    outcome: Outcome


class Prober:
    """Makes test calls, AT_ONCE_MAX at once in this process."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._under_way = 0

    async def call(self, biz: BizType, claim: Claim) -> Probed:
        """Call as for `claim`. Raises Overloaded where too many are under way."""
        if self._under_way >= AT_ONCE_MAX:
            raise Overloaded(f"{AT_ONCE_MAX} test calls are under way here")
        self._under_way += 1
        try:
            # A task of its own: the deadline cancels the task that it was set in.
            return await asyncio.create_task(self._call(biz, claim))
        finally:
            self._under_way -= 1

    async def _call(self, biz: BizType, claim: Claim) -> Probed:
        terms = TermsOf(biz).of(claim.callback, claim.retry)
        target = terms.target
        timeout_ms = min(target.timeout_ms, TIMEOUT_MS_MAX)
        target = target._replace(fields=(*target.fields, MARK), timeout_ms=timeout_ms)
        watched = _Watched(open_transport(self._settings))
        started_ms = self._clock.now_ms()
        began_s = monotonic_s()
        try:
            answer = await attempt(
                watched, Deadlines(), claim, terms._replace(target=target), started_ms, began_s
            )
        finally:
            await watched.aclose()
        return Probed(
            method=target.method,
            url=str(target.url),
            fields=watched.fields,
            body=claim.biz_data or b"",
            answer=answer,
            answer_headers=watched.answer_headers,
            excerpt=watched.excerpt(),
            remote_address=watched.remote_address or answer.remote_address,
            started_ms=started_ms,
            head_ms=watched.head_ms,
            duration_ms=round((monotonic_s() - began_s) * 1000),
            timeout_ms=timeout_ms,
            outcome=decide(answer, claim, terms.policy, self._clock.now_ms()),
        )


class _Watched:
    """A transport for one call, which remembers what went over it."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self._began_s = monotonic_s()
        self._body: _Told | None = None
        self.fields: Sequence[Field] = ()
        self.answer_headers: Sequence[Field] = ()
        self.remote_address: str | None = None
        self.head_ms: int | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert isinstance(request, CallbackRequest)
        self.fields = request.fields
        self._began_s = monotonic_s()
        response = await self._inner.handle_async_request(request)
        self.head_ms = round((monotonic_s() - self._began_s) * 1000)
        assert isinstance(response.stream, AnswerBody)
        self.remote_address = response.stream.remote_address
        lines = response.headers.multi_items()[:ANSWER_HEADERS_MAX]
        self.answer_headers = [(cleaned(name), cleaned(value)) for name, value in lines]
        self._body = _Told(response.stream)
        response.stream = self._body
        return response

    def excerpt(self) -> str:
        """The beginning of the answer's body."""
        return "" if self._body is None else cleaned(self._body.head.decode("utf-8", "replace"))

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Told(AnswerBody):
    """
    An answer's body that keeps its beginning as it is read. Never taken for read already, or for
    too long: who tries an endpoint wants to see what it says.
    """

    def __init__(self, inner: AnswerBody) -> None:
        self._inner = inner
        self.head = b""

    @property
    def is_read(self) -> bool:
        return False

    @property
    def length(self) -> int:
        return 0

    @property
    def remote_address(self) -> str | None:
        return self._inner.remote_address

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            self.head += chunk[: EXCERPT_BYTES_MAX - len(self.head)]
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()
