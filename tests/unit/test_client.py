"""wheel_timer/client: what is sent, when again, and what is raised; the server is a function."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import httpx
import pytest

from wheel_timer.client import (
    AsyncClient,
    Client,
    Conflict,
    InvalidRequest,
    NotFound,
    Overloaded,
    QuotaUsedUp,
    RateLimited,
    Refused,
    ServerError,
    TaskSettled,
    Unauthorized,
    Unreachable,
)

TASK_ID = UUID("01980a4c-3b61-8000-9d0e-1f6f3c1a2b4d")
SUBMITTED = {
    "task_id": str(TASK_ID),
    "status": "pending",
    "duplicate": False,
    "start_time": "2026-12-01T09:00:00.000Z",
}
TASK = {
    **SUBMITTED,
    "biz_type": "orders",
    "create_time": "2026-12-01T08:00:00.000Z",
    "a_field_of_a_newer_server": 1,
}

Answer = httpx.Response | Exception


class Server:
    """Answers from a list, one a request; the last one for ever."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)

    def bodies(self) -> list[Any]:
        return [json.loads(request.content) for request in self.requests]


def ok(content: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=content)


def no(status: int, name: str, headers: dict[str, str] | None = None, **more: Any) -> Any:
    problem = {"type": f"/problems/{name}", "title": "No", "status": status, "detail": "so"}
    return httpx.Response(status, json={**problem, **more}, headers=headers)


def client_of(server: Server, **options: Any) -> Client:
    return Client("http://orders", "k3y", transport=httpx.MockTransport(server), **options)


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, which nobody waits for."""
    slept: list[float] = []
    monkeypatch.setattr("time.sleep", slept.append)

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr("wheel_timer.client.async_client.asyncio.sleep", sleep)
    return slept


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


def test_a_try_whose_answer_was_lost_is_no_second_task() -> None:
    server = Server(httpx.ReadError("reset"), ok({**SUBMITTED, "duplicate": True}))
    submitted = client_of(server).submit("orders", delay=5)
    first, second = (body["biz_id"] for body in server.bodies())
    assert first == second == submitted.biz_id
    assert UUID(first).version == 4
    assert not submitted.duplicate, "it is our own first try"


def test_a_duplicate_of_a_given_biz_id_is_told() -> None:
    server = Server(ok({**SUBMITTED, "duplicate": True, "differs": ["biz_data"]}))
    submitted = client_of(server).submit("orders", biz_id="1", delay=5)
    assert (submitted.duplicate, submitted.differs) == (True, ["biz_data"])


@pytest.mark.parametrize(
    "error",
    [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        no(503, "overloaded"),
        no(429, "rate-limited"),
        httpx.Response(503, text="a balancer's own words"),
    ],
)
def test_what_may_pass_is_tried_three_times(error: Answer, pauses: list[float]) -> None:
    server = Server(error)
    with pytest.raises((Unreachable, Overloaded, RateLimited)) as caught:
        client_of(server).submit("orders", delay=5)
    assert len(server.requests) == 3
    assert caught.value.is_retryable
    assert 0.05 <= pauses[0] <= 0.1
    assert 0.2 <= pauses[1] <= 0.4


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (no(422, "invalid-request"), InvalidRequest),
        (no(401, "unauthorized"), Unauthorized),
        (no(404, "not-found"), NotFound),
        (no(409, "task-settled"), TaskSettled),
        (no(409, "newer-than-this-client"), Conflict),
        (httpx.Response(500, text="oops"), ServerError),
        (httpx.Response(302, headers={"location": "/x"}), ServerError),
        (ok([1, 2, 3]), ServerError),
        (httpx.Response(200, text="<html>"), ServerError),
    ],
)
def test_what_will_not_pass_is_tried_once(error: Answer, kind: type[Refused]) -> None:
    server = Server(error)
    with pytest.raises(kind) as caught:
        client_of(server).get(TASK_ID)
    assert len(server.requests) == 1
    assert not caught.value.is_retryable
    assert type(caught.value) is kind


@pytest.mark.parametrize("on_duplicate", ["reject", "replace"])
def test_what_twice_would_do_more_than_once_is_not_repeated(on_duplicate: Any) -> None:
    for error in (httpx.ReadError("reset"), no(503, "overloaded")):
        server = Server(error, ok(SUBMITTED))
        with pytest.raises((Unreachable, Overloaded)):
            client_of(server).submit("orders", biz_id="1", delay=5, on_duplicate=on_duplicate)
        assert len(server.requests) == 1
    for error in (httpx.ConnectError("refused"), no(429, "quota")):
        server = Server(error, ok(SUBMITTED))
        client_of(server).submit("orders", biz_id="1", delay=5, on_duplicate=on_duplicate)
        assert len(server.requests) == 2, "it had no effect"


def test_replay_is_not_repeated_and_run_is() -> None:
    for verb, sent in (("replay", 1), ("run_now", 3)):
        server = Server(httpx.ReadError("reset"))
        with pytest.raises(Unreachable) as caught:
            getattr(client_of(server), verb)(TASK_ID)
        assert caught.value.was_sent
        assert len(server.requests) == sent


def test_retry_after_is_waited_for_where_it_is_short(pauses: list[float]) -> None:
    server = Server(no(503, "overloaded", {"retry-after": "2"}), ok(TASK))
    client_of(server).get(TASK_ID)
    assert pauses == [2.0]
    server = Server(no(429, "quota", {"retry-after": "60"}), ok(TASK))
    with pytest.raises(QuotaUsedUp) as caught:
        client_of(server).get(TASK_ID)
    assert caught.value.retry_after_s == 60.0
    assert len(server.requests) == 1


def test_an_error_has_what_the_problem_says() -> None:
    errors = [{"detail": "before the year 2000", "pointer": "#/start_time"}]
    server = Server(no(422, "invalid-request", errors=errors, request_id="r1"))
    with pytest.raises(InvalidRequest) as caught:
        client_of(server).submit("orders", start_time=5)
    error = caught.value
    assert (error.status, error.name, error.request_id) == (422, "invalid-request", "r1")
    assert error.errors == [("before the year 2000", "#/start_time")]
    assert str(error) == "422 No: #/start_time: before the year 2000"
    assert "k3y" not in repr(error)


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


async def test_the_async_client_tries_again_too(pauses: list[float]) -> None:
    server = Server(httpx.ReadError("reset"), no(503, "overloaded"), ok(SUBMITTED, 201))
    async with AsyncClient("http://orders", "", transport=httpx.MockTransport(server)) as client:
        assert (await client.submit("orders", delay=1)).task_id == TASK_ID
    assert len({body["biz_id"] for body in server.bodies()}) == 1
    assert len(pauses) == 2
    with pytest.raises(RuntimeError, match="closed"):
        await client.get(TASK_ID)


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


@pytest.mark.parametrize("url", ["timers:8080", "ftp://timers", "http://"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="URL"):
        Client(url, "")


def test_a_closed_client_says_so() -> None:
    client = client_of(Server(ok(TASK)))
    client.close()
    client.close()
    with pytest.raises(RuntimeError, match="closed"):
        client.get(TASK_ID)


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
