"""The surface as a whole: problems, request ids, methods, pages, access, what operators look at."""

from __future__ import annotations

import json
import re
from typing import Any

import httpx
import pytest
from openapi_spec_validator import validate
from redis.asyncio import Redis

from broker.api import app
from broker.api.context import Context
from broker.api.problems import KINDS
from tests.integration.api.conftest import client_of
from wheel_timer import metrics
from wheel_timer.database import Database
from wheel_timer.errors import DatabaseUnavailable
from wheel_timer.eventcenter import EventCenter
from wheel_timer.waits import LaneWait

KEY = "correct horse battery staple"


async def test_a_problem_knows_its_request(client: httpx.AsyncClient) -> None:
    first = await client.get("/v1/nothing")
    second = await client.get("/v1/nothing", headers={"x-request-id": "mine-1"})
    assert first.status_code == 404
    assert first.headers["content-type"] == "application/problem+json"
    problem = first.json()
    assert problem == {
        "type": "/problems/not-found",
        "title": "There is no such thing",
        "status": 404,
        "detail": "there is no such path",
        "request_id": first.headers["x-request-id"],
    }
    assert second.headers["x-request-id"] == second.json()["request_id"] == "mine-1"


async def test_a_request_id_that_is_not_sane_is_replaced(client: httpx.AsyncClient) -> None:
    for given in ("", "a b", "a" * 129, "ä", "<script>"):
        headers = {b"x-request-id": given.encode("latin-1")}
        answer = await client.get("/v1/limits", headers=headers)
        assert re.fullmatch(r"[0-9a-f]{12}-[0-9a-f]+", answer.headers["x-request-id"])


async def test_another_method_is_a_405_that_says_which_there_are(client: httpx.AsyncClient) -> None:
    for method, path, allowed in (
        ("PUT", "/v1/tasks", "GET, HEAD, POST"),
        ("DELETE", "/v1/tasks/batch", "POST"),
        ("POST", "/v1/biz", "GET, HEAD"),
        ("POST", "/v1/biz/orders", "DELETE, GET, HEAD, PATCH, PUT"),
        ("PUT", "/v1/tasks/01a1fca3-faf0-8000-9a6f-40ff88fb5aeb", "DELETE, GET, HEAD, PATCH"),
        ("OPTIONS", "/v1/tasks", "GET, HEAD, POST"),
        ("POST", "/docs", "GET, HEAD"),
        ("POST", "/healthz", "GET, HEAD"),
    ):
        answer = await client.request(method, path)
        assert answer.status_code == 405
        assert answer.headers["allow"] == allowed
        assert answer.json()["type"] == "/problems/invalid-request"


async def test_an_unknown_query_name_is_refused(client: httpx.AsyncClient) -> None:
    for method, path in (
        ("POST", "/v1/tasks?dry_run=true"),
        ("POST", "/v1/tasks/batch?x="),
        ("GET", "/v1/limits?x=1"),
        ("GET", "/v1/tasks/01a1fca3-faf0-8000-9a6f-40ff88fb5aeb?full=1"),
        ("PUT", "/v1/biz/orders?force=1"),
    ):
        answer = await client.request(method, path)
        assert answer.status_code == 422
        assert "unknown query name" in answer.json()["detail"]


async def test_another_path_is_a_404(client: httpx.AsyncClient) -> None:
    for path in ("/", "/v1", "/v1/", "/v1/tasks/", "//v1/tasks", "/%761/tasks"):
        assert (await client.get(path)).status_code == 404


async def test_a_fault_of_ours_is_a_500_that_tells_nothing(
    client: httpx.AsyncClient,
    context: Context,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def breaks(*_: Any) -> None:
        raise RuntimeError("of our own making")

    monkeypatch.setattr(context.submitter, "submit", breaks)
    await client.put("/v1/biz/orders", json={"callback_url": "http://a.example/"})
    answer = await client.post("/v1/tasks", json={"biz_type": "orders", "delay": 1})
    assert answer.status_code == 500
    assert answer.json()["type"] == "about:blank"
    assert "making" not in answer.text
    assert "of our own making" in caplog.text
    assert caplog.records[-1].request_id == answer.json()["request_id"]  # type: ignore[attr-defined]


async def test_a_database_that_is_away_is_a_503_that_names_nobody(
    client: httpx.AsyncClient, context: Context, db: Database
) -> None:
    async def fails(*_: Any, **__: Any) -> Any:
        raise DatabaseUnavailable("connection to 10.1.2.3 failed")

    db.fetch = fails  # type: ignore[method-assign]
    for path in ("/v1/wheel", "/v1/biz", "/v1/tasks/01a1fca3-faf0-8000-9a6f-40ff88fb5aeb"):
        answer = await client.get(path)
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert "10.1.2.3" not in answer.text


async def test_the_description_is_valid_and_whole(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    validate(document)
    described = {
        (method.upper(), path) for path, item in document["paths"].items() for method in item
    }
    for operation in app.OPERATIONS:
        assert (operation.method, operation.path) in described
    for path in ("/healthz", "/readyz", "/metrics", "/openapi.json", "/docs", "/problems"):
        assert ("GET", path) in described
        assert (await client.get(path)).status_code == 200
    ids = [one["operationId"] for item in document["paths"].values() for one in item.values()]
    assert len(ids) == len(set(ids))
    for path, item in document["paths"].items():
        for one in item.values():
            statuses = set(one["responses"])
            if path.startswith("/v1/"):
                assert {"401", "403", "422"} <= statuses
            if "requestBody" in one:
                assert {"400", "413", "415", "503"} <= statuses
    assert not json.dumps(document).count("http://")


async def test_the_page_needs_no_script_and_no_other_host(client: httpx.AsyncClient) -> None:
    answer = await client.get("/docs")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert "<script" not in answer.text
    assert not re.findall(r'(?:src|href)="?(?:https?:)?//', answer.text)
    document = (await client.get("/openapi.json")).json()
    for path, item in document["paths"].items():
        assert path in answer.text
        for one in item.values():
            assert f'id="{one["operationId"]}"' in answer.text
    for name in document["components"]["schemas"]:
        assert f'id="type-{name}"' in answer.text
    targets = set(re.findall(r'href="#([^"]+)"', answer.text))
    assert targets <= set(re.findall(r'id="([^"]+)"', answer.text))


async def test_every_type_of_problem_is_explained(client: httpx.AsyncClient) -> None:
    assert set(KINDS) == {
        *("invalid-request", "too-large", "unauthorized", "forbidden", "not-found"),
        *("task-delivering", "task-settled", "key-exists", "biz-type-unknown", "biz-type-in-use"),
        *("stale-version", "claim-lost", "rate-limited", "quota", "overloaded"),
    }
    for name, kind in KINDS.items():
        answer = await client.get(f"/problems/{name}")
        assert answer.status_code == 200
        assert kind.title in answer.text
    assert (await client.get("/problems/none")).status_code == 404


async def test_without_a_key_only_this_machine_is_served(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/limits", headers={"host": "evil.example"})).status_code == 403
    foreign = {"origin": "http://evil.example"}
    assert (await client.put("/v1/biz/a", json={}, headers=foreign)).status_code == 403
    assert (await client.post("/v1/tasks", json={}, headers=foreign)).status_code == 403
    answer = await client.get("/v1/limits", headers=foreign)
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_with_a_key_it_is_asked_for(context: Context) -> None:
    async with client_of(context, admin_key=KEY) as client:
        for path in ("/v1/limits", "/metrics", "/v1/nothing"):
            refused = await client.get(path)
            assert refused.status_code == 401
            assert refused.headers["www-authenticate"] == "Bearer"
            assert refused.json()["type"] == "/problems/unauthorized"
        assert (await client.post("/v1/tasks", json={})).status_code == 401
        for path in ("/healthz", "/readyz", "/docs", "/openapi.json", "/problems/overloaded"):
            assert (await client.get(path)).status_code == 200
        client.headers["authorization"] = f"Bearer {KEY}"
        assert (await client.get("/v1/limits")).status_code == 200
        assert (await client.get("/metrics")).status_code == 200


async def test_the_limits_are_those_of_the_settings(context: Context) -> None:
    async with client_of(context, max_body=2048, max_request=65536) as client:
        limits = (await client.get("/v1/limits")).json()
    assert (limits["biz_data_bytes"], limits["request_bytes"]) == (2048, 65536)
    assert limits["nesting"] == 64


async def test_the_limits_are_those_that_hold(client: httpx.AsyncClient) -> None:
    limits = (await client.get("/v1/limits")).json()
    url = {"callback_url": "http://a.example/"}
    network = ["192.0.2.0/24"]
    for least_beyond, most in (
        (
            {"rate_limit": limits["rate_to"] * 1.01},
            {"rate_limit": limits["rate_to"], "burst": limits["burst"]},
        ),
        ({"rate_limit": limits["rate_from"] / 2}, {"submit_rate_limit": limits["rate_from"]}),
        ({"rate_limit": 1, "burst": limits["burst"] + 1}, {"rate_limit": 1, "burst": 1}),
        (
            {"max_concurrency": limits["max_concurrency"] + 1},
            {"max_concurrency": limits["max_concurrency"]},
        ),
        ({"timeout": limits["timeout_s_to"] + 1}, {"timeout": limits["timeout_s_from"]}),
        ({"max_age": limits["policy_s"] + 1}, {"retention": limits["policy_s"]}),
        ({"spread": limits["biz_type_spread_s"] + 1}, {"spread": limits["biz_type_spread_s"]}),
        (
            {"retry": {"ladder": [1] * (limits["retry_ladder_steps"] + 1)}},
            {"retry": {"ladder": [limits["retry_delay_s"]] * limits["retry_ladder_steps"]}},
        ),
        (
            {"callback_allow": network * (limits["callback_allow_networks"] + 1)},
            {"callback_allow": network * limits["callback_allow_networks"]},
        ),
        (
            {"retry": {"max_attempts": limits["retry_attempts"] + 1}},
            {"retry": {"max_attempts": limits["retry_attempts"]}},
        ),
    ):
        beyond = await client.put("/v1/biz/limited", json=url | least_beyond)
        assert (least_beyond, beyond.status_code) == (least_beyond, 422)
        within = await client.put("/v1/biz/limited", json=url | most)
        assert within.status_code in (200, 201), within.text


async def test_the_wheel_shows_hands_and_lanes(
    client: httpx.AsyncClient, orders: str, context: Context, redis_client: Redis
) -> None:
    submitted = (await client.post("/v1/tasks", json={"biz_type": "orders", "delay": 0})).json()
    await context.submitter.stop()
    wheel = (await client.get("/v1/wheel")).json()
    assert [shard["shard"] for shard in wheel["shards"]] == [0]
    shard = wheel["shards"][0]
    assert shard["leader"] is None
    assert shard["sweep_time"] <= shard["current_time"] <= shard["closed_to"]
    assert wheel["lanes"] == [
        {
            "biz_type": "orders",
            "pending": 1,
            "dead": 0,
            "depth": 1,
            "in_flight": 0,
            "oldest_due": submitted["start_time"],
            "max_concurrency": 64,
            "rate_limit": None,
            "priority": 5,
            "paused": False,
            "breaker": "closed",
        }
    ]


async def test_the_wheel_shows_an_open_breaker(
    client: httpx.AsyncClient, orders: str, context: Context
) -> None:
    now_ms = int(context.clock.now_ms())
    await context.event_center.tell_waits(
        {"orders": LaneWait("breaker_open", now_ms, None, now_ms)}
    )
    lane = (await client.get("/v1/wheel")).json()["lanes"][0]
    assert (lane["biz_type"], lane["breaker"]) == ("orders", "open")


async def test_the_wheel_is_shown_with_redis_away(context: Context, orders: str) -> None:
    away = EventCenter(
        "unix:///nowhere/redis.sock", prefix="wt", consumer="test", cluster_id="test"
    )
    async with client_of(context, event_center=away) as client:
        wheel = (await client.get("/v1/wheel")).json()
    await away.close()
    lane = wheel["lanes"][0]
    assert (lane["depth"], lane["breaker"]) == (None, None)
    assert len(wheel["shards"]) == 1


async def test_the_audits_run_and_hold(client: httpx.AsyncClient, orders: str) -> None:
    await client.post("/v1/tasks", json={"biz_type": "orders", "start_time": 1_900_000_000})
    audits = (await client.get("/v1/audits")).json()
    assert audits["holds"] is True
    names = {item["name"]: item for item in audits["items"]}
    assert {"lost", "early", "overdue", "misplaced", "lateness"} <= set(names)
    assert names["lost"]["kind"] == "violation"
    assert all(item["holds"] for item in audits["items"])


async def test_requests_are_counted_by_their_pattern(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int]] = []
    monkeypatch.setattr(metrics, "http_request", lambda route, code, _: seen.append((route, code)))
    for path in ("/v1/tasks/x", "/v1/biz/a/tasks/b", "/v1/limits", "/made/up/1", "/healthz"):
        await client.get(path)
    assert seen == [
        ("/v1/tasks/:task_id", 404),
        ("/v1/biz/:biz_type/tasks/:biz_id", 404),
        ("/v1/limits", 200),
        ("other", 404),
        ("/healthz", 200),
    ]


async def test_head_is_answered_as_get(client: httpx.AsyncClient) -> None:
    assert (await client.head("/v1/limits")).status_code == 200
    assert (await client.head("/healthz")).status_code == 200
