"""A network that fails between each pair: both ways, one way, with and without a word."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Final, Literal

from tests.chaos.case import Case
from tests.chaos.load import BIZ_TYPE
from tests.chaos.world import World
from tests.fault.harness import Process
from tests.fix_proxy import Proxy
from wheel_timer.biz import Breaker

CONCURRENCY: Final = 64
AWAY_S: Final = 3.0
# Longer than the leader's lease, and than every timeout.
LONG_AWAY_S: Final = 15.0
BREATH_S: Final = 1.0
FLAPS: Final = 4
SLOW_S: Final = 0.15
SLOW_FOR_S: Final = 6.0
OPEN_S: Final = 5.0
CALL_S: Final = 1.0
ATTEMPTS: Final = """
SELECT count(*) FROM timer_attempt AS a JOIN timer_task AS t USING (task_id)
WHERE t.biz_type = 'chaos' AND a.error_class IS NOT NULL
"""

Who = Literal["daemon", "broker"]
What = Literal["postgres", "redis"]
PROGRAMS: Final[tuple[Who, ...]] = ("daemon", "broker")
Break = Callable[[Proxy], Awaitable[None]]


def _between(
    who: Who, what: What, breaks: tuple[Break, ...], away_s: float = AWAY_S
) -> Callable[[World], Awaitable[None]]:
    """One process, the leader where it is a daemon, and one server; one break after the other."""

    async def fault(world: World) -> None:
        process: Process = await world.led() if who == "daemon" else world.brokers[0]
        proxy = world.proxies(process)[0 if what == "postgres" else 1]
        assert proxy.connections
        for breaks_it in breaks:
            await breaks_it(proxy)
            await asyncio.sleep(away_s)
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


def _slow(who: Who) -> Callable[[World], Awaitable[None]]:
    """One process, the leader where it is a daemon, far away from both servers."""

    async def fault(world: World) -> None:
        process: Process = await world.led() if who == "daemon" else world.brokers[0]
        for proxy in world.proxies(process):
            assert proxy.connections
            proxy.slow(SLOW_S)
        await asyncio.sleep(SLOW_FOR_S)
        for proxy in world.proxies(process):
            await proxy.heal()

    return fault


BREAKS: Final = (_refuse, _swallow, _swallow_requests, _swallow_replies)


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


def _to_endpoint(*breaks: Break) -> Callable[[World], Awaitable[None]]:
    """All brokers and one endpoint; one break after the other."""

    async def fault(world: World) -> None:
        proxy = world.endpoint_proxy
        assert proxy.connections
        for breaks_it in breaks:
            await breaks_it(proxy)
            await asyncio.sleep(AWAY_S)
            await proxy.heal()
            if breaks_it is not breaks[-1]:
                await asyncio.sleep(BREATH_S)

    return fault


async def flap(world: World) -> None:
    """One endpoint comes and goes, faster than its retries."""
    for _ in range(FLAPS):
        await _refuse(world.endpoint_proxy)
        await asyncio.sleep(BREATH_S)
        await world.endpoint_proxy.heal()
        await asyncio.sleep(BREATH_S)


async def _breakers(world: World) -> set[str]:
    """Of the lane, in the brokers."""

    def look(port: int) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/wheel") as answer:
            lanes = json.load(answer)["lanes"]
        return next(str(lane["breaker"]) for lane in lanes if lane["biz_type"] == BIZ_TYPE)

    return {await asyncio.to_thread(look, world.port(broker)) for broker in world.brokers}


async def open_breakers(world: World) -> None:
    """A black hole before an endpoint: its brokers stop calling it, and try again by themselves."""
    proxy = world.endpoint_proxy
    await _swallow(proxy)

    async def are_open() -> bool:
        return await _breakers(world) == {"open"}

    async def are_closed() -> bool:
        return await _breakers(world) == {"closed"}

    await world.until(are_open, "every broker has its breaker open", 5)
    # What was under way when they opened comes to its timeout.
    await asyncio.sleep(CALL_S + BREATH_S)
    attempts = await world.sql(ATTEMPTS)
    await asyncio.sleep(BREATH_S)
    assert await world.sql(ATTEMPTS) == attempts, "an open breaker spends attempts"
    await proxy.heal()
    await world.until(are_closed, "every broker has its breaker closed", 2 * OPEN_S)


CASES: Final = (
    *_cases("daemon", "postgres"),
    *_cases("daemon", "redis"),
    *_cases("broker", "postgres"),
    *_cases("broker", "redis"),
    Case(
        name="gone-daemon-postgres",
        what=f"a black hole for {LONG_AWAY_S:g} s, longer than the lease: another one leads then",
        fault=_between("daemon", "postgres", (_swallow,), LONG_AWAY_S),
        proxied=True,
        load_s=LONG_AWAY_S + 10,
        duplicates=None,
        lost_max=CONCURRENCY,
    ),
    *(
        Case(
            name=f"slow-{who}",
            what=f"it is {SLOW_S * 1000:g} ms away from both servers for {SLOW_FOR_S:g} s",
            fault=_slow(who),
            proxied=True,
            load_s=16,
            duplicates=None,
            lost_max=CONCURRENCY,
        )
        for who in PROGRAMS
    ),
    Case(
        name="cut-broker-endpoint",
        what="reset and refused; then a black hole both ways; its neighbour notices nothing",
        fault=_to_endpoint(_refuse, _swallow),
        endpoint_proxied=True,
        neighbour=True,
        load_s=16,
    ),
    Case(
        name="half-broker-endpoint",
        what="calls are lost; then the answers to them; its neighbour notices nothing",
        fault=_to_endpoint(_swallow_requests, _swallow_replies),
        endpoint_proxied=True,
        neighbour=True,
        load_s=16,
    ),
    Case(
        name="flap-broker-endpoint",
        what=f"refuses and answers in turn, {FLAPS} times; its neighbour notices nothing",
        fault=flap,
        endpoint_proxied=True,
        neighbour=True,
        load_s=16,
    ),
    Case(
        name="breaker-broker-endpoint",
        what="a black hole until the breakers open, and until they close again",
        fault=open_breakers,
        endpoint_proxied=True,
        neighbour=True,
        biz={"breaker": Breaker(open_for=OPEN_S)},
        load_s=20,
        # What waited for the breaker comes within a minute, spread.
        drain_s=90,
    ),
)
