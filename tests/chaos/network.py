"""A network that fails between each pair: both ways, one way, with and without a word."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Literal

from tests.chaos.case import Case
from tests.chaos.world import World
from tests.fault.harness import Process
from tests.fix_proxy import Proxy

CONCURRENCY: Final = 64
AWAY_S: Final = 3.0
BREATH_S: Final = 1.0

Who = Literal["daemon", "broker"]
What = Literal["postgres", "redis"]
Break = Callable[[Proxy], Awaitable[None]]


def _between(who: Who, what: What, breaks: tuple[Break, ...]) -> Callable[[World], Awaitable[None]]:
    """One process, the leader where it is a daemon, and one server; one break after the other."""

    async def fault(world: World) -> None:
        process: Process = await world.led() if who == "daemon" else world.brokers[0]
        proxy = world.proxies(process)[0 if what == "postgres" else 1]
        assert proxy.connections
        for breaks_it in breaks:
            await breaks_it(proxy)
            await asyncio.sleep(AWAY_S)
            await proxy.heal()
            if breaks_it is not breaks[-1]:
                await asyncio.sleep(BREATH_S)

    return fault


async def _refuse(proxy: Proxy) -> None:
    """Nobody listens there any more."""
    await proxy.stop()


async def _swallow(proxy: Proxy) -> None:
    """A black hole, both ways."""
    proxy.deaf()


async def _swallow_requests(proxy: Proxy) -> None:
    proxy.deaf("requests")


async def _swallow_replies(proxy: Proxy) -> None:
    proxy.deaf("replies")


def _cases(who: Who, what: What) -> tuple[Case, Case]:
    return (
        Case(
            name=f"cut-{who}-{what}",
            what="reset and refused; then a black hole both ways",
            fault=_between(who, what, (_refuse, _swallow)),
            proxied=True,
            load_s=16,
            duplicates=None,
            lost_max=CONCURRENCY,
        ),
        Case(
            name=f"half-{who}-{what}",
            what="what it says is lost; then what it is answered",
            fault=_between(who, what, (_swallow_requests, _swallow_replies)),
            proxied=True,
            load_s=16,
            duplicates=None,
            lost_max=CONCURRENCY,
        ),
    )


CASES: Final = (
    *_cases("daemon", "postgres"),
    *_cases("daemon", "redis"),
    *_cases("broker", "postgres"),
    *_cases("broker", "redis"),
)
