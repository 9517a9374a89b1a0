"""Names that change their meaning, networks that narrow: what is dialled is what was judged."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from broker.guard import Guard
from tests.fix_endpoint import Endpoint
from tests.integration.test_delivery_http import Caller, a_claim

NAME = "rebound.example"
ALLOWED = "127.0.0.2"  # where nothing listens
Answers = Callable[[], list[str]]


class _Names(aiohttp.abc.AbstractResolver):
    """A name server of one name, whose answer may be another each time."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self.asked = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[aiohttp.abc.ResolveResult]:
        assert host.rstrip(".") == NAME
        self.asked += 1
        return [
            aiohttp.abc.ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._answers()
        ]

    async def close(self) -> None:
        pass


@pytest_asyncio.fixture
async def guarded(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Caller]]:
    """`guarded(answers)`: a caller of a server with a key, whose names have these answers."""
    callers: list[Caller] = []
    connector = aiohttp.TCPConnector

    def make(answers: Answers, guard: Guard | None = None) -> Caller:
        names = _Names(answers)

        def resolving(**given: Any) -> aiohttp.TCPConnector:
            return connector(**given | {"resolver": names, "ttl_dns_cache": 0})

        monkeypatch.setattr(aiohttp, "TCPConnector", resolving)
        caller = Caller(guard or Guard((), (), is_keyless=False))
        callers.append(caller)
        return caller

    yield make
    for caller in callers:
        await caller.transport.aclose()


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "169.254.169.254", "10.0.0.1", "0.0.0.0"]
)
@pytest.mark.parametrize("name", [NAME, f"{NAME}."])
async def test_a_name_that_leads_inside_is_not_dialled(
    guarded: Callable[..., Caller], endpoint: Endpoint, address: str, name: str
) -> None:
    caller = guarded(lambda: [address])
    answer = await caller(f"http://{name}:{endpoint.port}/")
    assert (answer.status, answer.error_class) == (None, "refused")
    assert answer.error is not None
    assert "not a public address" in answer.error
    assert endpoint.connections == 0


async def test_an_answer_that_changes_gains_nothing(
    guarded: Callable[..., Caller], endpoint: Endpoint
) -> None:
    """The first look (a check, say) finds an address that may be called, all others loopback."""
    looks = iter([ALLOWED])
    caller = guarded(lambda: [next(looks, "127.0.0.1")], Guard((ALLOWED,), (), is_keyless=False))
    url = f"http://{NAME}:{endpoint.port}/"
    answers = [await caller(url) for _ in range(3)]
    assert [answer.remote_address for answer in answers] == [ALLOWED, "127.0.0.1", "127.0.0.1"]
    assert ["not a public" in (answer.error or "") for answer in answers] == [False, True, True]
    assert endpoint.connections == 0


async def test_of_mixed_answers_only_those_that_may_are_dialled(
    guarded: Callable[..., Caller], endpoint: Endpoint
) -> None:
    guard = Guard(("127.0.0.1/32",), (), is_keyless=False)
    caller = guarded(lambda: ["10.255.255.1", "127.0.0.1", "::1"], guard)
    assert (await caller(f"http://{NAME}:{endpoint.port}/")).status == 200
    assert endpoint.connections == 1
    inside = guarded(lambda: [ALLOWED, "127.0.0.1"], Guard((ALLOWED,), (), is_keyless=False))
    assert (await inside(f"http://{NAME}:{endpoint.port}/")).status is None
    assert endpoint.connections == 1


async def test_a_connection_is_not_shared_with_who_may_not_reach_it(endpoint: Endpoint) -> None:
    """Another biz_type's open connection is no way around callback_allow."""
    caller = Caller(Guard((), (), is_keyless=True))
    assert (await caller(endpoint.url)).status == 200
    narrowed = await caller(endpoint.url, callback_allow=("10.0.0.0/8",))
    assert (narrowed.status, narrowed.error_class) == (None, "refused")
    assert "callback_allow" in (narrowed.error or "")
    for _ in range(2):
        allowed = await caller(endpoint.url, callback_allow=("127.0.0.0/8",))
        assert allowed.status == 200
    # One of each kind, kept and used again.
    assert endpoint.connections == 2
    assert (await caller(endpoint.url)).status == 200
    assert endpoint.connections == 2
    await caller.transport.aclose()


async def test_a_tasks_own_url_is_judged_like_the_biz_types(endpoint: Endpoint) -> None:
    caller = Caller(Guard((), (), is_keyless=False))
    claim = a_claim(callback=f'{{"url": "{endpoint.url}"}}')
    answer = await caller("http://a.example/", claim, allow_callback_override=True)
    assert answer.error_class == "refused"
    assert endpoint.connections == 0
    await caller.transport.aclose()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"])
async def test_an_address_that_is_not_public_is_not_dialled(endpoint: Endpoint, host: str) -> None:
    guarded = Caller(Guard((), (), is_keyless=False))
    answer = await guarded(f"http://{host}:{endpoint.port}/")
    await guarded.transport.aclose()
    assert (answer.status, answer.error_class) == (None, "refused")
    assert endpoint.connections == 0


@pytest.mark.parametrize("host", ["127.1", "0", "2130706433", "0x7f.1"])
async def test_a_short_form_of_an_address_is_not_dialled(endpoint: Endpoint, host: str) -> None:
    guarded = Caller(Guard((), (), is_keyless=False))
    answer = await guarded(f"http://{host}:{endpoint.port}/")
    await guarded.transport.aclose()
    assert answer.status is None
    assert endpoint.connections == 0


async def test_an_address_that_is_allowed_is_dialled(endpoint: Endpoint) -> None:
    guarded = Caller(Guard(("127.0.0.0/8",), (), is_keyless=False))
    answer = await guarded(endpoint.url)
    await guarded.transport.aclose()
    assert answer.status == 200
