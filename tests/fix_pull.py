"""Workers of a biz_type that is pulled, by HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

import httpx
import pytest_asyncio

from broker.api.context import Context

Task = dict[str, Any]
VERBS: Final = ("finish", "release", "bury", "touch")
TTR_S: Final = 30


@pytest_asyncio.fixture
async def jobs(context: Context, client: httpx.AsyncClient) -> AsyncIterator[str]:
    """A biz_type that is pulled, and a broker that serves its workers."""
    body = {"delivery": "pull", "max_concurrency": 1000}
    assert (await client.put("/v1/biz/jobs", json=body)).status_code == 201
    pulse = asyncio.create_task(context.clock.run())
    context.clock.on_biz_version(context.registry.pulse)
    await context.pull.start()
    yield "jobs"
    await context.pull.stop()
    pulse.cancel()
    await asyncio.gather(pulse, return_exceptions=True)


async def submitted(client: httpx.AsyncClient, **fields: Any) -> str:
    body = {"biz_type": "jobs", "delay": 0, "biz_data": {"n": 1}} | fields
    answer = await client.post("/v1/tasks", json=body)
    assert answer.status_code == 201, answer.text
    task_id: str = answer.json()["task_id"]
    return task_id


async def reserved(client: httpx.AsyncClient, **given: Any) -> list[Task]:
    body = {"wait": 5, "ttr": TTR_S} | given
    answer = await client.post("/v1/biz/jobs/reserve", json=body, timeout=40)
    assert answer.status_code == 200, answer.text
    tasks: list[Task] = answer.json()["tasks"]
    return tasks


async def said(client: httpx.AsyncClient, verb: str, task: Task, **more: Any) -> httpx.Response:
    body = {"claim": task["claim"]} | more
    return await client.post(f"/v1/tasks/{task['task_id']}/{verb}", json=body)


async def shown(client: httpx.AsyncClient, task_id: str) -> Task:
    task: Task = (await client.get(f"/v1/tasks/{task_id}")).json()
    return task
