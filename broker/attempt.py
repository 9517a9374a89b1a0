"""
One attempt: a claim in, one signed HTTP request out, an Answer back. Whatever the receiver and the
network do comes back as an Answer; nothing is raised for it.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Protocol
from urllib.parse import quote

import httpx

from broker.deadlines import Deadlines
from broker.outcome import Answer, Policy
from broker.terms import Target, Terms
from broker.transport import AnswerBody, CallbackRequest, CallFailed, Field, HeldUp
from wheel_timer.signing import sign
from wheel_timer.task import Claim

# What of an answer's body is read before its connection is dropped: enough for any sensible
# answer, little enough for thousands of them at once.
BODY_BYTES_MAX: Final = 65_536
EXCERPT_BYTES_MAX: Final = 256
# Nothing was sent, and nobody but this process is the reason.
HELD_UP: Final = Answer(None, "not sent: this broker was held up", "timeout")
DEFAULT_CONTENT_TYPE: Final = "application/json"
# A biz_id's visible ASCII stays as it is; with "%" escaped, unquoting always gives the id back.
_HEADER_SAFE: Final = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) != "%")


class Transport(Protocol):
    """What an attempt needs of CallbackTransport."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send, and return as soon as the answer's headers are there. Raises CallFailed."""


async def attempt(
    transport: Transport,
    deadlines: Deadlines,
    claim: Claim,
    terms: Terms,
    now_ms: float,
    now_s: float,
) -> Answer:
    """
    Make the call of `claim` and wait for its answer, body and all.

    now_ms: the database's clock, at which the lease covers the timeout (outcome.before_call); it is
    the time signed. now_s: the same moment by `monotonic_s`. That timeout is one deadline from that
    moment on, before any DNS, to the answer's last byte, however late the loop comes to this task:
    so no call outlives its lease. Nothing is sent after it; the answer is HELD_UP then.
    """
    target = terms.target
    if target.refusal is not None:
        return Answer(None, target.refusal, "refused")
    until_s = now_s + target.timeout_ms / 1000
    request = _request(claim, target, terms.policy, now_ms, until_s)
    deadline = deadlines.begin(until_s)
    try:
        response = await transport.handle_async_request(request)
        try:
            return await _read(response)
        finally:
            await response.aclose()
    except HeldUp:
        return HELD_UP
    except CallFailed as failure:
        return Answer(
            None, failure.detail, failure.error_class, remote_address=failure.remote_address
        )
    except asyncio.CancelledError:
        if not deadline.was_cancelled_for_it():
            raise
        return Answer(None, f"no complete answer within {target.timeout_ms / 1000:g} s", "timeout")
    finally:
        deadlines.end(deadline)


def _request(
    claim: Claim, target: Target, policy: Policy, now_ms: float, until_s: float
) -> CallbackRequest:
    body = claim.biz_data or b""
    webhook_id = str(claim.task_id)
    if claim.life > 1:
        webhook_id = f"{webhook_id}-r{claim.life}"
    timestamp_s = int(now_ms / 1000)
    is_last = is_last_attempt(claim.failures, policy.retry.max_attempts)
    fields: list[Field] = [
        *target.fields,
        ("webhook-id", webhook_id),
        ("webhook-timestamp", str(timestamp_s)),
        ("wheel-timer-start-time", _rfc3339(claim.start_time_ms)),
        ("wheel-timer-attempt", str(claim.attempt)),
        ("wheel-timer-last-attempt", "true" if is_last else "false"),
        ("wheel-timer-life", str(claim.life)),
    ]
    if claim.biz_data is not None:
        fields.append(("content-type", claim.content_type or DEFAULT_CONTENT_TYPE))
    if claim.biz_id is not None:
        fields.append(("wheel-timer-biz-id", quote(claim.biz_id, safe=_HEADER_SAFE)))
    if claim.schedule_id is not None:
        fields.append(("wheel-timer-schedule-id", str(claim.schedule_id)))
    if claim.scheduled_time_ms is not None:
        fields.append(("wheel-timer-scheduled-time", _rfc3339(claim.scheduled_time_ms)))
    if claim.traceparent is not None:
        fields.append(("traceparent", claim.traceparent))
    keys = target.keys_at(now_ms)
    if keys:
        fields.append(("webhook-signature", sign(keys, webhook_id, timestamp_s, body)))
    return CallbackRequest(target.method, target.url, fields, body, target.within, until_s)


async def _read(response: httpx.Response) -> Answer:
    """Read the body up to its end or BODY_BYTES_MAX, as far as it is of use; keep an excerpt."""
    status = response.status_code
    stream = response.stream
    assert isinstance(stream, AnswerBody)
    excerpt = b""
    # One that is too long costs its connection anyhow: nothing but the excerpt is waited for.
    limit = BODY_BYTES_MAX
    if stream.length > limit:
        limit = EXCERPT_BYTES_MAX if status > 299 else 0
    if limit and (not stream.is_read or status > 299):
        size = 0
        async for chunk in stream:
            if size < EXCERPT_BYTES_MAX:
                excerpt += chunk[: EXCERPT_BYTES_MAX - size]
            size += len(chunk)
            if size >= limit:
                break
    headers = response.headers
    release = headers.get("wheel-timer-release") if status <= 299 else None
    is_dropped = not stream.is_read
    if status <= 299 and release is None:
        return Answer(status, is_dropped=is_dropped)
    return Answer(
        status,
        release=release,
        retry_after=headers.get("retry-after"),
        excerpt=cleaned(excerpt.decode("utf-8", "replace")) or None,
        remote_address=stream.remote_address,
        is_dropped=is_dropped,
    )


def is_last_attempt(failures: int, max_attempts: int) -> bool:
    """Whether a failure of the attempt after `failures` failures would be the last one."""
    return failures + 1 >= max_attempts


def cleaned(text: str) -> str:
    """Text from outside on its way to a table and a terminal: at most 256 bytes, no controls."""
    printable = "".join(c if c.isprintable() else " " for c in text).strip()
    return printable.encode()[:EXCERPT_BYTES_MAX].decode("utf-8", "ignore")


@lru_cache(maxsize=1024)
def _rfc3339(moment_ms: int) -> str:
    """UTC with milliseconds: 2027-01-15T08:00:00.000Z."""
    moment = datetime.fromtimestamp(moment_ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment_ms % 1000:03d}Z"
