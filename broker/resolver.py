"""
Names of callback URLs to addresses, so that slow ones keep nobody else waiting.

The system's resolver blocks a thread for as long as a name server is silent, ten seconds and more,
and uvloop has two threads for all names. Here each lookup has one of its own, of two kinds: for
names that have answered quickly the last time, and for all others. Names that do not answer, as
many as there may be, use up the second kind alone. Those that were quick and fall silent together,
as all of one domain do, are late after QUICK_S and leave their room to the next, LATE_MAX of them
at once. No lookup takes longer than LOOKUP_S, with the time that it waits for a thread; what is
then dialled is judged by broker/guard.py.

Threads are daemons: one that waits for a name server does not hold up the end of the process.
"""

from __future__ import annotations

import asyncio
import socket
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, Final

from aiohttp.abc import AbstractResolver, ResolveResult

from wheel_timer.monotonic import monotonic_s

LOOKUP_S: Final = 5.0
QUICK_S: Final = 0.5
# Of each kind. A thread that waits costs 60 kB.
THREADS: Final = 32
LATE_MAX: Final = 256
QUICK_NAMES_MAX: Final = 10_000

Found = list[tuple[Any, ...]]


class Resolver(AbstractResolver):
    """One process' lookups, in one event loop. Its answers are kept by who asks."""

    def __init__(self) -> None:
        self._quick: OrderedDict[str, None] = OrderedDict()
        self._for_quick = asyncio.Semaphore(THREADS)
        self._for_others = asyncio.Semaphore(THREADS)
        self._late = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a name. Raises OSError."""
        free = self._for_quick if host in self._quick else self._for_others
        self._quick.pop(host, None)
        try:
            async with asyncio.timeout(LOOKUP_S):
                await free.acquire()
                began_s = monotonic_s()
                found = await _look_up(host, port, family, self._room(free))
        except TimeoutError as error:
            raise OSError(0, f"no answer within {LOOKUP_S:g} s") from error
        if monotonic_s() - began_s <= QUICK_S:
            self._quick[host] = None
            if len(self._quick) > QUICK_NAMES_MAX:
                self._quick.popitem(last=False)
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=int(address[1]),
                family=family_found,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for family_found, _, protocol, _, address in found
        ]

    def _room(self, free: asyncio.Semaphore) -> Callable[[], None]:
        """Of a thread that begins, acquired already; to be called when it has ended."""
        if free is self._for_others:
            return free.release
        is_late = False

        def is_slow() -> None:
            nonlocal is_late
            if self._late < LATE_MAX:
                self._late += 1
                is_late = True
                free.release()

        timer = asyncio.get_running_loop().call_later(QUICK_S, is_slow)

        def leave() -> None:
            timer.cancel()
            if is_late:
                self._late -= 1
            else:
                free.release()

        return leave

    async def close(self) -> None:
        """Nothing is held: a thread ends with its lookup."""


def _look_up(
    host: str, port: int, family: socket.AddressFamily, leave: Callable[[], None]
) -> asyncio.Future[Found]:
    """In a thread, which counts as in use until it ends, whoever still waits for it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Found] = loop.create_future()

    def tell(found: Found | None, error: OSError | None) -> None:
        leave()
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(found or [])

    def run() -> None:
        found: Found | None = None
        failure: OSError | None = None
        try:
            found = socket.getaddrinfo(
                host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG
            )
        except OSError as error:
            failure = error
        except UnicodeError:
            failure = OSError(0, "is not a name")
        # The loop may be closed by now.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(tell, found, failure)

    try:
        Thread(target=run, name="resolver", daemon=True).start()
    except RuntimeError:
        leave()
        raise OSError(0, "no thread to be had") from None
    return future
