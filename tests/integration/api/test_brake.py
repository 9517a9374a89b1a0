"""The brake of the whole wheel: on, off, over restarts, and who learns of it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import psycopg
import pytest

from broker.api.context import Context
from broker.registry import Registry
from wheel_timer.biz import BizTypeIn
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.store import biz as store
from wheel_timer.store.brake import Brake, pull_brake


async def test_it_is_put_on_and_taken_off(client: httpx.AsyncClient, context: Context) -> None:
    on = await client.post("/v1/wheel/pause", json={"reason": " the endpoint moves "})
    assert on.status_code == 200
    brake = on.json()["brake"]
    assert (brake["reason"], brake["actor"]) == ("the endpoint moves", "local")
    assert (await client.get("/v1/wheel")).json()["brake"] == brake
    assert context.registry.brake is not None
    again = await client.post("/v1/wheel/pause", json={"reason": "the endpoint moves"})
    assert again.json() == on.json()
    other = (await client.post("/v1/wheel/pause", json={"reason": "still"})).json()["brake"]
    assert other == brake | {"reason": "still"}
    for _ in range(2):
        off = await client.post("/v1/wheel/resume")
        assert (off.status_code, off.json()) == (200, {"brake": None})
    assert (await client.get("/v1/wheel")).json()["brake"] is None
    assert context.registry.brake is None


async def test_each_change_of_it_is_written_down_once(
    client: httpx.AsyncClient, database_url: str
) -> None:
    for path, body in (
        ("pause", {"reason": "one"}),
        ("pause", {"reason": "one"}),
        ("pause", {"reason": "two"}),
        ("resume", None),
        ("resume", None),
    ):
        await client.post(f"/v1/wheel/{path}", json=body)
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT actor, action, object, old, new FROM timer_change_view ORDER BY change_id"
        ).fetchall()
    assert rows == [
        ("local", "wheel.pause", "wheel", None, {"reason": "one"}),
        ("local", "wheel.pause", "wheel", {"reason": "one"}, {"reason": "two"}),
        ("local", "wheel.resume", "wheel", {"reason": "two"}, None),
    ]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "#/reason"),
        ({"reason": ""}, "#/reason"),
        ({"reason": "  "}, "#/reason"),
        ({"reason": "a\0b"}, "#/reason"),
        ({"reason": "x" * 501}, "#/reason"),
        ({"reason": 7}, "#/reason"),
        ({"reason": "x", "for": 7}, "#/for"),
    ],
)
async def test_a_reason_is_needed(
    client: httpx.AsyncClient, context: Context, body: Any, pointer: str
) -> None:
    answer = await client.post("/v1/wheel/pause", json=body)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert context.registry.brake is None


async def test_a_verb_takes_no_body_but_an_empty_one(client: httpx.AsyncClient) -> None:
    assert (await client.post("/v1/wheel/resume", json={})).status_code == 200
    answer = await client.post("/v1/wheel/resume", json={"reason": "x"})
    assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "#/reason")
    assert (await client.post("/v1/wheel/resume", content=b"{")).status_code == 400


async def test_every_broker_learns_of_it_by_the_pulse_and_after_a_restart(db: Database) -> None:
    clock = Clock(db)
    registry = Registry(db)
    await registry.load()
    clock.on_biz_version(registry.pulse)
    moves: asyncio.Queue[Brake | None] = asyncio.Queue()
    registry.on_brake(moves.put_nowait)
    await clock.measure()
    put = await pull_brake(db, "stop", actor="admin")
    await clock.measure()
    assert await asyncio.wait_for(moves.get(), 5) == put
    assert registry.brake == put
    restarted = Registry(db)
    await restarted.load()
    assert restarted.brake == put
    await pull_brake(db, None, actor="admin")
    await clock.measure()
    assert await asyncio.wait_for(moves.get(), 5) is None
    assert registry.brake is None


async def test_a_change_that_commits_beside_it_is_not_missed(db: Database) -> None:
    """Brake and biz_types share one order of versions: whoever reads n has all below it."""
    registry = Registry(db)
    await registry.load()
    writes: list[Any] = []
    for i in range(20):
        writes.append(pull_brake(db, f"reason {i}", actor="admin"))
        given = BizTypeIn(callback_url="http://a.example/", timeout=1 + i)
        writes.append(store.put(db, f"t{i}", given))
    reading = True

    async def read() -> None:
        while reading:
            await registry.refresh()

    reader = asyncio.create_task(read())
    await asyncio.gather(*writes)
    reading = False
    await reader
    await registry.refresh()
    assert registry.names() == sorted(f"t{i}" for i in range(20))
    newest = await store.load_newer(db, 0)
    assert registry.brake == newest.brake
    assert registry.version == newest.version
