"""broker/resolver.py: name servers that are slow, silent or wrong."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Iterator
from threading import Event
from typing import Any, Final

import pytest
from aiohttp.abc import ResolveResult

from broker import resolver as module
from broker.resolver import THREADS, Resolver
from tests.fix_sessions import until

SILENT: Final = 3 * THREADS


class NameServer:
    """Names that begin with `silent` are not answered before `speak`."""

    def __init__(self) -> None:
        self.speak = Event()
        self.asked: Counter[str] = Counter()

    def getaddrinfo(self, host: str, port: int, *_: Any, **__: Any) -> list[tuple[Any, ...]]:
        self.asked[host] += 1
        if host.startswith("silent"):
            self.speak.wait(30)
        if host.startswith("unknown"):
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", port))]

    async def are_all_busy(self) -> bool:
        """Whether every thread for names that are not known is in use."""
        return self.asked.total() > THREADS


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    server = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", server.getaddrinfo)
    monkeypatch.setattr(module, "LOOKUP_S", 0.3)
    yield server
    server.speak.set()


async def test_names_that_do_not_answer_keep_no_known_name_waiting(
    names: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver = Resolver()
    assert (await resolver.resolve("neighbour", 443))[0]["host"] == "192.0.2.1"
    silent = [asyncio.create_task(resolver.resolve(f"silent-{n}")) for n in range(SILENT)]
    await until(names.are_all_busy)
    # Through all of it, and with all threads for new names in use for good.
    for _ in range(5):
        assert (await resolver.resolve("neighbour", 443))[0]["port"] == 443
    ends = await asyncio.gather(*silent, return_exceptions=True)
    assert {str(end) for end in ends} == {"[Errno 0] no answer within 0.3 s"}
    assert await resolver.resolve("neighbour", 443)
    # What had no thread by then was never asked for: threads are bounded.
    assert names.asked.total() == 7 + THREADS
    with pytest.raises(OSError, match="no answer"):
        await resolver.resolve("new")
    names.speak.set()
    monkeypatch.setattr(module, "LOOKUP_S", 5.0)
    assert await resolver.resolve("new")


async def test_a_name_that_was_quick_once_and_is_silent_now_takes_one_thread_of_the_quick(
    names: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolver = Resolver()
    names.speak.set()
    await resolver.resolve("silent")
    await resolver.resolve("neighbour")
    names.speak.clear()
    for _ in range(THREADS + 2):
        monkeypatch.setattr(module, "LOOKUP_S", 0.005)
        with pytest.raises(OSError, match="no answer"):
            await resolver.resolve("silent")
    monkeypatch.setattr(module, "LOOKUP_S", 5.0)
    assert await resolver.resolve("neighbour")


async def test_names_of_one_domain_that_fall_silent_together_leave_room_to_the_quick(
    names: NameServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOKUP_S", 5.0)
    resolver = Resolver()
    many = [f"silent-{n}" for n in range(THREADS + 8)]

    async def fall_silent(count: int) -> list[asyncio.Task[list[ResolveResult]]]:
        names.speak.set()
        for name in (*many[:count], "neighbour"):
            # The first makes it a quick one.
            await resolver.resolve(name)
            await resolver.resolve(name)
        names.speak.clear()
        before = names.asked.total()
        silent = [asyncio.create_task(resolver.resolve(name)) for name in many[:count]]

        async def have_their_threads() -> bool:
            return names.asked.total() - before == min(count, THREADS)

        await until(have_their_threads)
        return silent

    async def speak(silent: list[asyncio.Task[list[ResolveResult]]]) -> None:
        names.speak.set()
        await asyncio.gather(*silent)

    silent = await fall_silent(len(many))
    assert await resolver.resolve("neighbour")
    assert not any(task.done() for task in silent)
    await speak(silent)
    # There is an end to that; and who was late has left neither more nor less room than there was.
    monkeypatch.setattr(module, "LATE_MAX", 0)
    silent = await fall_silent(THREADS - 1)
    assert await resolver.resolve("neighbour")
    await speak(silent)
    silent = await fall_silent(THREADS)
    monkeypatch.setattr(module, "LOOKUP_S", 0.1)
    with pytest.raises(OSError, match="no answer"):
        await resolver.resolve("neighbour")
    await speak(silent)


async def test_what_is_no_name_says_so_at_once_and_keeps_no_thread() -> None:
    resolver = Resolver()
    for _ in range(THREADS + 1):
        with pytest.raises(OSError, match="is not a name"):
            await resolver.resolve("x" * 64)


async def test_a_name_that_there_is_not_says_so(names: NameServer) -> None:
    with pytest.raises(socket.gaierror, match="not known"):
        await Resolver().resolve("unknown")
