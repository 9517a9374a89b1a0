"""POST /v1/apply: all of a declaration or nothing, and what it changes."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from wheel_timer.database import Database
from wheel_timer.store import biz as store

URL = "http://a.example/callback"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


async def apply(client: httpx.AsyncClient, *, dry_run: bool = False, **biz_types: Any) -> Any:
    body = {"biz_types": biz_types, "dry_run": dry_run}
    answer = await client.post("/v1/apply", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()["changes"]


async def test_it_creates_changes_and_leaves(client: httpx.AsyncClient) -> None:
    orders = {"callback_url": URL, "on_failed": "dead", "secret": SECRET}
    dead = {"callback_url": URL}
    created = await apply(client, orders=orders, dead=dead)
    assert [(one["biz_type"], one["action"], one["old"]) for one in created] == [
        ("orders", "created", None),
        ("dead", "created", None),
    ]
    assert SECRET not in str(created)
    again = await apply(client, orders=orders, dead=dead)
    assert [(one["action"], one["old"], one["new"]) for one in again] == [("unchanged", {}, {})] * 2
    assert [one["version"] for one in again] == [one["version"] for one in created]
    changed = await apply(client, orders=orders | {"timeout": 3}, dead=dead)
    assert [one["action"] for one in changed] == ["changed", "unchanged"]
    assert (changed[0]["old"], changed[0]["new"]) == ({"timeout": 10.0}, {"timeout": 3.0})
    assert (await client.get("/v1/biz/orders")).json()["version"] == changed[0]["version"]


async def test_a_dry_run_tells_the_same_and_writes_nothing(
    client: httpx.AsyncClient, orders: str
) -> None:
    before = (await client.get("/v1/biz")).json()
    declared: dict[str, Any] = {
        "orders": {"callback_url": URL, "timeout": 3},
        "fresh": {"callback_url": URL},
    }
    told = await apply(client, dry_run=True, **declared)
    assert (await client.get("/v1/biz")).json() == before
    assert [one["version"] for one in told] == [before["items"][0]["version"], None]
    done = await apply(client, **declared)
    for one in (*told, *done):
        del one["version"]
    assert told == done


async def test_what_is_not_declared_is_left_alone(client: httpx.AsyncClient, orders: str) -> None:
    before = (await client.get("/v1/biz/orders")).json()
    await apply(client, other={"callback_url": URL})
    assert await apply(client) == []
    assert (await client.get("/v1/biz/orders")).json() == before


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    ("bad", "pointers"),
    [
        ({"bad": {"callback_url": "x"}}, ["#/biz_types/bad/callback_url"]),
        ({"bad": {"callback_url": URL, "nope": 1}}, ["#/biz_types/bad/nope"]),
        ({"bad": {"callback_url": URL, "timeout": 0}}, ["#/biz_types/bad/timeout"]),
        ({"bad": {"callback_url": URL, "on_failed": "none"}}, ["#/biz_types/bad/on_failed"]),
        ({"bad": {"callback_url": URL, "secret": {"set": True}}}, ["#/biz_types/bad/secret"]),
        ({"bad": 7}, ["#/biz_types/bad"]),
        ({"Bad/~": {"callback_url": URL}}, ["#/biz_types/Bad~1~0"]),
        (
            {"bad": {"callback_url": "x"}, "worse": {"secret": "x"}},
            [
                "#/biz_types/bad/callback_url",
                "#/biz_types/worse/callback_url",
                "#/biz_types/worse/secret",
            ],
        ),
    ],
)
async def test_one_fault_and_nothing_is_changed(
    client: httpx.AsyncClient, orders: str, bad: Any, pointers: list[str], dry_run: bool
) -> None:
    before = (await client.get("/v1/biz")).json()
    good = {"orders": {"callback_url": URL, "timeout": 3}, "fresh": {"callback_url": URL}}
    body = {"biz_types": good | bad, "dry_run": dry_run}
    answer = await client.post("/v1/apply", json=body)
    assert answer.status_code == 422
    assert [error["pointer"] for error in answer.json()["errors"]] == pointers
    assert (await client.get("/v1/biz")).json() == before
    assert len((await client.get("/v1/changes")).json()["items"]) == 1


async def test_what_else_is_refused(client: httpx.AsyncClient, orders: str) -> None:
    for body, status in (
        ({}, 422),
        ({"biz_types": []}, 422),
        ({"biz_types": {}, "schedules": []}, 422),
        ({"biz_types": {}, "dry_run": 1}, 422),
        ({"biz_types": {f"t{i}": {"callback_url": URL} for i in range(1001)}}, 422),
        ({"biz_types": {"orders": {"callback_url": URL, "version": 99_999}}}, 412),
        ({"biz_types": {"orders": {"callback_url": URL, "version": 0}}}, 422),
    ):
        answer = await client.post("/v1/apply", json=body)
        assert (body, answer.status_code) == (body, status)


async def test_applies_at_once_end_as_one_of_them(db: Database, client: httpx.AsyncClient) -> None:
    """Each writes all of its biz_types under one lock: no mixture of two is left."""
    names = [f"t{i}" for i in range(6)]
    declared: list[dict[str, Any]] = [
        {name: {"callback_url": URL, "timeout": i + 1} for name in names} for i in range(4)
    ]
    await asyncio.gather(*(apply(client, **one) for one in declared))
    news = await store.load_newer(db, 0)
    assert len({biz.timeout for biz in news.biz_types}) == 1
    assert len(news.biz_types) == 6


async def test_a_mark_that_says_no_removes(client: httpx.AsyncClient) -> None:
    """As null does, which TOML has not."""
    declared = {"callback_url": URL, "secret": SECRET, "callback_headers": {"x-key": "v"}}
    await apply(client, orders=declared)
    gone = {"set": False}
    removing = {"callback_url": URL, "secret": gone, "callback_headers": {"x-key": gone}}
    await apply(client, orders=removing)
    shown = (await client.get("/v1/biz/orders")).json()
    assert (shown["secret"], shown["callback_headers"]) == (None, {})


async def test_what_was_paused_stays_so_unless_the_declaration_says_otherwise(
    client: httpx.AsyncClient,
) -> None:
    declared = {"callback_url": URL}
    await apply(client, orders=declared)
    await client.post("/v1/biz/orders/pause")
    (kept,) = await apply(client, orders=declared)
    assert kept["action"] == "unchanged"
    (changed,) = await apply(client, orders=declared | {"timeout": 3})
    assert changed["new"] == {"timeout": 3.0}
    (resumed,) = await apply(client, orders=declared | {"paused": False})
    assert (resumed["old"]["paused"], resumed["new"]["paused"]) == (True, False)
