"""The configuration as a key sees it that is narrowed to some biz_types."""

from __future__ import annotations

import httpx
import pytest_asyncio

from broker.api.actor import SCOPES
from broker.api.context import Context
from tests.integration.api.conftest import client_of

ADMIN_KEY = "correct horse battery staple"
CALLBACK = {"callback_url": "http://a.example/callback"}


@pytest_asyncio.fixture
async def narrowed(context: Context) -> httpx.AsyncClient:
    """A client whose key may do everything with orders.* alone; there is payments beside it."""
    http = client_of(context, admin_key=ADMIN_KEY)
    http.headers["authorization"] = f"Bearer {ADMIN_KEY}"
    await http.put("/v1/biz/payments", json=CALLBACK)
    body = {"name": "shop", "scopes": list(SCOPES), "biz_types": ["orders.*"]}
    made = (await http.post("/v1/keys", json=body)).json()
    http.headers["authorization"] = f"Bearer {made['key']}"
    return http


async def test_what_it_does_not_see_is_not_there(narrowed: httpx.AsyncClient) -> None:
    for method, path in (
        ("GET", ""),
        ("PUT", ""),
        ("PATCH", ""),
        ("DELETE", ""),
        ("DELETE", "?purge=true"),
        ("GET", "/history"),
        ("GET", "/stats"),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/test"),
        ("POST", "/purge"),
        ("POST", "/rotate-secret"),
    ):
        answer = await narrowed.request(method, f"/v1/biz/payments{path}")
        assert (method, path, answer.status_code) == (method, path, 404)
    assert (await narrowed.get("/v1/biz")).json()["items"] == []


async def test_it_applies_and_names_only_what_it_sees(narrowed: httpx.AsyncClient) -> None:
    foreign = {"biz_types": {"orders.close": CALLBACK, "payments": CALLBACK}}
    assert (await narrowed.post("/v1/apply", json=foreign)).status_code == 404
    assert (await narrowed.get("/v1/biz")).json()["items"] == []
    named = CALLBACK | {"on_failed": "payments"}
    for answer in (
        await narrowed.put("/v1/biz/orders.close", json=named),
        await narrowed.post("/v1/apply", json={"biz_types": {"orders.close": named}}),
    ):
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["detail"] == "there is no biz_type 'payments'"
    assert (await narrowed.put("/v1/biz/orders.close", json=CALLBACK)).status_code == 201
    patched = await narrowed.patch("/v1/biz/orders.close", json={"on_failed": "payments"})
    assert patched.status_code == 422


async def test_it_reads_the_changes_of_what_it_sees(narrowed: httpx.AsyncClient) -> None:
    await narrowed.put("/v1/biz/orders.close", json=CALLBACK)
    items = (await narrowed.get("/v1/changes")).json()["items"]
    assert [(one["action"], one["object"]) for one in items] == [("biz.put", "orders.close")]
    assert (await narrowed.get("/v1/changes?object=payments")).json()["items"] == []
    history = (await narrowed.get("/v1/biz/orders.close/history")).json()["items"]
    assert history[0]["actor"].startswith("key:")
