"""Changing a biz_type that exists: PATCH, DELETE, pause, rotation; conditions; who is late."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import psycopg
import pytest

from broker.api.context import Context
from broker.registry import Registry
from tests.integration.api.conftest import client_of
from wheel_timer.biz import BizTypeIn
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.store import biz as store
from wheel_timer.store.submit import submit
from wheel_timer.task import NewTask
from wheel_timer.wheel import new_task_id

URL = "http://a.example/callback"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
FAR_MS = 4_000_000_000_000


async def test_a_patch_changes_what_it_says(client: httpx.AsyncClient, orders: str) -> None:
    before = (await client.get("/v1/biz/orders")).json()
    for media_type in ("application/json", "application/merge-patch+json"):
        answer = await client.patch(
            "/v1/biz/orders", content=b'{"timeout": 7}', headers={"content-type": media_type}
        )
        assert answer.status_code == 200
    after = answer.json()
    assert after == before | {"timeout": 7.0, "version": after["version"]}
    assert answer.headers["etag"] == f'"{after["version"]}"'
    back = (await client.patch("/v1/biz/orders", json={"timeout": None})).json()
    assert back == before | {"version": back["version"]}


@pytest.mark.parametrize(
    ("body", "status", "pointer"),
    [
        ({"timeout": 0}, 422, "#/timeout"),
        ({"retry": {"max_attempts": 0}}, 422, "#/retry/max_attempts"),
        ({"retry": {"nope": 1}}, 422, "#/retry/nope"),
        ({"nope": 1}, 422, "#/nope"),
        ({"nope": None}, 422, "#/nope"),
        ({"biz_type": "other"}, 422, "#/biz_type"),
        ({"callback_url": "ftp://x"}, 422, "#/callback_url"),
        ({"callback_headers": 7}, 422, "#/callback_headers"),
        ({"callback_headers": {"host": "x"}}, 422, "#/callback_headers/host"),
        ({"on_failed": "none"}, 422, "#/on_failed"),
        ({"on_failed": "orders"}, 422, "#/on_failed"),
        ({"secret": "short"}, 422, "#/secret"),
        ({"version": "x"}, 422, "#/version"),
        ({"version": 1_000_000}, 412, None),
        ({"version": 0}, 422, "#/version"),
        ([], 422, "#"),
    ],
)
async def test_a_patch_that_breaks_a_rule_changes_nothing(
    client: httpx.AsyncClient, orders: str, body: Any, status: int, pointer: str | None
) -> None:
    before = (await client.get("/v1/biz/orders")).json()
    answer = await client.patch("/v1/biz/orders", json=body)
    assert answer.status_code == status
    if pointer is not None:
        assert pointer in [error["pointer"] for error in answer.json()["errors"]]
    assert (await client.get("/v1/biz/orders")).json() == before


async def test_what_is_not_there_cannot_be_changed(client: httpx.AsyncClient) -> None:
    for method, path in (
        ("PATCH", "/v1/biz/none"),
        ("DELETE", "/v1/biz/none"),
        ("DELETE", "/v1/biz/%00"),
        ("POST", "/v1/biz/none/pause"),
        ("POST", "/v1/biz/none/resume"),
        ("POST", "/v1/biz/none/rotate-secret"),
        ("GET", "/v1/biz/none/history"),
    ):
        body: Any = {} if method in ("PATCH", "POST") else None
        answer = await client.request(method, path, json=body)
        assert (method, path, answer.status_code) == (method, path, 404)


async def test_a_patch_takes_json_only(client: httpx.AsyncClient, orders: str) -> None:
    for content_type, content, status in (
        ("text/plain", b"{}", 415),
        ("application/json", b"{", 400),
        ("application/json", b"", 400),
    ):
        headers = {"content-type": content_type}
        answer = await client.patch("/v1/biz/orders", content=content, headers=headers)
        assert answer.status_code == status


@pytest.mark.parametrize("depth", [65, 200, 900, 100_000])
async def test_a_patch_nested_without_end_is_refused(
    client: httpx.AsyncClient, orders: str, depth: int
) -> None:
    content = b'{"retry": ' + b'{"x": ' * depth + b"1" + b"}" * depth + b"}"
    answer = await client.patch("/v1/biz/orders", content=content)
    assert answer.status_code == 422
    declared = b'{"biz_types": {"orders": ' + content + b"}}"
    assert (await client.post("/v1/apply", content=declared)).status_code == 422


async def test_a_get_of_what_was_seen_says_so(client: httpx.AsyncClient, orders: str) -> None:
    tag = (await client.get("/v1/biz/orders")).headers["etag"]
    for seen, status in ((tag, 304), (f'"0", W/{tag}', 304), ('"0"', 200), ("", 200)):
        answer = await client.get("/v1/biz/orders", headers={"If-None-Match": seen})
        assert (answer.status_code, answer.headers["etag"]) == (status, tag)
        assert (answer.content == b"") == (status == 304)


async def test_a_limit_is_lifted_although_it_has_a_burst(
    client: httpx.AsyncClient, orders: str
) -> None:
    await client.patch("/v1/biz/orders", json={"rate_limit": 50, "burst": 5})
    lifted = (await client.patch("/v1/biz/orders", json={"rate_limit": None})).json()
    assert (lifted["rate_limit"], lifted["burst"]) == (None, 5)


async def test_create_only(client: httpx.AsyncClient) -> None:
    create = {"If-None-Match": "*"}
    first = await client.put("/v1/biz/o", json={"callback_url": URL}, headers=create)
    second = await client.put("/v1/biz/o", json={"callback_url": URL}, headers=create)
    assert (first.status_code, second.status_code) == (201, 412)
    for headers in ({"If-None-Match": '"1"'}, create | {"If-Match": '"1"'}):
        refused = await client.put("/v1/biz/o", json={"callback_url": URL}, headers=headers)
        assert refused.status_code == 422


async def test_of_many_creates_at_once_one_is_first(client: httpx.AsyncClient) -> None:
    create = {"If-None-Match": "*"}
    puts = [
        client.put("/v1/biz/o", json={"callback_url": URL, "timeout": i + 1}, headers=create)
        for i in range(8)
    ]
    statuses = sorted(answer.status_code for answer in await asyncio.gather(*puts))
    assert statuses == [201, *[412] * 7]


async def test_of_many_changes_of_one_version_one_is_made(
    client: httpx.AsyncClient, orders: str
) -> None:
    tag = (await client.get("/v1/biz/orders")).headers["etag"]
    seen = {"If-Match": tag}
    changes = [
        *(client.patch("/v1/biz/orders", json={"timeout": i}, headers=seen) for i in (2, 3, 4)),
        client.post("/v1/biz/orders/pause", headers=seen),
        client.post("/v1/biz/orders/rotate-secret", json={}, headers=seen),
        client.delete("/v1/biz/orders", headers=seen),
    ]
    statuses = [answer.status_code for answer in await asyncio.gather(*changes)]
    assert len([status for status in statuses if status < 300]) == 1
    assert statuses.count(412) == len(changes) - 1


async def test_changes_at_once_without_a_condition_are_all_made(
    client: httpx.AsyncClient, orders: str
) -> None:
    """Each is a read and a write; who is overtaken reads again, so no change undoes another."""
    answers = await asyncio.gather(
        client.patch("/v1/biz/orders", json={"timeout": 3}),
        client.patch("/v1/biz/orders", json={"priority": 9}),
        client.post("/v1/biz/orders/pause"),
        client.patch("/v1/biz/orders", json={"spread": 1}),
    )
    assert [answer.status_code for answer in answers] == [200] * 4
    stands = (await client.get("/v1/biz/orders")).json()
    assert (stands["timeout"], stands["priority"], stands["spread"]) == (3.0, 9, 1.0)
    assert stands["paused"]


async def test_pause_and_resume_may_be_said_again(client: httpx.AsyncClient, orders: str) -> None:
    paused = [await client.post("/v1/biz/orders/pause") for _ in range(2)]
    assert [answer.json()["paused"] for answer in paused] == [True, True]
    assert paused[0].json() == paused[1].json()
    resumed = [await client.post("/v1/biz/orders/resume", json={}) for _ in range(2)]
    assert [answer.json()["paused"] for answer in resumed] == [False, False]
    assert resumed[0].json()["version"] > paused[0].json()["version"]
    assert (await client.post("/v1/biz/orders/pause", json={"x": 1})).status_code == 422


async def test_on_failed_leads_to_a_biz_type_that_stays(client: httpx.AsyncClient) -> None:
    body = {"callback_url": URL, "on_failed": "dead"}
    refused = await client.put("/v1/biz/orders", json=body)
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "#/on_failed")
    await client.put("/v1/biz/dead", json={"callback_url": URL})
    assert (await client.put("/v1/biz/orders", json=body)).status_code == 201
    kept = await client.delete("/v1/biz/dead")
    assert (kept.status_code, kept.json()["type"]) == (409, "/problems/biz-type-in-use")
    assert "orders" in kept.json()["detail"]
    assert (await client.delete("/v1/biz/orders")).status_code == 204
    assert (await client.delete("/v1/biz/dead")).status_code == 204


async def test_a_delete_and_an_on_failed_at_once_leave_no_loose_end(db: Database) -> None:
    given = BizTypeIn(callback_url=URL)
    for i in range(10):
        await store.put(db, f"dead{i}", given)
        named = BizTypeIn(callback_url=URL, on_failed=f"dead{i}")
        outcomes = await asyncio.gather(
            store.put(db, f"orders{i}", named),
            store.delete(db, f"dead{i}", None, actor="local"),
            return_exceptions=True,
        )
        assert len([one for one in outcomes if isinstance(one, Exception)]) == 1
        there = {biz.biz_type for biz in (await store.load_newer(db, 0)).biz_types}
        assert {f"orders{i}", f"dead{i}"} <= there or not {f"orders{i}", f"dead{i}"} & there


async def test_a_biz_type_with_work_is_not_deleted(
    client: httpx.AsyncClient, orders: str, db: Database, database_url: str
) -> None:
    task = NewTask(new_task_id(FAR_MS), FAR_MS, "orders")
    await submit(db, 0, [task])
    answer = await client.delete("/v1/biz/orders")
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/biz-type-in-use")
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "UPDATE timer_task SET status = 2, finish_time = 1, expire_at = 2 WHERE task_id = %s",
            [task.task_id],
        )
        connection.execute(
            "SELECT wheel_ledger_v1(ARRAY[64], ARRAY['orders'], ARRAY[%s], ARRAY[0])", [FAR_MS]
        )
        connection.execute("INSERT INTO timer_dead VALUES (%s, 1, 'orders')", [task.task_id])
    assert (await client.delete("/v1/biz/orders")).status_code == 409
    with psycopg.connect(database_url) as connection:
        connection.execute("DELETE FROM timer_dead")
    assert (await client.delete("/v1/biz/orders")).status_code == 204
    assert (await client.get("/v1/biz/orders")).status_code == 404
    gone = await client.post("/v1/tasks", json={"biz_type": "orders", "delay": 1})
    assert gone.json()["type"] == "/problems/biz-type-unknown"


async def test_every_broker_forgets_what_was_deleted(db: Database) -> None:
    clock = Clock(db)
    registry = Registry(db)
    given = BizTypeIn(callback_url=URL)
    await store.put(db, "orders", given)
    await store.put(db, "refunds", given)
    await registry.load()
    clock.on_biz_version(registry.pulse)
    gone: asyncio.Queue[Any] = asyncio.Queue()
    made: asyncio.Queue[Any] = asyncio.Queue()
    registry.on_delete(gone.put_nowait)
    registry.on_change(made.put_nowait)
    await store.delete(db, "orders", None, actor="local")
    await clock.measure()
    assert await asyncio.wait_for(gone.get(), 5) == ["orders"]
    assert registry.names() == ["refunds"]
    made_again = (await store.put(db, "orders", given)).biz
    await clock.measure()
    assert await asyncio.wait_for(made.get(), 5) == [made_again]
    assert registry.get("orders") == made_again
    late = Registry(db)
    await late.load()
    assert late.version == registry.version


async def test_a_rotation_returns_a_secret_that_was_made_here_once(
    client: httpx.AsyncClient, context: Context, orders: str
) -> None:
    await client.patch("/v1/biz/orders", json={"secret": SECRET})
    answer = await client.post("/v1/biz/orders/rotate-secret", json={"grace": 60})
    assert answer.status_code == 200
    assert answer.headers["cache-control"] == "no-store"
    made = answer.json()["secret"]
    assert made.startswith("whsec_")
    assert answer.json()["previous_until"] is not None
    biz = context.registry.get("orders")
    assert biz is not None
    assert [one.value for one in biz.secrets] == [made, SECRET]
    assert biz.secrets[1].until_ms == pytest.approx(context.clock.now_ms() + 60_000, abs=5_000)
    own = await client.post("/v1/biz/orders/rotate-secret", json={"secret": SECRET, "grace": 0})
    assert (own.json()["secret"], own.json()["previous_until"]) == ({"set": True}, None)
    assert made not in (await client.get("/v1/biz/orders")).text


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"secret": "x"}, "#/secret"),
        ({"secret": 7}, "#/secret"),
        ({"grace": -1}, "#/grace"),
        ({"grace": 2_592_001}, "#/grace"),
        ({"graze": 1}, "#/graze"),
    ],
)
async def test_a_rotation_that_breaks_a_rule_changes_nothing(
    client: httpx.AsyncClient, orders: str, body: Any, pointer: str
) -> None:
    before = (await client.get("/v1/biz/orders")).json()
    answer = await client.post("/v1/biz/orders/rotate-secret", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert (await client.get("/v1/biz/orders")).json() == before


async def test_the_history_tells_every_version_with_who_and_when(
    context: Context, orders: str
) -> None:
    key = "correct horse battery staple"
    async with client_of(context, admin_key=key) as client:
        client.headers["authorization"] = f"Bearer {key}"
        await client.patch("/v1/biz/orders", json={"timeout": 3})
        await client.post("/v1/biz/orders/pause")
        await client.post("/v1/biz/orders/pause")
        await client.delete("/v1/biz/orders")
        history = (await client.get("/v1/biz/orders/history")).json()
        assert [(one["action"], one["actor"]) for one in history["items"]] == [
            ("biz.delete", "admin"),
            ("biz.pause", "admin"),
            ("biz.patch", "admin"),
            ("biz.put", "local"),
        ]
        assert history["items"][0]["biz_type"] is None
        assert [one["biz_type"]["timeout"] for one in history["items"][1:]] == [3.0, 3.0, 10.0]
        for one in history["items"][1:]:
            assert one["biz_type"]["version"] == one["version"]
        page = (await client.get("/v1/biz/orders/history?limit=3")).json()
        cursor = {"cursor": page["next_cursor"]}
        rest = (await client.get("/v1/biz/orders/history?limit=3", params=cursor)).json()
        assert page["items"] + rest["items"] == history["items"]
        assert rest["next_cursor"] is None
