"""Timers to load: encoded before anything is measured, sent as batches of 10,000."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from typing import Final

from tests.bench.product import Product
from tests.bench.wire import Load, request

BIZ_TYPE: Final = "bench"
BATCH: Final = 10_000
CONCURRENT: Final = 4
# 115 bytes with its braces: an order's worth.
BIZ_DATA: Final = {
    "order_id": "20270115-000000042",
    "shop": "cn-east-17",
    "amount": "129.90",
    "currency": "CNY",
    "attempt_reason": "unpaid",
}


def timer(start_time_ms: int, biz_type: str = BIZ_TYPE) -> dict[str, object]:
    """A task as JSON objects."""
    return {"biz_type": biz_type, "start_time": start_time_ms / 1000, "biz_data": BIZ_DATA}


def single(start_time_ms: int) -> bytes:
    """A request that submits one timer."""
    return request("POST", "/v1/tasks", json.dumps(timer(start_time_ms)).encode())


def batch(start_times_ms: Iterable[int], biz_type: str = BIZ_TYPE) -> bytes:
    """A request that submits them all."""
    tasks = [timer(moment, biz_type) for moment in start_times_ms]
    body = json.dumps({"tasks": tasks}).encode()
    return request("POST", "/v1/tasks/batch", body)


def ndjson(start_times_ms: Iterable[int]) -> bytes:
    """The same as lines."""
    body = b"\n".join(json.dumps(timer(moment)).encode() for moment in start_times_ms)
    return request("POST", "/v1/tasks/batch", body, "application/x-ndjson")


def batches(start_times_ms: Sequence[int], biz_type: str = BIZ_TYPE) -> list[bytes]:
    """Requests of at most BATCH timers each."""
    return [
        batch(start_times_ms[first : first + BATCH], biz_type)
        for first in range(0, len(start_times_ms), BATCH)
    ]


async def send(product: Product, wires: Sequence[bytes]) -> None:
    """Send batches, CONCURRENT at a time; every timer of them must be accepted."""
    waiting = list(reversed(wires))
    async with Load(product.port, CONCURRENT) as load:

        async def work() -> None:
            while waiting:
                answer = await load.call(waiting.pop())
                assert answer.status == 200, answer
                assert b'"rejected":0' in answer.body[:200], answer.body[:500]

        await asyncio.gather(*[work() for _ in range(CONCURRENT)])
