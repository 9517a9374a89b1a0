"""wheel_timer/client: what is sent and what is made of the answer; the server is a function."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import httpx
import pytest

from tests.fix_client import SUBMITTED, TASK, TASK_ID, Server, client_of, no, ok
from wheel_timer.client import (
    AsyncClient,
    Client,
    InvalidRequest,
)

# Nobody waits here.
pytestmark = pytest.mark.usefixtures("pauses")


def test_a_submit_carries_the_key_and_what_was_given() -> None:
    server = Server(ok(SUBMITTED, 201))
    submitted = client_of(server).submit(
        "orders",
        biz_id="1017",
        start_time=datetime(2026, 12, 1, 17, tzinfo=timezone(timedelta(hours=8))),
        biz_data={"order": 1017},
        callback="http://127.0.0.1:9000/",
        max_age=timedelta(hours=2),
    )
    assert (submitted.task_id, submitted.status, submitted.biz_id) == (TASK_ID, "pending", "1017")
    assert submitted.start_time == datetime(2026, 12, 1, 9, tzinfo=UTC)
    (request,) = server.requests
    assert (request.method, request.url.path) == ("POST", "/v1/tasks")
    assert request.headers["authorization"] == "Bearer k3y"
    assert request.headers["content-type"] == "application/json"
    assert server.bodies() == [
        {
            "biz_type": "orders",
            "biz_id": "1017",
            "start_time": "2026-12-01T17:00:00+08:00",
            "biz_data": {"order": 1017},
            "callback": {"url": "http://127.0.0.1:9000/"},
            "max_age": 7200.0,
        }
    ]


def test_bytes_travel_as_they_are() -> None:
    server = Server(ok(SUBMITTED, 201))
    client_of(server).submit("orders", delay=1, biz_data=b"\x00a", content_type="text/plain")
    assert server.bodies()[0]["biz_data_base64"] == "AGE="
    assert "biz_data" not in server.bodies()[0]


def test_a_naive_datetime_is_refused_before_anything_is_sent() -> None:
    server = Server(ok(SUBMITTED, 201))
    with pytest.raises(ValueError, match="time zone"):
        client_of(server).submit("orders", start_time=datetime(2026, 12, 1))  # noqa: DTZ001
    assert server.requests == []


def test_a_duplicate_of_a_given_biz_id_is_told() -> None:
    server = Server(ok({**SUBMITTED, "duplicate": True, "differs": ["biz_data"]}))
    submitted = client_of(server).submit("orders", biz_id="1", delay=5)
    assert (submitted.duplicate, submitted.differs) == (True, ["biz_data"])


@pytest.mark.parametrize(
    ("biz_id", "path"),
    [
        ("a/b", b"/v1/biz/orders/tasks/a%2Fb"),
        ("..", b"/v1/biz/orders/tasks/%2E%2E"),
        ("ä ?#%", b"/v1/biz/orders/tasks/%C3%A4%20%3F%23%25"),
    ],
)
def test_a_biz_id_is_one_segment(biz_id: str, path: bytes) -> None:
    server = Server(ok(TASK))
    client_of(server).get("orders", biz_id)
    assert server.requests[0].url.raw_path == path


def test_changes_of_mind() -> None:
    server = Server(ok(TASK))
    client = client_of(server)
    client.cancel(TASK_ID)
    client.cancel("orders", "1", stop=True)
    client.cancel(TASK_ID, discard=True)
    client.reschedule(TASK_ID, delay=timedelta(minutes=5), callback=None)
    client.run_now("orders", "1")
    client.replay(TASK_ID)
    asked = [
        (r.method, r.url.raw_path.decode().replace(str(TASK_ID), "ID")) for r in server.requests
    ]
    assert asked == [
        ("DELETE", "/v1/tasks/ID"),
        ("DELETE", "/v1/biz/orders/tasks/1?stop=true"),
        ("DELETE", "/v1/tasks/ID?discard=true"),
        ("PATCH", "/v1/tasks/ID"),
        ("POST", "/v1/biz/orders/tasks/1/run"),
        ("POST", "/v1/tasks/ID/replay"),
    ]
    assert json.loads(server.requests[3].content) == {"delay": 300.0, "callback": None}


def test_a_list_asks_for_pages_as_they_are_needed() -> None:
    server = Server(
        ok({"items": [TASK, TASK], "next_cursor": "c1"}),
        ok({"items": [], "next_cursor": "c2"}),
        ok({"items": [TASK], "next_cursor": None}),
    )
    tasks = client_of(server).list(
        status="failed", start_from=datetime(2026, 12, 1, tzinfo=UTC), page_size=2
    )
    assert next(tasks).task_id == TASK_ID
    assert len(server.requests) == 1
    assert len(list(tasks)) == 2
    assert [dict(request.url.params) for request in server.requests] == [
        {"status": "failed", "start_from": "2026-12-01T00:00:00+00:00", "limit": "2", **cursor}
        for cursor in ({}, {"cursor": "c1"}, {"cursor": "c2"})
    ]


def batch(refuse: Callable[[dict[str, Any]], bool]) -> Callable[[httpx.Request], httpx.Response]:
    """A server that stores all but what is refused."""

    def serve(request: httpx.Request) -> httpx.Response:
        tasks = json.loads(request.content)["tasks"]
        problem = no(422, "invalid-request").json()
        results = [
            {"error": problem} if refuse(task) else {"duplicate": task["biz_id"] == "twice"}
            for task in tasks
        ]
        return httpx.Response(200, json={"results": results})

    return serve


def test_many_go_in_batches_and_are_counted() -> None:
    sizes = []

    def serve(request: httpx.Request) -> httpx.Response:
        sizes.append(len(json.loads(request.content)["tasks"]))
        return batch(lambda task: task["delay"] in (7, 1_500))(request)

    client = Client("http://orders", "", transport=httpx.MockTransport(serve))
    named = {2: "twice", 3: "once"}
    many = client.submit_many(
        {"biz_type": "orders", "delay": n, "biz_id": named.get(n)} for n in range(2_001)
    )
    assert sizes == [1_000, 1_000, 1]
    assert (many.accepted, many.duplicates, many.rejected) == (1_998, 1, 2)
    assert [error.position for error in many.errors] == [7, 1_500]
    assert isinstance(many.errors[0].error, InvalidRequest)


def test_a_batch_is_bounded_in_bytes_too() -> None:
    sizes = []

    def serve(request: httpx.Request) -> httpx.Response:
        sizes.append(len(request.content))
        return batch(lambda _: False)(request)

    client = Client("http://orders", "", transport=httpx.MockTransport(serve))
    task = {"biz_type": "orders", "delay": 1, "biz_data": "x" * 400_000}
    assert client.submit_many([task] * 5).accepted == 5
    assert [round(size / 400_000) for size in sizes] == [2, 2, 1]


async def test_the_async_client_takes_async_tasks() -> None:
    async def tasks() -> Any:
        for n in range(1_001):
            yield {"biz_type": "orders", "delay": n}

    transport = httpx.MockTransport(batch(lambda _: False))
    async with AsyncClient("http://orders", "", transport=transport) as client:
        assert (await client.submit_many(tasks())).accepted == 1_001
        assert (await client.submit_many([])).accepted == 0


def test_operations() -> None:
    operation = {
        "operation_id": str(TASK_ID),
        "action": "shift",
        "state": "running",
        "matched": 5,
    }
    server = Server(ok(operation, 202))
    operations = client_of(server).operations
    started = operations.start(
        "shift", delay=timedelta(hours=1), rate=100.0, biz_type="orders", status="pending"
    )
    assert (started.operation_id, started.state, started.matched) == (TASK_ID, "running", 5)
    operations.stop(started.operation_id)
    operations.get(started.operation_id)
    assert operations.start("cancel", all=True).action == "shift"
    assert json.loads(server.requests[3].content) == {"action": "cancel", "filter": {}, "all": True}
    assert json.loads(server.requests[0].content) == {
        "action": "shift",
        "filter": {"biz_type": "orders", "status": "pending"},
        "set": {"delay": 3600.0},
        "rate": 100.0,
    }
    assert [request.method for request in server.requests] == ["POST", "DELETE", "GET", "POST"]


def test_url_and_key_come_from_the_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    key = tmp_path / "key"
    key.write_text("from a file\n")
    monkeypatch.setenv("WHEEL_TIMER_URL", "http://timers:8080/")
    monkeypatch.setenv("WHEEL_TIMER_KEY_FILE", str(key))
    server = Server(ok(TASK))
    with Client(transport=httpx.MockTransport(server)) as client:
        client.get(TASK_ID)
    assert str(server.requests[0].url) == f"http://timers:8080/v1/tasks/{TASK_ID}"
    assert server.requests[0].headers["authorization"] == "Bearer from a file"
    assert "file" not in repr(client)


def test_a_client_loads_nothing_of_the_server() -> None:
    code = (
        "import sys, wheel_timer\n"
        "assert 'httpx' not in sys.modules\n"
        "wheel_timer.Client('http://127.0.0.1:1', ''), wheel_timer.AsyncClient\n"
        "import wheel_timer.receiver\n"
        "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    loaded = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    server = {"broker", "daemon", "sqlalchemy", "psycopg", "redis", "starlette", "aiohttp", "flask"}
    assert not set(loaded) & server
