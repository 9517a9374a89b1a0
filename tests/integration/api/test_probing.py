"""POST .../test: one signed call now, told in full, whatever the endpoint does."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
import standardwebhooks

from broker import probe
from broker.api.context import Context
from tests.fix_endpoint import Answer, Endpoint, Fault
from tests.integration.api.conftest import client_of

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


async def put(client: httpx.AsyncClient, url: str, **fields: Any) -> None:
    body = {"callback_url": url, "secret": SECRET} | fields
    assert (await client.put("/v1/biz/orders", json=body)).status_code in (200, 201)


async def call(client: httpx.AsyncClient, **body: Any) -> Any:
    answer = await client.post("/v1/biz/orders/test", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_it_is_the_call_that_a_task_would_get(
    client: httpx.AsyncClient, endpoint: Endpoint
) -> None:
    headers = {"authorization": "Bearer hidden", "x-shop": "7"}
    await put(client, endpoint.url, callback_headers=headers, paused=True)
    endpoint.answer = Answer(headers=(("set-cookie", "hidden"), ("x-seen", "yes")), body=b"hi")
    told = await call(client, biz_data={"order": 1})
    (received,) = endpoint.received
    assert received.body == b'{"order":1}'
    assert received.headers["authorization"] == "Bearer hidden"
    assert received.headers["wheel-timer-test"] == "true"
    assert received.headers["wheel-timer-attempt"] == "1"
    standardwebhooks.Webhook(SECRET).verify(received.body, received.headers)
    assert (told["answer"]["status"], told["answer"]["excerpt"]) == (200, "hi")
    assert {"name": "x-seen", "value": "yes"} in told["answer"]["headers"]
    assert {"name": "set-cookie", "value": {"set": True}} in told["answer"]["headers"]
    assert (told["address"], told["outcome"], told["error"]) == ("127.0.0.1", "finished", None)
    assert (told["request"]["url"], told["request"]["method"]) == (endpoint.url, "POST")
    assert told["request"]["body_bytes"] == len(received.body)
    sent = {header["name"]: header["value"] for header in told["request"]["headers"]}
    assert sent["authorization"] == {"set": True}
    assert sent["webhook-signature"] == received.headers["webhook-signature"]
    assert 0 <= told["head_ms"] <= told["duration_ms"] < 5_000
    assert "hidden" not in str(told)


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (Answer(204), "finished"),
        (Answer(500, body=b"\x1b[31mred"), "retry"),
        (Answer(410), "failed"),
        (Answer(200, headers=(("wheel-timer-release", "60"),)), "released"),
        (Answer(302, headers=(("location", "http://127.0.0.1:9/"),)), "retry"),
    ],
)
async def test_it_says_what_a_task_would_become(
    client: httpx.AsyncClient, endpoint: Endpoint, answer: Answer, outcome: str
) -> None:
    await put(client, endpoint.url)
    endpoint.answer = answer
    told = await call(client)
    assert (told["answer"]["status"], told["outcome"]) == (answer.status, outcome)
    assert "\x1b" not in told["answer"]["excerpt"]
    assert len(endpoint.received) == 1


@pytest.mark.parametrize("fault", ["silence", "reset", "close", "garbage", "trickle", "flood"])
async def test_a_hostile_endpoint_is_told_of_in_bounded_time(
    client: httpx.AsyncClient, endpoint: Endpoint, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "TIMEOUT_MS_MAX", 300)
    await put(client, endpoint.url, timeout=600)
    endpoint.answer = Answer(fault=fault)
    told = await call(client)
    assert told["timeout_ms"] == 300
    assert told["duration_ms"] < 3_000
    if fault == "flood":
        assert told["answer"]["status"] == 200
    else:
        assert told["answer"] is None
        assert told["error"]
        assert told["outcome"] == "retry"
    assert (await client.get("/v1/biz/orders")).status_code == 200


async def test_the_address_policy_holds_for_it(context: Context, endpoint: Endpoint) -> None:
    key = "correct horse battery staple"
    async with client_of(context, admin_key=key) as client:
        client.headers["authorization"] = f"Bearer {key}"
        await put(client, endpoint.url)
        told = await call(client)
        assert (told["answer"], told["error_class"]) == (None, "refused")
        assert endpoint.received == []


async def test_what_a_submit_would_refuse_is_refused(
    client: httpx.AsyncClient, endpoint: Endpoint
) -> None:
    await put(client, endpoint.url)
    for body, pointer in (
        ({"biz_data_base64": "?"}, "#/biz_data_base64"),
        ({"biz_data": 1, "biz_data_base64": "AA=="}, "#/biz_data"),
        ({"content_type": "x"}, "#/content_type"),
        ({"callback": {"url": endpoint.url}}, "#/callback"),
        ({"callback": {"url": "ftp://x"}}, "#/callback/url"),
        ({"delay": 1}, "#/delay"),
        ({"callback": 7}, "#/callback"),
    ):
        answer = await client.post("/v1/biz/orders/test", json=body)
        assert answer.status_code == 422
        assert pointer in [error["pointer"] for error in answer.json()["errors"]]
    assert (await client.post("/v1/biz/none/test", json={})).status_code == 404
    assert endpoint.received == []


async def test_a_task_that_brings_its_own_callback_is_tried_with_one(
    client: httpx.AsyncClient, endpoint: Endpoint
) -> None:
    await client.put("/v1/biz/orders", json={"allow_callback_override": True})
    needed = await client.post("/v1/biz/orders/test", json={})
    assert needed.json()["errors"][0]["pointer"] == "#/callback"
    told = await call(client, callback={"url": endpoint.url, "method": "PUT"})
    assert (told["request"]["method"], told["outcome"]) == ("PUT", "finished")


async def test_too_many_at_once_are_put_off(
    client: httpx.AsyncClient, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "AT_ONCE_MAX", 2)
    await put(client, endpoint.url)
    endpoint.answer = Answer(delay_s=0.3)
    calls = [client.post("/v1/biz/orders/test", json={}) for _ in range(4)]
    statuses = sorted(answer.status_code for answer in await asyncio.gather(*calls))
    assert statuses == [200, 200, 503, 503]
    endpoint.answer = Answer()
    await call(client)
