"""Bodies: bounded while they arrive, whatever they claim to be."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Iterable

import pytest
from starlette.requests import Request
from starlette.types import Message

from broker.api import body as body_module
from broker.api.body import Bodies, ClientGone, Gunzip
from broker.api.problems import Refused
from wheel_timer.errors import Overloaded, TooLarge

LIMIT = 100_000


class Sender:
    """A client that sends its parts one by one. asked: how many were taken from it."""

    def __init__(self, parts: Iterable[bytes], *, breaks_off: bool = False) -> None:
        self._parts = iter(parts)
        self._breaks_off = breaks_off
        self.asked = 0

    async def receive(self) -> Message:
        self.asked += 1
        part = next(self._parts, None)
        if part is not None:
            return {"type": "http.request", "body": part, "more_body": True}
        if self._breaks_off:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": b"", "more_body": False}


def request(sender: Sender, **headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "headers": raw}, sender.receive)


async def test_a_body_in_parts_is_put_together() -> None:
    assert await Bodies(LIMIT).read(request(Sender([b"a", b"", b"bc"]))) == b"abc"


async def test_a_body_of_exactly_the_limit_is_taken() -> None:
    assert len(await Bodies(LIMIT).read(request(Sender([b"a" * LIMIT])))) == LIMIT


async def test_a_declared_length_beyond_the_limit_is_refused_before_a_byte_is_read() -> None:
    sender = Sender([b"a"])
    with pytest.raises(TooLarge):
        await Bodies(LIMIT).read(request(sender, content_length=str(LIMIT + 1)))
    assert sender.asked == 0


async def test_an_endless_body_is_refused_at_the_limit() -> None:
    sender = Sender(iter(lambda: b"a" * 1000, None))
    with pytest.raises(TooLarge):
        await Bodies(LIMIT).read(request(sender))
    assert sender.asked == LIMIT // 1000 + 1


async def test_one_message_beyond_the_limit_is_refused() -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": b"a" * (LIMIT + 1)}

    with pytest.raises(TooLarge):
        await Bodies(LIMIT).read(Request({"type": "http", "headers": []}, receive))


async def test_a_gzip_bomb_is_refused_at_the_limit() -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    assert len(bomb) < LIMIT
    with pytest.raises(TooLarge):
        await Bodies(LIMIT).read(request(Sender([bomb]), content_encoding="gzip"))


async def test_gzip_is_inflated_in_any_cut() -> None:
    text = bytes(range(256)) * 300
    packed = gzip.compress(text[:50_000]) + gzip.compress(text[50_000:])
    for size in (1, 7, 1000, len(packed)):
        parts = [packed[at : at + size] for at in range(0, len(packed), size)]
        got = await Bodies(LIMIT).read(request(Sender(parts), content_encoding="GZIP"))
        assert got == text


@pytest.mark.parametrize(
    "broken", [b"no gzip", gzip.compress(b"abc" * 999, mtime=0)[:-9], b"\x1f\x8b"]
)
async def test_what_is_no_gzip_is_a_400(broken: bytes) -> None:
    with pytest.raises(Refused) as raised:
        await Bodies(LIMIT).read(request(Sender([broken]), content_encoding="gzip"))
    assert raised.value.problem.code == 400


async def test_another_coding_is_a_415_that_says_what_is_taken() -> None:
    with pytest.raises(Refused) as raised:
        await Bodies(LIMIT).read(request(Sender([b"x"]), content_encoding="br"))
    assert raised.value.problem.code == 415
    assert raised.value.problem.headers == {"Accept-Encoding": "gzip"}


async def test_a_client_that_breaks_off_is_gone() -> None:
    with pytest.raises(ClientGone):
        await Bodies(LIMIT).read(request(Sender([b"a"], breaks_off=True)))


async def test_unfinished_bodies_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_module, "UNFINISHED_BYTES_MAX", 5000)
    bodies = Bodies(LIMIT)
    with pytest.raises(Overloaded):
        await bodies.read(request(Sender([b"a" * 4000, b"a" * 4000])))
    assert await bodies.read(request(Sender([b"a" * 4000]))) == b"a" * 4000


async def test_a_client_that_falls_silent_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(body_module, "IDLE_S_MAX", 0.01)
    messages = _one_part_then_silence()

    async def receive() -> Message:
        return await anext(messages)

    with pytest.raises(Refused) as raised:
        await Bodies(LIMIT).read(Request({"type": "http", "headers": []}, receive))
    assert raised.value.problem.code == 408


async def _one_part_then_silence() -> AsyncIterator[Message]:
    yield {"type": "http.request", "body": b"a", "more_body": True}
    await asyncio.Event().wait()


def test_inflating_gives_pieces_of_bounded_size() -> None:
    gunzip = Gunzip()
    sizes = [len(piece) for piece in gunzip.inflate(gzip.compress(b"\0" * 1_000_000))]
    gunzip.finish()
    assert sum(sizes) == 1_000_000
    assert max(sizes) <= 64 * 1024
