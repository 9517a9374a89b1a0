"""GET /v1/changes: everything that was changed by the API; and no secret anywhere in it."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import psycopg
import pytest

from wheel_timer.database import Database

URL = "http://a.example/callback"
PLANTED = ("whsec_UExBTlRFRC1TRUNSRVQtT05FLU9ORS1PTkU=", "planted-header-value")
PLANTED_NEXT = ("whsec_UExBTlRFRC1TRUNSRVQtVFdPLVRXTy1UV08=", "planted-second-value")


async def pages(client: httpx.AsyncClient, **query: Any) -> list[Any]:
    items: list[Any] = []
    cursor: dict[str, str] = {}
    while True:
        answer = await client.get("/v1/changes", params=query | cursor)
        assert answer.status_code == 200, answer.text
        items += answer.json()["items"]
        if answer.json()["next_cursor"] is None:
            return items
        cursor = {"cursor": answer.json()["next_cursor"]}


async def test_a_change_says_what_differs(client: httpx.AsyncClient, orders: str) -> None:
    await client.patch("/v1/biz/orders", json={"timeout": 3, "priority": 7})
    await client.post("/v1/biz/orders/pause")
    await client.post("/v1/biz/orders/pause")
    await client.delete("/v1/biz/orders")
    deleted, paused, patched, created = await pages(client)
    assert (patched["old"], patched["new"]) == (
        {"timeout": 10.0, "priority": 5},
        {"timeout": 3.0, "priority": 7},
    )
    assert (paused["old"], paused["new"]) == ({"paused": False}, {"paused": True})
    assert (created["old"], deleted["new"]) == (None, None)
    assert created["new"]["timeout"] == 10.0
    assert deleted["old"]["timeout"] == 3.0
    assert {one["object"] for one in (deleted, paused, patched, created)} == {"orders"}
    assert {one["actor"] for one in (deleted, paused, patched, created)} == {"local"}


async def test_they_come_in_pages_newest_first_and_by_what_is_asked(
    client: httpx.AsyncClient, database_url: str
) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute(
            """
            INSERT INTO timer_change (time, actor, action, object)
            SELECT 1800000000000 + n / 3, 'key:' || n % 5, 'task.cancel', 'task' || n % 7
            FROM generate_series(1, 12000) AS n
            """
        )
    everything = await pages(client, limit=1000)
    assert len(everything) == 12_000
    ids = [one["change_id"] for one in everything]
    assert ids == sorted(ids, reverse=True)
    some = await pages(client, limit=700, actor="key:3", object="task2")
    assert [one["change_id"] for one in some] == [
        one["change_id"]
        for one in everything
        if (one["actor"], one["object"]) == ("key:3", "task2")
    ]
    assert await pages(client, action="biz.put") == []
    span = await pages(client, **{"from": "1800000001", "to": "2027-01-15T08:00:02Z"})
    assert {one["time"] for one in span} <= {one["time"] for one in everything}
    assert len(span) == 3_000


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=x",
        "cursor=x",
        "cursor=%00",
        "from=yesterday",
        "to=-1",
        "from=2026-01-01T00:00:00",
        "actor=",
        "object=%00",
        "action=" + "x" * 257,
        "since=1",
        "actor=a&actor=b",
    ],
)
async def test_a_list_refuses_what_it_does_not_know(client: httpx.AsyncClient, query: str) -> None:
    answer = await client.get(f"/v1/changes?{query}")
    assert answer.status_code == 422
    answer = await client.get(f"/v1/biz/orders/history?{query}")
    assert answer.status_code in (404, 422)


async def test_a_cursor_is_of_its_own_query(client: httpx.AsyncClient, orders: str) -> None:
    await client.post("/v1/biz/orders/pause")
    cursor = (await client.get("/v1/changes?limit=1")).json()["next_cursor"]
    answer = await client.get(f"/v1/changes?limit=1&actor=local&cursor={cursor}")
    assert answer.status_code == 422


async def test_a_failed_write_leaves_no_change(
    client: httpx.AsyncClient, orders: str, db: Database
) -> None:
    before = await pages(client)
    for answer in (
        await client.patch("/v1/biz/orders", json={"on_failed": "none"}),
        await client.patch("/v1/biz/orders", json={"timeout": 3}, headers={"If-Match": '"99999"'}),
        await client.put("/v1/biz/orders", json={"callback_url": "x"}),
    ):
        assert answer.status_code in (412, 422)
    assert await pages(client) == before


async def test_a_planted_secret_is_nowhere(
    client: httpx.AsyncClient, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever is done with it, right or wrong: answers, errors, logs, changes, history, views."""
    caplog.set_level(logging.DEBUG)
    secret, header = PLANTED
    other_secret, other_header = PLANTED_NEXT
    body = {
        "callback_url": URL,
        "secret": secret,
        "callback_headers": {"authorization": header, "x-api-key": header},
    }
    put_bodies: tuple[Any, ...] = (
        body,
        body | {"timeout": -1},
        body | {"secret": secret + secret},
        body | {"secret": [secret]},
        body | {"callback_headers": {"authorization": header + "\n"}},
        body | {"callback_headers": {"authorization": [header]}},
        body | {"callback_headers": {"Authorization": header, "authorization": header}},
        body | {"on_failed": "none"},
    )
    headers = {"authorization": other_header, "cookie": header}
    patches: tuple[Any, ...] = (
        {"secret": other_secret, "callback_headers": headers},
        {"secret": other_secret, "timeout": "x"},
        {"secret": secret[:-1] + "?"},
        {"callback_headers": {"authorization": header, "AUTHORIZATION": header}},
        {"callback_headers": None},
        {"secret": None},
    )
    rotations: tuple[Any, ...] = (
        {"secret": secret},
        {"secret": other_secret, "grace": -1},
        {"secret": other_secret, "grace": 60},
        {"secret": other_secret + "!"},
    )
    path = "/v1/biz/orders"
    paths = (path, "/v1/biz", f"{path}/history", "/v1/changes", "/metrics")
    cut_off = f'{{"secret": "{secret}"'.encode()
    answers = [
        *[await client.put(path, json=given) for given in put_bodies],
        *[await client.patch(path, json=patch) for patch in patches],
        *[await client.post(f"{path}/rotate-secret", json=rotation) for rotation in rotations],
        await client.put(path, content=cut_off),
        *[await client.get(one) for one in paths],
        await client.delete(path),
        *[await client.get(one) for one in paths[1:]],
    ]
    assert {answer.status_code for answer in answers} == {200, 201, 204, 400, 422}
    texts = [answer.text for answer in answers] + [caplog.text]
    with psycopg.connect(database_url) as connection:
        for table in ("timer_change", "timer_change_view", "timer_biz_history"):
            rows = connection.execute(f"SELECT * FROM {table}".encode()).fetchall()
            assert len(rows) >= 6
            texts.append(str(rows))
    for planted in (*PLANTED, *PLANTED_NEXT):
        for text in texts:
            assert planted not in text
            assert planted.removeprefix("whsec_")[:20] not in text
