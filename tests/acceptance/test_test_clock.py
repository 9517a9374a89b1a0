"""`up --test-clock` and /v1/clock: time is what a test says."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.fix_up import Up, beside, wheel_timer
from tests.fix_endpoint import Answer, Endpoint, Received
from wheel_timer import AsyncClient


@pytest.fixture(scope="module")
def test_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One with two brokers: each of them has to hear of every move."""
    with Up(tmp_path_factory.mktemp("up"), "--brokers", "2", "--test-clock") as running:
        yield running


_numbers = count()


class Clock:
    """/v1/clock."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    @property
    def url(self) -> httpx.URL:
        return self._http.base_url

    async def put(self, **body: Any) -> dict[str, Any]:
        answer = await self._http.put("/v1/clock", json=body)
        assert answer.status_code == 200, answer.text
        shown: dict[str, Any] = answer.json()
        return shown

    async def now(self) -> datetime:
        return datetime.fromisoformat((await self._http.get("/v1/clock")).json()["now"])


@pytest.fixture
async def clock(test_up: Up) -> Any:
    async with httpx.AsyncClient(base_url=test_up.url, timeout=60) as http:
        yield Clock(http)


@pytest.fixture
async def orders(timers: AsyncClient, endpoint: Endpoint) -> str:
    """A biz_type of the test's own, of which nothing is left for the next one to wait for."""
    name = f"orders-{next(_numbers)}"
    await timers.biz.put(
        name,
        callback_url=endpoint.url,
        retry={"max_attempts": 1},
        breaker={"enabled": False},
    )
    return name


@pytest.fixture
async def timers(test_up: Up) -> Any:
    async with AsyncClient(test_up.url, "") as client:
        yield client


async def test_half_an_hour_passes_in_a_moment(
    clock: Clock, timers: AsyncClient, endpoint: Endpoint, orders: str
) -> None:
    submitted = await timers.submit(orders, delay=1800)
    before = await clock.now()
    began_s = time.monotonic()
    shown = await clock.put(advance=1799)
    assert endpoint.received == []
    await clock.put(advance=1)
    took_s = time.monotonic() - began_s
    assert [one.task_id for one in endpoint.received] == [str(submitted.task_id)]
    assert (await timers.get(submitted.task_id)).status == "finished"
    assert shown["frozen"] is False
    assert timedelta(seconds=1800) <= await clock.now() - before < timedelta(seconds=1830)
    assert took_s < 2.0, "well under a second where the machine has nothing else to do"


async def test_after_a_move_every_broker_goes_by_it(
    clock: Clock, timers: AsyncClient, endpoint: Endpoint, orders: str
) -> None:
    """A delay that counted from the old time would come due long before."""
    for _ in range(10):
        before = await clock.now()
        await clock.put(advance=86_400)
        submitted = await asyncio.gather(*(timers.submit(orders, delay=3600) for _ in range(8)))
        for one in submitted:
            assert one.start_time >= before + timedelta(days=1, hours=1)


async def test_the_way_leads_over_every_moment(
    clock: Clock, timers: AsyncClient, endpoint: Endpoint, orders: str
) -> None:
    """What a callback submits for later, and a retry, come due on the same way."""
    await clock.put(freeze=True)
    start = await clock.now()
    came: list[tuple[str, timedelta]] = []

    async def note(name: str) -> None:
        came.append((name, await clock.now() - start))

    asked: set[asyncio.Task[Any]] = set()
    names: dict[str, str] = {}

    def script(request: Received) -> Answer:
        asked.add(asyncio.create_task(note(names.get(request.task_id, "?"))))
        return Answer(status=503 if request.attempt == 1 else 200, delay_s=0.05)

    endpoint.script = script
    ladder = {"max_attempts": 3, "ladder": [600]}
    first = await timers.submit(orders, delay=600, retry=ladder)
    second = await timers.submit(orders, delay=1500, retry=ladder)
    names |= {str(first.task_id): "first", str(second.task_id): "second"}
    shown = await clock.put(advance=3600)
    await asyncio.gather(*asked)
    assert [name for name, _ in came] == ["first", "first", "second", "second"]
    for (_, at), minutes in zip(came, (10, 20, 25, 35), strict=True):
        assert abs(at - timedelta(minutes=minutes)) < timedelta(minutes=5.5), came
    assert datetime.fromisoformat(shown["now"]) == start + timedelta(hours=1)
    assert shown["frozen"] is True
    assert {(await timers.get(one.task_id)).status for one in (first, second)} == {"finished"}
    await clock.put(freeze=False)


async def test_a_retry_that_lies_beyond_is_waiting(
    clock: Clock, timers: AsyncClient, endpoint: Endpoint, orders: str
) -> None:
    endpoint.answer = Answer(status=500)
    ladder = {"max_attempts": 3, "ladder": [7200]}
    task = await timers.submit(orders, delay=60, retry=ladder)
    await clock.put(advance=120)
    found = await timers.get(task.task_id)
    assert (found.status, found.attempts) == ("pending", 1)
    assert found.waiting is not None
    assert found.waiting.reason == "backoff"
    endpoint.answer = Answer()
    await clock.put(advance=7200)
    assert (await timers.get(task.task_id)).status == "finished"


async def test_a_frozen_clock_stands_and_a_set_one_goes_back(
    clock: Clock, timers: AsyncClient, endpoint: Endpoint, orders: str
) -> None:
    await clock.put(freeze=True)
    start = await clock.now()
    assert await clock.now() == start
    back = start - timedelta(hours=1)
    assert (await clock.put(now=back.isoformat()))["now"] == back.isoformat(
        timespec="milliseconds"
    ).replace("+00:00", "Z")
    # closed_to never goes back: this one goes the direct way.
    task = await timers.submit(orders, delay=60)
    await clock.put(advance=60)
    assert (await timers.get(task.task_id)).status == "finished"
    await clock.put(now=start.timestamp(), freeze=False)
    assert await clock.now() > start


async def test_of_two_moves_at_once_one_waits_for_the_other(clock: Clock) -> None:
    """By connections of their own, so that both brokers are asked."""
    begin = datetime.fromisoformat((await clock.put(freeze=True))["now"])

    async def advance() -> None:
        async with httpx.AsyncClient(base_url=clock.url, timeout=60) as http:
            (await http.put("/v1/clock", json={"advance": 60})).raise_for_status()

    await asyncio.gather(*[advance() for _ in range(48)])
    assert await clock.now() - begin == timedelta(minutes=48)
    await clock.put(freeze=False)


async def test_what_is_held_is_told_and_not_waited_for(
    clock: Clock, timers: AsyncClient, endpoint: Endpoint, orders: str
) -> None:
    await timers.biz.pause(orders)
    task = await timers.submit(orders, delay=60)
    began_s = time.monotonic()
    assert (await clock.put(advance=120))["held"] == 1
    assert time.monotonic() - began_s < 1.5
    assert endpoint.received == []
    await timers.biz.resume(orders)
    # Each broker hears of it within moments of its own.
    async with asyncio.timeout(10):
        while (await clock.put(advance=1))["held"]:
            pass
    assert (await timers.get(task.task_id)).status == "finished"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "#"),
        ({"now": 1_800_000_000, "advance": 1}, "#/advance"),
        ({"advance": -1}, "#/advance"),
        ({"advance": "1"}, "#/advance"),
        ({"advance": 1e12}, "#/advance"),
        ({"now": 5}, "#/now"),
        ({"now": "tomorrow"}, "#/now"),
        ({"freeze": 1}, "#/freeze"),
        ({"speed": 2}, "#/speed"),
    ],
)
async def test_what_is_no_move_is_refused(test_up: Up, body: Any, pointer: str) -> None:
    async with httpx.AsyncClient(base_url=test_up.url) as http:
        before = (await http.get("/v1/clock")).json()
        answer = await http.put("/v1/clock", json=body)
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"] == pointer
        after = (await http.get("/v1/clock")).json()
    passed = datetime.fromisoformat(after["now"]) - datetime.fromisoformat(before["now"])
    assert passed < timedelta(seconds=30)


def test_audits_hold_whatever_the_clock_did(test_up: Up) -> None:
    assert test_up.get("/v1/audits")["holds"]
    assert "/v1/clock" in test_up.get("/openapi.json")["paths"]


def test_without_the_flag_there_is_no_such_route(up: Up) -> None:
    with httpx.Client(base_url=up.url) as http:
        assert http.get("/v1/clock").status_code == 404
        assert http.put("/v1/clock", json={"advance": 1}).status_code == 404
    assert "/v1/clock" not in up.get("/openapi.json")["paths"]


@pytest.mark.slow
async def test_a_database_keeps_to_one_kind_of_clock(tmp_path: Path) -> None:
    """Tasks that a test's clock has set would come due at other times by the machine's."""
    directory = tmp_path / "data"
    with Up(directory, "--brokers", "1", "--test-clock"):
        pass
    plain = await beside("up", "--port", "0", "--data-dir", str(directory), "--brokers", "1")
    assert plain.returncode == 2, plain.stderr
    assert re.search("start with --test-clock", plain.stderr)
    with Up(directory, "--brokers", "1", "--test-clock") as again:
        assert datetime.fromisoformat(again.get("/v1/clock")["now"]) < datetime.now(UTC)


def test_a_database_with_tasks_gets_no_test_clock(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    with Up(directory, "--brokers", "1") as running:
        done = wheel_timer(
            *("submit", "--url", running.url, "--in", "1h"), "--callback", "http://127.0.0.1:1/"
        )
        assert done.returncode == 0, done.stderr
    refused = wheel_timer("up", "--port", "0", "--data-dir", str(directory), "--test-clock")
    assert refused.returncode == 2
    assert "a new --data-dir" in refused.stderr
