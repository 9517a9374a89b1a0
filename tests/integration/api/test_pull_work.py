"""The clients' work loop over the API itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from broker.api.app import build_app
from broker.api.context import Context
from tests.fix_audits import AuditsHold
from tests.fix_pull import reserved, shown, submitted
from wheel_timer import AsyncClient
from wheel_timer.client import AsyncJob, Task


@pytest_asyncio.fixture
async def worker(context: Context, jobs: str) -> AsyncIterator[AsyncClient]:
    transport = httpx.ASGITransport(app=build_app(context))
    async with AsyncClient("http://localhost:8080", "", transport=transport) as client:
        yield client


async def test_a_loop_finishes_each_task_as_it_goes_on(
    worker: AsyncClient, client: httpx.AsyncClient, audits_hold: AuditsHold
) -> None:
    ids = [await submitted(client, biz_data={"n": n}) for n in range(3)]
    seen: list[int] = []
    work = worker.work("jobs", wait=0.5)
    async for job in work:
        seen.append(job.biz_data["n"])
        if len(seen) == 2:
            await job.bury("not this one")
        if len(seen) == 3:
            work.stop()
    assert sorted(seen) == [0, 1, 2]
    statuses = [(await shown(client, task_id))["status"] for task_id in ids]
    assert sorted(statuses) == ["failed", "finished", "finished"]
    await audits_hold()


async def test_who_leaves_the_loop_gives_the_task_back(
    worker: AsyncClient, client: httpx.AsyncClient
) -> None:
    task_id = await submitted(client)
    async for _ in worker.work("jobs"):
        break
    (task,) = await reserved(client)
    assert (task["task_id"], task["attempts"], task["failures"]) == (task_id, 2, 0)


async def test_a_client_that_closes_behind_a_loop_gives_the_task_back(
    context: Context, jobs: str, client: httpx.AsyncClient
) -> None:
    task_id = await submitted(client)
    transport = httpx.ASGITransport(app=build_app(context))
    async with AsyncClient("http://localhost:8080", "", transport=transport) as worker:
        async for _ in worker.work("jobs"):
            break
    (task,) = await reserved(client)
    assert (task["task_id"], task["attempts"], task["failures"]) == (task_id, 2, 0)


async def test_a_touch_that_comes_behind_the_report_is_no_loss(
    worker: AsyncClient, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = asyncio.Event()
    touch = AsyncJob.touch

    async def late_touch(job: AsyncJob, ttr: float) -> Task:
        await job.finish()
        try:
            return await touch(job, ttr)
        finally:
            refused.set()

    monkeypatch.setattr(AsyncJob, "touch", late_touch)
    await submitted(client)
    work = worker.work("jobs", ttr=1)
    async for job in work:
        work.stop()
        await refused.wait()
        assert job.is_reported
        assert not job.is_lost


@pytest.mark.parametrize(("on_error", "status"), [("release", "pending"), ("bury", "failed")])
async def test_a_handler_that_raises_releases_or_buries(
    on_error: Any, status: str, worker: AsyncClient, client: httpx.AsyncClient
) -> None:
    task_id = await submitted(client)
    work = worker.work("jobs", wait=0.5, on_error=on_error, error_delay=3600)

    async def handler(_job: AsyncJob) -> None:
        work.stop()
        raise ValueError("no")

    await work.run(handler)
    task = await shown(client, task_id)
    assert task["status"] == status
    assert on_error == "release" or task["last_error"] == "ValueError: no"


async def test_work_is_touched_by_itself_and_a_stop_waits_for_it(
    worker: AsyncClient, client: httpx.AsyncClient, audits_hold: AuditsHold
) -> None:
    task_id = await submitted(client)
    work = worker.work("jobs", wait=0.5, ttr=2, concurrency=3)

    async def handler(job: AsyncJob) -> None:
        work.stop()
        await asyncio.sleep(2.5)
        assert not job.is_lost

    await work.run(handler)
    task = await shown(client, task_id)
    assert (task["status"], task["attempts"]) == ("finished", 1)
    await audits_hold()
