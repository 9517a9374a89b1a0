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
    BizTypeInUse,
    BizTypeUnknown,
    InvalidRequest,
    KeyExists,
    NotFound,
    StaleVersion,
    TaskSettled,
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


async def test_changes_of_mind(timers: AsyncClient) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)
    first = await timers.submit("orders", biz_id="1", delay=3600)
    moved = await timers.reschedule("orders", "1", start_time=at, biz_data={"n": 2}, max_age=60)
    assert (moved.task_id, moved.start_time, moved.biz_data) == (first.task_id, at, {"n": 2})
    assert (await timers.reschedule(first.task_id, max_age=None)).max_age is None
    cancelled = await timers.cancel(first.task_id)
    assert (cancelled.status, cancelled.is_settled) == ("cancelled", True)
    assert (await timers.cancel("orders", "1")).status == "cancelled"
    with pytest.raises(TaskSettled) as caught:
        await timers.reschedule(first.task_id, delay=1)
    assert caught.value.task is not None
    assert caught.value.task.status == "cancelled"
    again = await timers.replay("orders", "1")
    assert (again.task_id, again.life) == (first.task_id, 2)
    assert (await timers.run_now(first.task_id)).start_time <= datetime.now(UTC)


async def test_lists_go_over_their_pages(timers: AsyncClient) -> None:
    for n in range(7):
        await timers.submit("orders", biz_id=f"a-{n}", delay=60 + n)
    await timers.submit("orders", biz_id="b", delay=60)
    await timers.submit("orders", biz_id="far", delay=86_400 * 30)
    found = [task.biz_id async for task in timers.list(biz_type="orders", page_size=3)]
    assert sorted(str(biz_id) for biz_id in found) == [*(f"a-{n}" for n in range(7)), "b"]
    prefixed = timers.list(biz_type="orders", biz_id_prefix="a-", status="pending")
    assert len([task async for task in prefixed]) == 7
    now = datetime.now(UTC)
    later = timers.list(start_from=now + timedelta(days=29), start_to=now + timedelta(days=31))
    assert [task.biz_id async for task in later] == ["far"]
    assert [task async for task in timers.list(status="failed")] == []


async def test_biz_types_change_and_go(timers: AsyncClient) -> None:
    made = await timers.biz.put("debits", callback_url="http://127.0.0.1:9/", timeout=3)
    patched = await timers.biz.patch("debits", version=made.version, timeout=None, priority=9)
    assert (patched.timeout, patched.priority) == (10.0, 9)
    assert (await timers.biz.pause("debits")).paused
    assert not (await timers.biz.resume("debits")).paused
    rotated = await timers.biz.rotate_secret("debits", grace=timedelta(minutes=5))
    assert isinstance(rotated.secret, str)
    assert rotated.secret.startswith("whsec_")
    assert rotated.secret not in repr(rotated)
    versions = [one.version async for one in timers.biz.history("debits", page_size=2)]
    assert versions == sorted(versions, reverse=True)
    assert len(versions) == 5
    assert (await timers.biz.stats("debits"))["biz_type"] == "debits"
    assert (await timers.biz.test("debits"))["error_class"] in ("refused", "connect")
    await timers.submit("debits", biz_id="1", delay=3600)
    with pytest.raises(BizTypeInUse):
        await timers.biz.delete("debits")
    purging = await timers.biz.purge("debits")
    assert (purging.action, purging.state) == ("purge", "running")
    deleting = await timers.biz.delete("debits", purge=True)
    assert deleting is not None
    assert deleting.action == "purge"
    with pytest.raises(NotFound):
        await timers.biz.get("debits")
    await timers.biz.put("empty", callback_url="http://127.0.0.1:9/")
    assert await timers.biz.delete("empty") is None


async def test_operations(timers: AsyncClient) -> None:
    """That the daemon does them is tested with it: here they are asked for, seen, and stopped."""
    for n in range(3):
        await timers.submit("orders", biz_id=str(n), delay=3600)
    meant = await timers.operations.dry_run("cancel", biz_type="orders")
    assert (meant.matched, meant.complete, len(meant.sample)) == (3, True, 3)
    with pytest.raises(InvalidRequest):
        await timers.operations.start("cancel")
    started = await timers.operations.start(
        "shift",
        delay=timedelta(hours=1),
        rate=10.0,
        biz_type="orders",
        start_from=datetime.now(UTC),
    )
    assert (started.action, started.state, started.set) == ("shift", "running", {"delay": 3600.0})
    everything = await timers.operations.start("run", all=True)
    listed = [one.operation_id async for one in timers.operations.list(page_size=1)]
    assert set(listed) == {started.operation_id, everything.operation_id}
    assert (await timers.operations.stop(started.operation_id)).state == "stopped"
    assert (await timers.operations.get(started.operation_id)).state == "stopped"
