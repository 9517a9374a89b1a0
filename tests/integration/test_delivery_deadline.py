"""The deadline of a call counts from where its lease was looked at, however busy the loop is."""

from __future__ import annotations

import asyncio
import time

import msgspec

from broker.attempt import HELD_UP, attempt
from broker.deadlines import TICK_S, Deadlines
from broker.outcome import Answer as Outcome
from broker.terms import TermsOf
from tests.fix_endpoint import Answer, Endpoint
from tests.integration.test_delivery_http import NOW_MS, Caller, a_claim, call
from wheel_timer.biz import BizType
from wheel_timer.monotonic import monotonic_s

__all__ = ["call"]

TIMEOUT_S = 0.8


async def begun(call: Caller, endpoint: Endpoint, ago_s: float) -> Outcome:
    """A call of TIMEOUT_S whose lease was looked at ago_s before its task's first step."""
    fields = {"biz_type": "orders", "version": 1, "callback_url": endpoint.url}
    terms = TermsOf(msgspec.convert(fields | {"timeout": TIMEOUT_S}, BizType)).of(None, None)
    started_s = monotonic_s() - ago_s
    return await attempt(call.transport, Deadlines(), a_claim(), terms, NOW_MS, started_s)


async def test_what_the_loop_needed_for_others_is_not_added(
    call: Caller, endpoint: Endpoint
) -> None:
    endpoint.answer = Answer(delay_s=5)
    began_s = monotonic_s()
    answer = await begun(call, endpoint, 0.6)
    assert answer.error_class == "timeout"
    assert monotonic_s() - began_s < 0.2 + 10 * TICK_S


async def test_a_call_that_is_begun_too_late_is_not_made(call: Caller, endpoint: Endpoint) -> None:
    assert await begun(call, endpoint, TIMEOUT_S) is HELD_UP
    assert (endpoint.connections, endpoint.received) == (0, [])


async def test_a_turn_of_the_loop_that_lasts_takes_its_time_once() -> None:
    """uvloop's clock stands still meanwhile: by it the time would be over at once."""
    deadlines, began_s, timeout_s = Deadlines(), monotonic_s(), 0.3

    async def waits() -> float:
        deadline = deadlines.begin(began_s + timeout_s)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert deadline.was_cancelled_for_it()
        finally:
            deadlines.end(deadline)
        return monotonic_s() - began_s

    asyncio.get_running_loop().call_soon(time.sleep, timeout_s / 2)
    assert timeout_s <= await asyncio.create_task(waits()) < timeout_s + 10 * TICK_S
