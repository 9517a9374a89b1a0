"""One broken endpoint, with much to do, beside a healthy one: broker/lane.py, broker/gate.py."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
import pytest_asyncio

from tests.fix_delivery import Delivery
from tests.fix_endpoint import Answer, Endpoint

LATE_MS_MAX: Final = 1_000


@pytest_asyncio.fixture
async def broken() -> AsyncIterator[Endpoint]:
    """A second endpoint, to be broken by the test."""
    serving = Endpoint()
    await serving.start()
    yield serving
    await serving.stop()


@pytest.mark.timing
@pytest.mark.parametrize(
    "fault",
    [
        "silence",
        "trickle",
        "endless-headers",
        "endless-hints",
        "flood",
        "reset",
        "garbage",
        "refused",
    ],
)
async def test_a_broken_endpoint_keeps_no_healthy_biz_type_waiting(
    delivery: Delivery, endpoint: Endpoint, broken: Endpoint, fault: Any
) -> None:
    broken.answer = Answer(fault=None if fault == "refused" else fault)
    await delivery.configure("broken", callback_url=broken.url, timeout=2, max_concurrency=16)
    for name in ("a", "b", "c"):
        await delivery.configure(name, callback_url=endpoint.url)
    if fault == "refused":
        await broken.stop()
    await delivery.submit(1_000, biz_type="broken")
    due_ms = delivery.clock.now_ms() + 400
    for name in ("a", "b", "c"):
        await delivery.submit(20, in_ms=400, biz_type=name)
    calls = await endpoint.wait_for(60)
    assert max(call.arrival_ns for call in calls) / 1e6 - due_ms < LATE_MS_MAX
