"""
What the HTTP client alone can do: `python -m tests.bench.bare URL CALLS`, a process of its own.

Hand-built httpx.Requests into `httpx_aiohttp.AiohttpTransport` as it is, 64 in flight, nothing
else. Prints calls a second. It is what a drain rate is compared with.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Final

import aiohttp
import httpx
import uvloop
from httpx_aiohttp import AiohttpTransport

IN_FLIGHT: Final = 64
BODY: Final = b'{"order_id": "20270115-000000042", "shop": "cn-east-17", "amount": "129.90"}'


async def calls_per_s(url: str, calls: int) -> float:
    """Make so many calls; every answer must be a 200, read to its end."""
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
    transport = AiohttpTransport(client=session)
    left = calls
    target = httpx.URL(url)

    async def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            request = httpx.Request(
                "POST", target, headers=[(b"content-type", b"application/json")], content=BODY
            )
            response = await transport.handle_async_request(request)
            await response.aread()
            assert response.status_code == 200

    began_s = time.perf_counter()
    await asyncio.gather(*[work() for _ in range(IN_FLIGHT)])
    elapsed_s = time.perf_counter() - began_s
    await transport.aclose()
    return calls / elapsed_s


if __name__ == "__main__":
    print(uvloop.run(calls_per_s(sys.argv[1], int(sys.argv[2]))))
