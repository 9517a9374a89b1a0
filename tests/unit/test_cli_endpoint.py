"""The endpoint of `demo` and `listen`, over a loopback connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest

from wheel_timer.cli.endpoint import Answer, Endpoint
from wheel_timer.echo import Arrival


class Seen:
    """An endpoint that keeps what came."""

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.answer: Answer = (200, 0.0)
        self.port = 0

    def __call__(self, arrival: Arrival) -> Answer:
        self.arrivals.append(arrival)
        return self.answer


@pytest.fixture
async def seen() -> AsyncIterator[Seen]:
    handler = Seen()
    endpoint = Endpoint(handler)
    handler.port = await endpoint.start("127.0.0.1", 0)
    yield handler
    endpoint.close()


async def test_a_callback_is_taken_apart_and_answered(seen: Seen) -> None:
    async with httpx.AsyncClient() as http:
        for number in range(3):
            answer = await http.post(
                f"http://127.0.0.1:{seen.port}/hook?n={number}",
                content=b"x" * number,
                headers={"Webhook-Id": f"task-{number}"},
            )
            assert (answer.status_code, answer.content) == (200, b"")
    assert [(a.method, a.path, a.headers["webhook-id"], a.body) for a in seen.arrivals] == [
        ("POST", "/hook?n=0", "task-0", b""),
        ("POST", "/hook?n=1", "task-1", b"x"),
        ("POST", "/hook?n=2", "task-2", b"xx"),
    ]


async def test_the_status_and_the_delay_are_the_handlers(seen: Seen) -> None:
    seen.answer = (503, 0.02)
    loop = asyncio.get_running_loop()
    async with httpx.AsyncClient() as http:
        before = loop.time()
        answer = await http.post(f"http://127.0.0.1:{seen.port}/")
    assert answer.status_code == 503
    assert loop.time() - before >= 0.02


async def test_a_request_in_pieces_and_two_in_one_piece(seen: Seen) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", seen.port)
    request = b"POST / HTTP/1.1\r\nContent-Length: 2\r\n\r\nab"
    for byte in request:
        writer.write(bytes([byte]))
        await writer.drain()
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
    writer.write(request + request)
    await reader.readuntil(b"\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()
    assert [arrival.body for arrival in seen.arrivals] == [b"ab"] * 3


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"411"),
        (b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n", b"411"),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n", b"413"),
        (b"x" * 70_000, b"431"),
    ],
)
async def test_what_it_cannot_take_is_refused_and_closed(
    seen: Seen, head: bytes, status: bytes
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", seen.port)
    writer.write(head)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert answer.split(b" ")[1] == status
    assert seen.arrivals == []
