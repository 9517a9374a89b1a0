"""submit_rate_limit and spread: what of a biz_type is taken in, and for when."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx

from broker.api.context import Context
from tests.fix_lanes import NewCenter
from tests.fix_proxy import RedisProxy
from tests.integration.api.conftest import client_of

URL = "http://127.0.0.1:9/callback"


async def limited(client: httpx.AsyncClient, rate: float = 20, **fields: Any) -> None:
    body = {"callback_url": URL, "submit_rate_limit": rate, **fields}
    assert (await client.put("/v1/biz/orders", json=body)).status_code in (200, 201)


def a_task(biz_type: str = "orders", **fields: Any) -> dict[str, Any]:
    return {"biz_type": biz_type, "delay": 3_600, **fields}


async def test_a_submit_beyond_the_rate_is_429_and_says_when_to_come_back(
    client: httpx.AsyncClient, context: Context
) -> None:
    await limited(client, 0.5)
    assert (await client.post("/v1/tasks", json=a_task())).status_code == 201
    answer = await client.post("/v1/tasks", json=a_task())
    assert answer.status_code == 429
    assert answer.json()["type"] == "/problems/rate-limited"
    assert 1 <= int(answer.headers["retry-after"]) <= 3
    # Nobody else is kept out by it.
    await client.put("/v1/biz/free", json={"callback_url": URL})
    assert (await client.post("/v1/tasks", json=a_task("free"))).status_code == 201


async def test_of_a_batch_the_first_ones_are_stored_and_each_other_says_why(
    client: httpx.AsyncClient,
) -> None:
    await limited(client, 10)
    await client.put("/v1/biz/free", json={"callback_url": URL})
    tasks = [a_task("orders" if i % 2 else "free") for i in range(60)]
    body = (await client.post("/v1/tasks/batch", json={"tasks": tasks})).json()
    stored = ["task_id" in result for result in body["results"]]
    assert all(stored[::2])
    limited_ones = stored[1::2]
    taken = sum(limited_ones)
    assert 9 <= taken <= 11
    assert limited_ones == [True] * taken + [False] * (30 - taken)
    assert body["results"][-1]["error"]["type"] == "/problems/rate-limited"
    assert body["rejected"] == 30 - taken


async def test_lines_beyond_the_rate_are_counted_with_their_error(
    client: httpx.AsyncClient,
) -> None:
    await limited(client, 10)
    lines = b"".join(b'{"biz_type": "orders", "delay": 60}\n' for _ in range(30))
    answer = await client.post(
        "/v1/tasks/batch", content=lines, headers={"content-type": "application/x-ndjson"}
    )
    body = answer.json()
    assert 9 <= body["accepted"] <= 11
    assert body["errors"][0]["error"]["type"] == "/problems/rate-limited"


async def test_the_rate_is_that_of_all_brokers_together(
    client: httpx.AsyncClient, context: Context, new_center: NewCenter
) -> None:
    await limited(client, 50)
    began_s = time.monotonic()
    async with client_of(context, event_center=new_center()) as other:

        async def submit(http: httpx.AsyncClient) -> int:
            taken = 0
            while time.monotonic() < began_s + 1:
                taken += (await http.post("/v1/tasks", json=a_task())).status_code == 201
            return taken

        taken = sum(await asyncio.gather(*(submit(http) for http in (client, other) * 4)))
    # That of the second, and the burst of one second before it.
    assert 90 <= taken <= 101


async def test_without_redis_a_broker_takes_its_share(
    client: httpx.AsyncClient, context: Context, new_center: NewCenter, redis_proxy: RedisProxy
) -> None:
    await limited(client, 100)
    await redis_proxy.stop()
    async with client_of(context, event_center=new_center(url=redis_proxy.url)) as cut:
        first = await cut.post("/v1/tasks", json=a_task())
        await asyncio.sleep(0.1)
        then = await cut.post("/v1/tasks", json=a_task())
    assert (first.status_code, then.status_code) == (429, 201)


async def test_the_spread_of_the_biz_type_holds_where_a_task_brings_none(
    client: httpx.AsyncClient,
) -> None:
    await client.put("/v1/biz/orders", json={"callback_url": URL, "spread": 600})
    tasks = [a_task(start_time=4_000_000_000) | {"delay": None} for _ in range(40)]
    tasks += [task | {"spread": 0} for task in tasks[:5]]
    ids = [
        result["task_id"]
        for result in (await client.post("/v1/tasks/batch", json={"tasks": tasks})).json()[
            "results"
        ]
    ]
    starts_ms = [int(id_.replace("-", "")[:12], 16) for id_ in ids]
    assert all(0 <= ms - 4_000_000_000_000 < 600_000 for ms in starts_ms)
    assert len({ms // 60_000 for ms in starts_ms[:40]}) > 5
    assert set(starts_ms[40:]) == {4_000_000_000_000}
