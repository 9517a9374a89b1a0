"""AsyncClient against the API itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import httpx
import pytest
import pytest_asyncio

from broker.api.app import build_app
from broker.api.context import Context
from wheel_timer import AsyncClient
from wheel_timer.client import (
    BizTypeUnknown,
    InvalidRequest,
    KeyExists,
    NotFound,
    StaleVersion,
    TooLarge,
)


@pytest_asyncio.fixture
async def timers(context: Context, orders: str) -> AsyncIterator[AsyncClient]:
    """A client of the test's API; `orders` is there."""
    transport = httpx.ASGITransport(app=build_app(context))
    async with AsyncClient("http://localhost:8080", "", transport=transport) as client:
        yield client


async def test_what_was_submitted_is_there(timers: AsyncClient) -> None:
    at = datetime.now(UTC).replace(microsecond=123_000) + timedelta(hours=1)
    submitted = await timers.submit(
        "orders", biz_id="a/b..%", start_time=at, biz_data={"order": 1}, retry={"max_attempts": 3}
    )
    task = await timers.get("orders", "a/b..%")
    assert task == await timers.get(submitted.task_id)
    assert (task.status, task.start_time, task.biz_data) == ("pending", at, {"order": 1})
    assert task.retry == {"max_attempts": 3}
    assert task.waiting is not None
    assert task.waiting.reason == "scheduled"
    assert not task.is_settled


@pytest.mark.parametrize("biz_id", [".", "..", "/", "a b", "%2F", "ü"])
async def test_any_biz_id_finds_its_task(timers: AsyncClient, biz_id: str) -> None:
    submitted = await timers.submit("orders", biz_id=biz_id, delay=3600)
    assert (await timers.get("orders", biz_id)).task_id == submitted.task_id


async def test_bytes_come_back_as_they_were(timers: AsyncClient) -> None:
    submitted = await timers.submit(
        "orders", delay=60, biz_data=b"\x00\xff", content_type="application/octet-stream"
    )
    task = await timers.get(submitted.task_id)
    assert (task.biz_data, task.biz_data_base64) == (None, b"\x00\xff")
    assert submitted.biz_id == task.biz_id


async def test_a_duplicate_is_told_from_what_it_is_not(timers: AsyncClient) -> None:
    first = await timers.submit("orders", biz_id="1", delay=60, biz_data=1)
    again = await timers.submit("orders", biz_id="1", delay=60, biz_data=2)
    assert (again.task_id, again.duplicate) == (first.task_id, True)
    assert again.differs == ["biz_data"]
    with pytest.raises(KeyExists) as caught:
        await timers.submit("orders", biz_id="1", delay=60, on_duplicate="reject")
    assert caught.value.problem["task_id"] == str(first.task_id)


async def test_errors_are_typed(timers: AsyncClient) -> None:
    with pytest.raises(BizTypeUnknown):
        await timers.submit("nobody", delay=1)
    with pytest.raises(InvalidRequest) as caught:
        await timers.submit("orders", start_time=5)
    assert caught.value.errors[0].pointer == "#/start_time"
    assert caught.value.request_id
    with pytest.raises(TooLarge):
        await timers.submit("orders", delay=1, biz_data="x" * 300_000)
    with pytest.raises(NotFound):
        await timers.get(uuid4())
    with pytest.raises(NotFound):
        await timers.get("orders", "nothing")


async def test_many_are_stored_or_rejected_each_for_itself(timers: AsyncClient) -> None:
    await timers.submit("orders", biz_id="5", delay=60)
    many = await timers.submit_many(
        {"biz_type": "nobody" if n == 1_200 else "orders", "biz_id": str(n), "delay": 60}
        for n in range(1_500)
    )
    assert (many.accepted, many.duplicates, many.rejected) == (1_498, 1, 1)
    (rejected,) = many.errors
    assert rejected.position == 1_200
    assert isinstance(rejected.error, BizTypeUnknown)
    assert (await timers.get("orders", "1499")).status == "pending"


async def test_biz_types(timers: AsyncClient) -> None:
    made = await timers.biz.put(
        "debits", callback_url="http://127.0.0.1:9/", secret="whsec_" + "A" * 32, timeout=3
    )
    assert (made.biz_type, made.timeout) == ("debits", 3.0)
    assert made.secret is not None, "as a mark"
    assert await timers.biz.get("debits") == made
    with pytest.raises(StaleVersion):
        await timers.biz.put("debits", version=made.version + 1, callback_url="http://127.0.0.1:9/")
    assert {biz.biz_type async for biz in timers.biz.list(page_size=1)} == {"debits", "orders"}
    with pytest.raises(NotFound):
        await timers.biz.get("nobody")
