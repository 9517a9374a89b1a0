"""
100 healthy biz_types beside one whose endpoint is hostile, with 100,000 tasks due: what they feel.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from tests.bench import timers
from tests.bench.figure import Row, lateness
from tests.bench.product import Product
from tests.bench.sink import Arrival, Sink
from wheel_timer.cli.machine import free_ports

AHEAD_S: Final = 4
HEALTHY: Final = 100
PER_S: Final = 2
FOR_S: Final = 10
DUE: Final = 100_000
TIMEOUT_S: Final = 10
P99_RATIO_MAX: Final = 1.5
DRIP_EACH_S: Final = 5.0

Answers = Callable[[asyncio.StreamWriter], Awaitable[None]]


async def measure_hanging() -> list[Row]:
    """Beside one that takes every call and says nothing."""
    return [await _beside("hangs", _say_nothing)]


async def measure_hostile() -> list[Row]:
    """Beside one that answers a byte each 5 s, endless headers, 10 MB, or not at all."""
    return [
        await _beside("answers a byte each 5 s", _drip),
        await _beside("sends endless headers", _send_headers),
        await _beside("answers 10 MB", _send_much),
        await _beside("refuses connections", None),
    ]


async def _beside(what: str, answers: Answers | None) -> Row:
    """Two products, one of them with the endpoint that does this; measured in turns."""
    names = [f"healthy-{index}" for index in range(HEALTHY)]
    without_ms: list[float] = []
    beside_ms: list[float] = []
    async with Sink() as sink, endpoint(answers) as url, Product() as calm, Product() as troubled:
        for product in (calm, troubled):
            for name in names:
                await product.configure(name, callback_url=sink.url)
        await troubled.configure("hostile", callback_url=url, timeout=TIMEOUT_S)
        due_ms = (int(time.time()) + 2 * AHEAD_S) * 1000
        await timers.send(troubled, timers.batches([due_ms] * DUE, "hostile"))
        for _ in range(2):
            without_ms += await _late_ms(calm, sink, names)
            beside_ms += await _late_ms(troubled, sink, names)
    without, beside = lateness(without_ms), lateness(beside_ms)
    ratio = beside.p99 / without.p99
    return Row(
        f"{HEALTHY} biz_types at {PER_S}/s beside one that {what}, with {DUE:,} due: p99",
        f"{P99_RATIO_MAX} x of without",
        f"{beside.p99:.1f} ms, {ratio:.2f} x of {without.p99:.1f}, early {beside.early}",
        ratio <= P99_RATIO_MAX and not beside.early,
        {"p99_ms": beside.p99, "without_p99_ms": without.p99, "ratio": ratio},
    )


async def _say_nothing(_: asyncio.StreamWriter) -> None:
    pass


async def _drip(writer: asyncio.StreamWriter) -> None:
    for byte in b"HTTP/1.1 200 OK\r\n":
        writer.write(bytes([byte]))
        await writer.drain()
        await asyncio.sleep(DRIP_EACH_S)


async def _send_headers(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\n")
    while True:
        writer.write(b"x-more: and more\r\n" * 64)
        await writer.drain()


async def _send_much(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10000000\r\n\r\n")
    for _ in range(1_000):
        writer.write(b"x" * 10_000)
        await writer.drain()


@asynccontextmanager
async def endpoint(answers: Answers | None) -> AsyncIterator[str]:
    """The URL of an endpoint that takes every connection and answers so; None: nobody listens."""
    if answers is None:
        (port,) = free_ports(1)
        yield f"http://127.0.0.1:{port}/callback"
        return
    answering: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer: asyncio.Task[None] | None = None
        with suppress(ConnectionError):
            while await reader.read(65_536):
                if answer is None:
                    answer = asyncio.create_task(_answer(answers, writer))
                    answering.add(answer)
                    answer.add_done_callback(answering.discard)
        if answer is not None:
            answer.cancel()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, backlog=1024)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/callback"
    finally:
        server.close()
        for answer in answering:
            answer.cancel()


async def _answer(answers: Answers, writer: asyncio.StreamWriter) -> None:
    # Who is answered so goes away in the middle.
    with suppress(ConnectionError):
        await answers(writer)


async def _late_ms(product: Product, sink: Sink, names: Sequence[str]) -> list[float]:
    """The lateness of PER_S tasks a second of each name for FOR_S seconds, at random moments."""
    await sink.reset()
    dice = random.Random(3)
    first_ms = (int(time.time()) + 2 * AHEAD_S) * 1000
    count = PER_S * FOR_S
    wires = [
        timers.batch([first_ms + dice.randrange(FOR_S * 1000) for _ in range(count)], name)
        for name in names
    ]
    await timers.send(product, wires)
    assert time.time() * 1000 < first_ms - 1_500, "too late to be a test of the hand"
    await sink.wait(count * len(names), 2 * AHEAD_S + FOR_S + 30)
    arrivals: list[Arrival] = await sink.records()
    assert len({arrival.task_id for arrival in arrivals}) == count * len(names), len(arrivals)
    return [arrival.late_ms for arrival in arrivals if arrival.attempt == 1]
