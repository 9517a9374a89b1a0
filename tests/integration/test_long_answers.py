"""Answers that are longer than anybody reads: what they can cost, and what still counts of them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import pytest_asyncio

from broker.gate import DROPS_FREE, DROPS_PER_S
from broker.guard import RECEIVE_BYTES, Guard
from tests.fix_delivery import Delivery
from tests.fix_endpoint import Answer, Endpoint
from tests.integration.test_delivery_http import Caller, call

__all__ = ["call"]

TEN_MB = 10_000_000


class Announcer:
    """Announces TEN_MB under a status, sends so much of it, and then nothing more."""

    def __init__(self) -> None:
        self.status = 200
        self.headers = b""
        self.sent = b""
        self.hung_up = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = b"HTTP/1.1 %d -\r\ncontent-length: %d\r\n" % (self.status, TEN_MB)
        writer.write(head + self.headers + b"\r\n" + self.sent)
        with suppress(ConnectionError):
            # Hung up in the middle, as it should be.
            await reader.read()
        self.hung_up.set()
        writer.close()


@pytest_asyncio.fixture
async def announcer() -> AsyncIterator[tuple[str, Announcer]]:
    """Its URL and itself."""
    announcer = Announcer()
    server = await asyncio.start_server(announcer.serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/", announcer


async def test_a_long_answer_of_success_is_not_waited_for(
    call: Caller, announcer: tuple[str, Announcer]
) -> None:
    url, receiver = announcer
    answer = await call(url)
    assert (answer.status, answer.error_class) == (200, None)
    await receiver.hung_up.wait()


async def test_its_headers_count(call: Caller, announcer: tuple[str, Announcer]) -> None:
    url, receiver = announcer
    receiver.headers = b"wheel-timer-release: 60\r\n"
    assert (await call(url)).release == "60"


async def test_of_a_long_failure_the_excerpt_is_read_and_no_more(
    call: Caller, announcer: tuple[str, Announcer]
) -> None:
    url, receiver = announcer
    receiver.status, receiver.sent = 500, b"x" * 300
    answer = await call(url)
    assert (answer.status, answer.excerpt) == (500, "x" * 256)
    await receiver.hung_up.wait()


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_kernel_takes_little_that_nobody_reads(family: socket.AddressFamily) -> None:
    address = ("127.0.0.1", 9, 0, 0) if family == socket.AF_INET else ("::1", 9, 0, 0)
    dialled = (family, socket.SOCK_STREAM, 0, "", address)
    with Guard((), (), is_keyless=True).socket_for(dialled) as made:
        # Linux keeps as much again for its own books.
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= 2 * RECEIVE_BYTES


async def test_an_endpoint_that_answers_so_is_called_at_a_pace(
    delivery: Delivery, endpoint: Endpoint
) -> None:
    endpoint.answer = Answer(fault="flood")
    await delivery.configure(callback_url=endpoint.url, max_concurrency=4)
    tasks = await delivery.submit(100)
    calls = await endpoint.wait_for(100)
    # What had started before so many were dropped is beyond the pace, and so is a batch.
    paced = 100 - 2 * DROPS_FREE - 4 - DROPS_PER_S / 10
    assert calls[-1].arrival_ns - calls[0].arrival_ns > 0.9 * paced / DROPS_PER_S * 1e9
    assert await delivery.settled(tasks) == ["finished"] * 100
