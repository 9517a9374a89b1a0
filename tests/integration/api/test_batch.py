"""POST /v1/tasks/batch: in order, each task for itself, as JSON and as lines."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import msgspec
import psycopg
import pytest
from starlette.types import Message

from broker.api import ndjson
from broker.api.app import build_app
from broker.api.context import Context
from broker.submission import Outcome, Submission
from tests.integration.api.conftest import client_of
from wheel_timer.errors import DatabaseUnavailable, Overloaded

FAR = 1_900_000_000
LINES = {"content-type": "application/x-ndjson"}


def task(**fields: Any) -> dict[str, Any]:
    return {"biz_type": "orders", "start_time": FAR} | fields


def lines(tasks: list[dict[str, Any]]) -> bytes:
    return msgspec.json.Encoder().encode_lines(tasks)


def rows_of(database_url: str) -> int:
    with psycopg.connect(database_url) as connection:
        row = connection.execute("SELECT count(*) FROM timer_task").fetchone()
    assert row is not None
    return int(row[0])


async def test_results_come_in_the_order_of_the_tasks(
    client: httpx.AsyncClient, orders: str
) -> None:
    tasks = [
        task(biz_id="a"),
        task(start_time="tomorrow"),
        task(biz_id="b", biz_data=[1]),
        task(biz_id="a", start_time=FAR + 5),
        task(biz_type="nowhere"),
        task(biz_id="b", on_duplicate="reject"),
        "no task",
    ]
    answer = await client.post("/v1/tasks/batch", json={"tasks": tasks})
    assert answer.status_code == 200
    body = answer.json()
    assert (body["accepted"], body["duplicates"], body["rejected"]) == (2, 1, 4)
    results = body["results"]
    a, b = results[0]["task_id"], results[2]["task_id"]
    assert results[0] == {"task_id": a, "status": "pending", "duplicate": False}
    assert results[3]["task_id"] == a
    assert (results[3]["duplicate"], results[3]["differs"]) == (True, ["start_time"])
    assert results[5]["error"]["task_id"] == b
    errors = [results[i]["error"] for i in (1, 4, 5, 6)]
    assert [error["type"].rpartition("/")[2] for error in errors] == [
        "invalid-request",
        "biz-type-unknown",
        "key-exists",
        "invalid-request",
    ]
    assert errors[0]["errors"][0]["pointer"] == "#/tasks/1/start_time"
    assert errors[1]["errors"][0]["pointer"] == "#/tasks/4/biz_type"
    assert errors[3]["errors"][0]["pointer"] == "#/tasks/6"


async def test_ten_thousand_tasks_are_stored_and_one_more_is_refused(
    client: httpx.AsyncClient, orders: str, database_url: str
) -> None:
    tasks = [task(biz_id=str(i)) for i in range(10_000)]
    body = (await client.post("/v1/tasks/batch", json={"tasks": tasks})).json()
    assert (body["accepted"], len(body["results"])) == (10_000, 10_000)
    assert len({result["task_id"] for result in body["results"]}) == 10_000
    assert rows_of(database_url) == 10_000
    refused = await client.post("/v1/tasks/batch", json={"tasks": [*tasks, task()]})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "#/tasks"


async def test_an_empty_batch_is_no_error(client: httpx.AsyncClient) -> None:
    body = (await client.post("/v1/tasks/batch", json={"tasks": []})).json()
    assert body == {"accepted": 0, "duplicates": 0, "rejected": 0, "results": []}
    answer = await client.post("/v1/tasks/batch", content=b"", headers=LINES)
    assert answer.json()["lines"] == 0


async def test_what_is_no_batch_is_refused(client: httpx.AsyncClient) -> None:
    for content, status in (
        (b"", 400),
        (b"{}", 422),
        (b'{"tasks":1}', 422),
        (b'{"tasks":[],"x":1}', 422),
        (b"[]", 422),
    ):
        assert (await client.post("/v1/tasks/batch", content=content)).status_code == status


async def test_an_idempotency_key_is_not_for_a_batch(client: httpx.AsyncClient) -> None:
    headers = {"Idempotency-Key": "k"}
    answer = await client.post("/v1/tasks/batch", json={"tasks": []}, headers=headers)
    assert answer.status_code == 422


async def test_a_batch_in_gzip(client: httpx.AsyncClient, orders: str) -> None:
    packed = gzip.compress(msgspec.json.encode({"tasks": [task()] * 3}))
    headers = {"content-encoding": "gzip", "content-type": "application/json"}
    answer = await client.post("/v1/tasks/batch", content=packed, headers=headers)
    assert answer.json()["accepted"] == 3


async def test_lines_are_counted_and_the_bad_ones_named(
    client: httpx.AsyncClient, orders: str
) -> None:
    body = b"\n".join(
        [
            b'{"biz_type":"orders","delay":60,"biz_id":"a"}\r',
            b"",
            b"not json",
            b'{"biz_type":"orders","delay":-1}',
            b"  ",
            b'{"biz_type":"orders","delay":60,"biz_id":"a"}',
            b'{"biz_type":"orders","delay":60,"biz_id":"a","on_duplicate":"reject"}',
            b'{"biz_type":"orders","delay":60}',
        ]
    )
    answer = (await client.post("/v1/tasks/batch", content=body, headers=LINES)).json()
    errors = answer.pop("errors")
    assert answer == {
        "lines": 8,
        "accepted": 2,
        "duplicates": 1,
        "rejected": 3,
        "committed_lines": 8,
    }
    assert [(error["line"], error["error"]["status"]) for error in errors] == [
        (3, 400),
        (4, 422),
        (7, 409),
    ]
    assert errors[1]["error"]["errors"][0]["pointer"] == "#/delay"


@pytest.mark.parametrize("size", [1, 13, 1000, 100_000])
async def test_lines_may_be_cut_anywhere(
    client: httpx.AsyncClient, orders: str, database_url: str, size: int
) -> None:
    body = lines([task(biz_id=str(i), biz_data="ä" * 5) for i in range(40)])

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(body), size):
            yield body[at : at + size]

    answer = await client.post("/v1/tasks/batch", content=pieces(), headers=LINES)
    assert (answer.json()["accepted"], answer.json()["rejected"]) == (40, 0)
    assert rows_of(database_url) == 40


async def test_only_the_first_thousand_errors_are_listed(
    client: httpx.AsyncClient, orders: str
) -> None:
    answer = await client.post("/v1/tasks/batch", content=b"x\n" * 2500, headers=LINES)
    body = answer.json()
    assert (body["rejected"], len(body["errors"])) == (2500, 1000)
    assert [error["line"] for error in body["errors"]] == list(range(1, 1001))


async def test_a_long_upload_needs_little_memory(context: Context, orders: str) -> None:
    """
    Ten parts' lines through the whole app; what is held at any time does not grow with them.

    The memory of a part is let go before the next but one is read: its size is the bound.
    """
    many = 10_000
    line = lines([task(biz_data="a" * 3_000)])

    async def pieces() -> AsyncIterator[bytes]:
        piece = line * 50
        for _ in range(many // 50):
            yield piece

    async with client_of(context) as client:
        await client.post("/v1/tasks/batch", content=line * 2000, headers=LINES)
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            answer = await client.post("/v1/tasks/batch", content=pieces(), headers=LINES)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert answer.json()["accepted"] == many
    assert peak - before < 12 * 1024 * 1024 < many * len(line)


async def test_gzip_lines_are_inflated_as_they_come(client: httpx.AsyncClient, orders: str) -> None:
    packed = gzip.compress(lines([task()] * 3000))
    headers = LINES | {"content-encoding": "gzip"}
    answer = await client.post("/v1/tasks/batch", content=packed, headers=headers)
    assert answer.json()["accepted"] == 3000


async def test_a_line_beyond_the_limit_ends_the_upload(context: Context, orders: str) -> None:
    body = lines([task()] * 3) + b'"' + b"a" * 10_000
    async with client_of(context, max_request=4096) as small:
        answer = await small.post("/v1/tasks/batch", content=body, headers=LINES)
        assert answer.status_code == 413
        assert answer.json()["committed_lines"] == 3
        long = lines([task()] * 1000)
        assert len(long) > 4096
        assert (await small.post("/v1/tasks/batch", content=long, headers=LINES)).is_success


async def test_a_database_that_goes_away_in_the_middle_leaves_committed_lines(
    client: httpx.AsyncClient, orders: str, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = context.submitter.submit
    calls = 0

    async def fails_later(submissions: list[Submission]) -> list[Outcome]:
        nonlocal calls
        calls += 1
        if calls < 4:
            return await submit(submissions)
        lost: list[Outcome] = [DatabaseUnavailable("gone")] * len(submissions)
        return (await submit(submissions[:10])) + lost[10:]

    monkeypatch.setattr(context.submitter, "submit", fails_later)
    content = lines([task()] * (ndjson.PART_LINES * 8))
    answer = await client.post("/v1/tasks/batch", content=content, headers=LINES)
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    assert answer.json()["type"] == "/problems/overloaded"
    assert answer.json()["committed_lines"] == ndjson.PART_LINES * 3 + 10


async def test_an_upload_waits_where_a_single_submit_is_refused(
    client: httpx.AsyncClient, orders: str, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = context.submitter.submit
    refusals = iter([Overloaded("full")] * 3)

    async def full_at_first(submissions: list[Submission]) -> list[Outcome]:
        for refusal in refusals:
            raise refusal
        return await submit(submissions)

    monkeypatch.setattr(context.submitter, "submit", full_at_first)
    answer = await client.post("/v1/tasks/batch", content=lines([task()] * 10), headers=LINES)
    assert answer.json()["accepted"] == 10
    refusals = iter([Overloaded("full")])
    assert (await client.post("/v1/tasks", json=task())).status_code == 503


async def test_a_client_that_breaks_off_leaves_whole_lines_only(
    context: Context, orders: str, database_url: str
) -> None:
    """Nobody is answered; what came as a whole line is stored."""
    part = lines([task()] * 5) + b'{"biz_type":"orders","del'
    messages: Iterator[Message] = iter(
        [
            {"type": "http.request", "body": part, "more_body": True},
            {"type": "http.disconnect"},
        ]
    )
    sent: list[Message] = []

    async def receive() -> Message:
        return next(messages)

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/v1/tasks/batch",
        "raw_path": b"/v1/tasks/batch",
        "query_string": b"",
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/x-ndjson")],
    }
    await build_app(context)(scope, receive, send)
    assert sent == []
    assert rows_of(database_url) == 5
