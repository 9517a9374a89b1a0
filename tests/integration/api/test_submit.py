"""POST /v1/tasks and GET of a task: what is answered is what is stored."""

from __future__ import annotations

import asyncio
import base64
import math
from uuid import UUID, uuid4

import httpx
import psycopg
from redis.asyncio import Redis

from broker.api.context import Context
from broker.registry import Registry
from tests.fix_clock import DatabaseClock
from tests.integration.api.conftest import client_of
from wheel_timer.biz import BizTypeIn
from wheel_timer.store import biz as store
from wheel_timer.wheel import home_of, is_task_id

FAR = 1_900_000_000


async def test_a_submit_is_stored_before_it_is_answered(
    client: httpx.AsyncClient, orders: str, database_url: str
) -> None:
    body = b'{"biz_type":"orders","biz_id":"o/1","start_time":1900000000.25,"biz_data":{"a": 1.0}}'
    answer = await client.post(
        "/v1/tasks", content=body, headers={"content-type": "application/json"}
    )
    assert answer.status_code == 201
    task_id = UUID(answer.json()["task_id"])
    assert answer.json() == {
        "task_id": str(task_id),
        "status": "pending",
        "duplicate": False,
        "start_time": "2030-03-17T17:46:40.250Z",
    }
    assert answer.headers["location"] == f"/v1/tasks/{task_id}"
    assert is_task_id(task_id)
    assert home_of(task_id) == (1_900_000_000_250, 0)
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT task_id, biz_id, biz_data FROM timer_task").fetchall()
    assert rows == [(task_id, "o/1", b'{"a": 1.0}')]


async def test_a_task_is_found_by_either_of_its_ids(client: httpx.AsyncClient, orders: str) -> None:
    biz_id = "a/b c%2F?#ä"
    body = {
        "biz_type": "orders",
        "biz_id": biz_id,
        "start_time": FAR,
        "biz_data": {"x": 1},
        "callback": {
            "url": "http://b.example/",
            "headers": {"authorization": "hidden", "x-a": "1"},
        },
        "retry": {"max_attempts": 2},
        "max_age": 2.5,
    }
    location = (await client.post("/v1/tasks", json=body)).headers["location"]
    by_id = (await client.get(location)).json()
    quoted = httpx.URL("http://x", params={"q": biz_id}).query.decode()[2:].replace("+", "%20")
    by_biz_id = await client.get(f"/v1/biz/orders/tasks/{quoted}")
    assert by_biz_id.json() == by_id
    create_time = by_id.pop("create_time")
    assert by_id == {
        "task_id": location.rpartition("/")[2],
        "biz_type": "orders",
        "biz_id": biz_id,
        "status": "pending",
        "start_time": "2030-03-17T17:46:40.000Z",
        "life": 1,
        "revision": 1,
        "attempts": 0,
        "failures": 0,
        "waiting": {
            "reason": "scheduled",
            "since": create_time,
            "until": "2030-03-17T17:46:40.000Z",
        },
        "first_attempt_time": None,
        "next_attempt_time": "2030-03-17T17:46:40.000Z",
        "finish_time": None,
        "expire_time": None,
        "http_status": None,
        "last_error": None,
        "content_type": None,
        "callback": {
            "url": "http://b.example/",
            "method": None,
            "headers": {"authorization": {"set": True}, "x-a": "1"},
            "timeout": None,
        },
        "retry": {"max_attempts": 2},
        "max_age": 2.5,
        "schedule_id": None,
        "scheduled_time": None,
        "attempt_log": [],
        "biz_data": {"x": 1},
    }


async def test_a_payload_that_is_no_json_is_shown_in_base64(
    client: httpx.AsyncClient, orders: str
) -> None:
    encoded = base64.b64encode(b"\xff\x00").decode()
    body = {"biz_type": "orders", "delay": 9, "biz_data_base64": encoded}
    location = (await client.post("/v1/tasks", json=body)).headers["location"]
    shown = (await client.get(location)).json()
    assert shown["biz_data_base64"] == encoded
    assert "biz_data" not in shown


async def test_a_delay_counts_from_the_databases_clock(
    client: httpx.AsyncClient, orders: str, context: Context, clock: DatabaseClock
) -> None:
    now_ms = clock.freeze(1_850_000_000_000)
    await context.clock.measure()
    answer = await client.post("/v1/tasks", json={"biz_type": "orders", "delay": 1.5})
    assert answer.json()["start_time"] == "2028-08-16T00:53:21.500Z"
    assert home_of(UUID(answer.json()["task_id"]))[0] == now_ms + 1500


async def test_a_spread_start_time_is_drawn_from_its_range(
    client: httpx.AsyncClient, orders: str
) -> None:
    body = {"biz_type": "orders", "start_time": FAR, "spread": 1}
    answers = [await client.post("/v1/tasks", json=body) for _ in range(30)]
    moments = {home_of(UUID(answer.json()["task_id"]))[0] for answer in answers}
    assert all(FAR * 1000 <= moment < FAR * 1000 + 1000 for moment in moments)
    assert len(moments) > 10


async def test_a_near_task_is_published_by_the_broker_itself(
    client: httpx.AsyncClient, orders: str, context: Context, redis_client: Redis
) -> None:
    await client.post("/v1/tasks", json={"biz_type": "orders", "delay": 0})
    await client.post("/v1/tasks", json={"biz_type": "orders", "start_time": 1_700_000_000})
    await client.post("/v1/tasks", json={"biz_type": "orders", "start_time": FAR})
    await context.submitter.stop()
    assert await redis_client.xlen(context.event_center.lane_key("orders")) == 2


async def test_the_same_submit_again_is_a_duplicate(client: httpx.AsyncClient, orders: str) -> None:
    body = {
        "biz_type": "orders",
        "biz_id": "k",
        "start_time": FAR,
        "biz_data": {"x": 1},
        "callback": {"url": "http://b.example/", "timeout": 2.5},
        "retry": {"max_attempts": 2, "backoff": {"initial": 1}},
        "max_age": 60,
    }
    first = await client.post("/v1/tasks", json=body)
    again = await client.post("/v1/tasks", json=body)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json() | {"duplicate": True, "differs": []}
    assert again.headers["location"] == first.headers["location"]


async def test_a_kept_duplicate_says_what_differs(client: httpx.AsyncClient, orders: str) -> None:
    first = {"biz_type": "orders", "biz_id": "k", "start_time": FAR, "biz_data": 1}
    await client.post("/v1/tasks", json=first)
    other = {
        "biz_type": "orders",
        "biz_id": "k",
        "start_time": FAR + 1,
        "biz_data": 2,
        "content_type": "application/json",
        "callback": {"url": "http://b.example/"},
        "retry": {"max_attempts": 1},
        "max_age": 5,
    }
    answer = await client.post("/v1/tasks", json=other)
    assert answer.status_code == 200
    assert answer.json()["differs"] == [
        "start_time",
        "biz_data",
        "content_type",
        "callback",
        "retry",
        "max_age",
    ]
    delayed = {"biz_type": "orders", "biz_id": "k", "delay": 1}
    assert (await client.post("/v1/tasks", json=delayed)).json()["differs"] == []


async def test_a_duplicate_can_be_rejected(client: httpx.AsyncClient, orders: str) -> None:
    body = {"biz_type": "orders", "biz_id": "k", "delay": 60, "on_duplicate": "reject"}
    first = await client.post("/v1/tasks", json=body)
    again = await client.post("/v1/tasks", json=body)
    assert (first.status_code, again.status_code) == (201, 409)
    problem = again.json()
    assert problem["type"] == "/problems/key-exists"
    assert problem["task_id"] == first.json()["task_id"]
    assert problem["task_status"] == "pending"


async def test_a_thousand_submits_of_one_key_make_one_task(
    client: httpx.AsyncClient, orders: str, database_url: str
) -> None:
    body = {"biz_type": "orders", "biz_id": "k", "start_time": FAR}
    answers = await asyncio.gather(*(client.post("/v1/tasks", json=body) for _ in range(1000)))
    assert sorted(answer.status_code for answer in answers) == [200] * 999 + [201]
    assert len({answer.json()["task_id"] for answer in answers}) == 1
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT count(*) FROM timer_task").fetchone() == (1,)


async def test_the_same_key_of_another_biz_type_is_another_task(
    client: httpx.AsyncClient, orders: str
) -> None:
    await client.put("/v1/biz/refunds", json={"callback_url": "http://b.example/"})
    for name in ("orders", "refunds"):
        body = {"biz_type": name, "biz_id": "k", "start_time": FAR}
        assert (await client.post("/v1/tasks", json=body)).status_code == 201


async def test_the_idempotency_key_is_taken_as_biz_id(
    client: httpx.AsyncClient, orders: str
) -> None:
    body = {"biz_type": "orders", "start_time": FAR}
    headers = {"Idempotency-Key": "order-7"}
    first = await client.post("/v1/tasks", json=body, headers=headers)
    again = await client.post("/v1/tasks", json=body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 200)
    assert (await client.get("/v1/biz/orders/tasks/order-7")).status_code == 200


async def test_the_trace_is_kept(client: httpx.AsyncClient, orders: str, database_url: str) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    for value in (trace, "nonsense"):
        body = {"biz_type": "orders", "delay": 60}
        await client.post("/v1/tasks", json=body, headers={"traceparent": value})
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT traceparent FROM timer_task").fetchall()
    assert sorted(rows, key=str) == sorted([(trace,), (None,)], key=str)


async def test_an_unknown_biz_type_is_a_422_until_another_broker_creates_it(
    client: httpx.AsyncClient, context: Context
) -> None:
    body = {"biz_type": "new", "delay": 60}
    refused = await client.post("/v1/tasks", json=body)
    assert refused.status_code == 422
    assert refused.json()["type"] == "/problems/biz-type-unknown"
    assert refused.json()["errors"][0]["pointer"] == "#/biz_type"

    other = Registry(context.db)
    await other.put("new", BizTypeIn(callback_url="http://a.example/"), None)
    assert (await client.post("/v1/tasks", json=body)).status_code == 201


async def test_a_refusal_looks_at_the_newest_configuration(
    client: httpx.AsyncClient, context: Context
) -> None:
    await client.put("/v1/biz/plain", json={"callback_url": "http://a.example/"})
    body = {"biz_type": "plain", "delay": 60, "callback": {"url": "http://b.example/"}}
    refused = await client.post("/v1/tasks", json=body)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "#/callback"

    allowing = BizTypeIn(callback_url="http://a.example/", allow_callback_override=True)
    await store.put(context.db, "plain", allowing)
    assert (await client.post("/v1/tasks", json=body)).status_code == 201


async def test_a_body_that_cannot_be_a_task_is_refused(client: httpx.AsyncClient) -> None:
    for content, status in (
        (b"", 400),
        (b"{", 400),
        (b"\xff", 400),
        (b"[]", 422),
        (b"[" * 100_000, 422),
        (b"{}", 422),
    ):
        answer = await client.post("/v1/tasks", content=content)
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["type"] == "/problems/invalid-request"


async def test_other_media_types_are_refused(client: httpx.AsyncClient, orders: str) -> None:
    for given in ("text/plain", "application/x-www-form-urlencoded", "application/x-ndjson"):
        answer = await client.post(
            "/v1/tasks", content=b'{"biz_type":"orders","delay":1}', headers={"content-type": given}
        )
        assert answer.status_code == 415
        assert answer.headers["accept"] == "application/json"


async def test_sizes_are_bounded(context: Context, orders: str) -> None:
    async with client_of(context, max_request=8192, max_body=1024) as small:
        data = {"biz_type": "orders", "delay": 1, "biz_data": "a" * 1023}
        refused = await small.post("/v1/tasks", json=data)
        assert refused.status_code == 413
        assert refused.json()["errors"][0]["pointer"] == "#/biz_data"
        data["biz_data"] = "a" * 1022
        assert (await small.post("/v1/tasks", json=data)).status_code == 201
        data["biz_data"] = "a" * 9000
        assert (await small.post("/v1/tasks", json=data)).status_code == 413


async def test_a_task_that_is_not_there_is_a_404(client: httpx.AsyncClient, orders: str) -> None:
    unknown = uuid4()
    for path in (
        f"/v1/tasks/{unknown}",
        "/v1/tasks/01a1fca3-faf0-8000-9a6f-40ff88fb5aeb",
        "/v1/tasks/nonsense",
        "/v1/tasks/%00",
        "/v1/tasks/%ff",
        "/v1/biz/orders/tasks/none",
        "/v1/biz/orders/tasks/%00",
        "/v1/biz/nowhere/tasks/none",
    ):
        answer = await client.get(path)
        assert answer.status_code == 404, path
        assert answer.json()["type"] == "/problems/not-found"


async def test_a_delivering_and_a_finished_task_are_shown_so(
    client: httpx.AsyncClient, orders: str, database_url: str, context: Context
) -> None:
    body = {"biz_type": "orders", "biz_id": "k", "start_time": 1_700_000_000}
    location = (await client.post("/v1/tasks", json=body)).headers["location"]
    assert (await client.get(location)).json()["waiting"]["reason"] == "queued"
    now_ms = math.ceil(context.clock.now_ms())
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "UPDATE timer_task SET lease_until = %s, attempts = 1, first_attempt_time = %s",
            (now_ms + 60_000, now_ms),
        )
        shown = (await client.get(location)).json()
        assert (shown["status"], shown["waiting"]) == ("delivering", None)
        assert (await client.post("/v1/tasks", json=body)).json()["status"] == "delivering"

        connection.execute(
            "UPDATE timer_task SET lease_until = NULL, next_at = %s, failures = 1",
            (now_ms + 60_000,),
        )
        connection.execute(
            "INSERT INTO timer_attempt (task_id, attempt, life, outcome, started_time, duration_ms,"
            " error_class, http_status) SELECT task_id, 1, 1, 'retry', 1700000000000, 250,"
            " 'status', 500 FROM timer_task"
        )
        shown = (await client.get(location)).json()
        assert shown["waiting"]["reason"] == "backoff"
        assert shown["waiting"]["since"] == "2023-11-14T22:13:20.250Z"
        assert shown["next_attempt_time"] == shown["waiting"]["until"]
        assert [a["outcome"] for a in shown["attempt_log"]] == ["retry"]
        assert shown["attempt_log"][0]["error_class"] == "status"

        for http_status, reason in ((429, "backoff"), (200, "released")):
            connection.execute(
                "UPDATE timer_attempt SET outcome = 'released', http_status = %s", (http_status,)
            )
            assert (await client.get(location)).json()["waiting"]["reason"] == reason

        connection.execute(
            "UPDATE timer_task SET status = 1, next_at = NULL, attempts = 2, finish_time = %s,"
            " expire_at = %s, http_status = 204, started = %s, duration = 7",
            (now_ms, now_ms + 1000, now_ms),
        )
    shown = (await client.get(location)).json()
    assert (shown["status"], shown["waiting"], shown["http_status"]) == ("finished", None, 204)
    assert [(a["attempt"], a["outcome"]) for a in shown["attempt_log"]] == [
        (1, "released"),
        (2, "finished"),
    ]
    again = (await client.post("/v1/tasks", json=body)).json()
    assert (again["status"], again["duplicate"]) == ("finished", True)
