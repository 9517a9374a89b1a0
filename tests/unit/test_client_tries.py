"""wheel_timer/client: what is tried again, and what is raised; the server is a function."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import httpx
import pytest

from tests.fix_client import SUBMITTED, TASK, TASK_ID, Answer, Server, client_of, no, ok
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

# Nobody waits here.
pytestmark = pytest.mark.usefixtures("pauses")


def test_a_try_whose_answer_was_lost_is_no_second_task() -> None:
    server = Server(httpx.ReadError("reset"), ok({**SUBMITTED, "duplicate": True}))
    submitted = client_of(server).submit("orders", delay=5)
    first, second = (body["biz_id"] for body in server.bodies())
    assert first == second == submitted.biz_id
    assert UUID(first).version == 4
    assert not submitted.duplicate, "it is our own first try"


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


async def test_the_async_client_tries_again_too(pauses: list[float]) -> None:
    server = Server(httpx.ReadError("reset"), no(503, "overloaded"), ok(SUBMITTED, 201))
    async with AsyncClient("http://orders", "", transport=httpx.MockTransport(server)) as client:
        assert (await client.submit("orders", delay=1)).task_id == TASK_ID
    assert len({body["biz_id"] for body in server.bodies()}) == 1
    assert len(pauses) == 2
    with pytest.raises(RuntimeError, match="closed"):
        await client.get(TASK_ID)


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
