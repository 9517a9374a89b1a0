"""The configuration centre over HTTP: GET, PUT, versions, and who learns of a change."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import psycopg
import pytest
from starlette.requests import Request

from broker import registry as module
from broker.api.access import LOCAL
from broker.api.context import Context
from broker.api.reading import READ_AT_ONCE, TaskReader
from broker.registry import Registry
from broker.submission import Submission
from wheel_timer.biz import BizType, BizTypeIn, SigningSecret
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.errors import DatabaseUnavailable, StaleVersion
from wheel_timer.store import biz as store

URL = "http://a.example/callback"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def given(**fields: Any) -> BizTypeIn:
    return BizTypeIn(callback_url=URL, **fields)


async def test_a_put_creates_then_replaces(client: httpx.AsyncClient) -> None:
    created = await client.put("/v1/biz/orders", json={"callback_url": URL})
    assert created.status_code == 201
    assert created.headers["location"] == "/v1/biz/orders"
    replaced = await client.put("/v1/biz/orders", json={"callback_url": URL, "timeout": 3})
    assert replaced.status_code == 200
    assert replaced.json()["timeout"] == 3.0
    assert replaced.json()["version"] > created.json()["version"]
    assert replaced.headers["etag"] == f'"{replaced.json()["version"]}"'
    read = await client.get("/v1/biz/orders")
    assert read.json() == replaced.json()
    assert read.headers["etag"] == replaced.headers["etag"]


async def test_putting_what_is_there_changes_nothing(client: httpx.AsyncClient) -> None:
    body = {"callback_url": URL, "secret": SECRET}
    first = await client.put("/v1/biz/orders", json=body)
    again = await client.put("/v1/biz/orders", json=body)
    assert (again.status_code, again.json()) == (200, first.json())
    shown = await client.put("/v1/biz/orders", json=first.json())
    assert (shown.status_code, shown.json()) == (200, first.json())


async def test_secrets_are_never_shown_and_kept_until_removed(
    client: httpx.AsyncClient, context: Context, database_url: str
) -> None:
    headers = {"Authorization": "Bearer hidden", "x-plain": "seen"}
    body = {"callback_url": URL, "secret": SECRET, "callback_headers": headers}
    for answer in (await client.put("/v1/biz/o", json=body), await client.get("/v1/biz/o")):
        assert answer.json()["secret"] == {"set": True}
        assert answer.json()["callback_headers"] == {
            "authorization": {"set": True},
            "x-plain": "seen",
        }
        assert SECRET not in answer.text
        assert "hidden" not in answer.text
    await client.put("/v1/biz/o", json={"callback_url": URL, "timeout": 3})
    biz = context.registry.get("o")
    assert biz is not None
    assert biz.secrets == (SigningSecret(SECRET),)
    assert biz.callback_headers == {"authorization": "Bearer hidden"}
    with psycopg.connect(database_url) as connection:
        row = connection.execute("SELECT config::text FROM timer_biz").fetchone()
    assert row is not None
    assert "hidden" not in row[0]
    removed = {"callback_url": URL, "secret": None, "callback_headers": {"authorization": None}}
    shown = (await client.put("/v1/biz/o", json=removed)).json()
    assert (shown["secret"], shown["callback_headers"]) == (None, {})


async def test_a_stale_version_is_a_412(client: httpx.AsyncClient) -> None:
    first = await client.put("/v1/biz/orders", json={"callback_url": URL})
    tag = first.headers["etag"]
    body = {"callback_url": URL, "timeout": 2}
    second = await client.put("/v1/biz/orders", json=body, headers={"If-Match": tag})
    assert second.status_code == 200
    for headers, extra in (
        ({"If-Match": tag}, {}),
        ({}, {"version": first.json()["version"]}),
        ({"If-Match": second.headers["etag"]}, {"version": first.json()["version"]}),
    ):
        stale = await client.put(
            "/v1/biz/orders", json={"callback_url": URL} | extra, headers=headers
        )
        assert stale.status_code == 412
        assert stale.json()["type"] == "/problems/stale-version"
    for path, tag, status in (
        ("/v1/biz/none", '"1"', 412),
        ("/v1/biz/none", "*", 412),
        ("/v1/biz/orders", "*", 200),
        ("/v1/biz/orders", "nonsense", 422),
    ):
        answer = await client.put(path, json={"callback_url": URL}, headers={"If-Match": tag})
        assert answer.status_code == status


async def test_a_put_that_breaks_a_rule_is_refused(client: httpx.AsyncClient) -> None:
    for name, body, pointer in (
        ("orders", {}, "#/callback_url"),
        ("orders", {"callback_url": "ftp://x"}, "#/callback_url"),
        ("orders", {"callback_url": URL, "rate": 1}, "#/rate"),
        ("orders", {"callback_url": URL, "timeout": 0}, "#/timeout"),
        ("orders", {"callback_url": URL, "biz_type": "x"}, "#/biz_type"),
        ("orders", {"callback_url": URL, "retry": {"ladder": [1, -1]}}, "#/retry/ladder/1"),
        ("Orders", {"callback_url": URL}, "#/biz_type"),
        ("a%2Fb", {"callback_url": URL}, "#/biz_type"),
        ("a" * 65, {"callback_url": URL}, "#/biz_type"),
    ):
        answer = await client.put(f"/v1/biz/{name}", json=body)
        assert answer.status_code == 422
        assert pointer in [error["pointer"] for error in answer.json()["errors"]]


async def test_an_unknown_biz_type_is_a_404(client: httpx.AsyncClient) -> None:
    for name in ("none", "%00", "A"):
        assert (await client.get(f"/v1/biz/{name}")).status_code == 404


async def test_the_list_comes_in_pages(client: httpx.AsyncClient) -> None:
    names = [f"t{i:02}" for i in range(7)]
    for name in reversed(names):
        await client.put(f"/v1/biz/{name}", json={"callback_url": URL})
    seen: list[str] = []
    cursor = None
    while True:
        query = {"limit": "3"} | ({"cursor": cursor} if cursor else {})
        page = (await client.get("/v1/biz", params=query)).json()
        seen += [item["biz_type"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
        assert len(page["items"]) == 3
    assert seen == names


async def test_a_list_refuses_what_it_does_not_know(client: httpx.AsyncClient) -> None:
    for query in ("limit=0", "limit=1001", "limit=x", "cursor=%C3%A4", "page=2"):
        assert (await client.get(f"/v1/biz?{query}")).status_code == 422


async def test_writers_at_once_all_get_through_and_versions_grow_in_commit_order(
    db: Database, database_url: str
) -> None:
    """Whoever has seen version n has seen everything below it, at every moment."""
    writing = [store.put(db, f"t{i % 7}", given(timeout=1 + i)) for i in range(40)]
    done = False
    gaps: list[int] = []

    async def watch() -> None:
        known: dict[int, str] = {}
        top = 0
        while not done:
            rows = await db.fetch("biz_load_newer", {"version": 0})
            versions = {row[1] for row in rows}
            gaps.extend(v for v in versions - known.keys() if v < top)
            known |= dict.fromkeys(versions, "seen")
            top = max(versions, default=0)

    watching = asyncio.create_task(watch())
    puts = await asyncio.gather(*writing)
    done = True
    await watching
    assert gaps == []
    assert len({put.biz.version for put in puts}) == 40
    newest = {biz.biz_type: biz.version for biz in (await store.load_newer(db, 0)).biz_types}
    assert len(newest) == 7
    assert max(newest.values()) == max(put.biz.version for put in puts)


async def test_of_two_who_have_seen_the_same_version_one_is_late(db: Database) -> None:
    version = (await store.put(db, "orders", given())).biz.version
    changes = (store.put(db, "orders", given(timeout=i), version) for i in (2, 3, 4))
    answers = await asyncio.gather(*changes, return_exceptions=True)
    assert [type(answer) for answer in answers].count(StaleVersion) == 2


async def test_another_broker_learns_of_a_change_by_the_clocks_pulse(db: Database) -> None:
    clock = Clock(db)
    registry = Registry(db)
    await registry.load()
    clock.on_biz_version(registry.pulse)
    learned = asyncio.Event()
    seen: list[tuple[str, int]] = []

    def note(changed: Any) -> None:
        seen.extend((biz.biz_type, biz.version) for biz in changed)
        learned.set()

    registry.on_change(note)
    put = await store.put(db, "orders", given())
    assert registry.get("orders") is None
    await clock.measure()
    await asyncio.wait_for(learned.wait(), 5)
    assert registry.get("orders") == put.biz
    assert registry.names() == ["orders"]
    assert seen == [("orders", put.biz.version)]


async def test_news_that_comes_in_the_middle_of_a_read_holds_for_all_of_it(
    context: Context, db: Database
) -> None:
    """The part that was read before it came is read again, though the refresh brings no news."""
    biz = (await store.put(db, "orders", given())).biz
    asked = 0

    class Learning(Registry):
        def get(self, name: str) -> BizType | None:
            nonlocal asked
            asked += 1
            found = super().get(name)
            if asked == READ_AT_ONCE:
                self._take(store.News(biz.version, [biz], [], False, None))
            return found

    registry = Learning(db)
    request = Request({"type": "http", "headers": [], "actor": LOCAL})
    registered = Context(
        settings=context.settings,
        db=db,
        clock=context.clock,
        event_center=context.event_center,
        registry=registry,
        keys=context.keys,
        submitter=context.submitter,
        changer=context.changer,
        pull=context.pull,
        reports=context.reports,
        health=context.health,
    )
    reader = TaskReader(registered, request)
    found = await reader.read([b'{"biz_type": "orders", "delay": 3600}'] * (READ_AT_ONCE + 1))
    assert all(isinstance(read, Submission) for read in found)


async def test_callers_who_come_together_share_a_read(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = Registry(db)
    reads = 0
    load_newer = store.load_newer

    async def counted(db: Database, version: int) -> Any:
        nonlocal reads
        reads += 1
        return await load_newer(db, version)

    monkeypatch.setattr(store, "load_newer", counted)
    await asyncio.gather(*(registry.refresh() for _ in range(100)))
    assert reads <= 2


async def test_news_told_in_the_middle_of_a_read_is_read_too(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes while a read is under way is not put off to the next pulse."""
    registry = Registry(db)
    await registry.load()
    load_newer = store.load_newer
    may_end = asyncio.Event()
    begun: asyncio.Queue[None] = asyncio.Queue()

    async def slow(db: Database, version: int) -> Any:
        news = await load_newer(db, version)
        begun.put_nowait(None)
        await may_end.wait()
        return news

    monkeypatch.setattr(store, "load_newer", slow)
    learned: asyncio.Queue[Any] = asyncio.Queue()
    registry.on_change(learned.put_nowait)
    first = (await store.put(db, "orders", given())).biz
    registry.pulse(first.version)
    await asyncio.wait_for(begun.get(), 5)
    second = (await store.put(db, "refunds", given())).biz
    registry.pulse(second.version)
    may_end.set()
    assert await asyncio.wait_for(learned.get(), 5) == [first]
    assert await asyncio.wait_for(learned.get(), 5) == [second]


async def test_a_read_that_failed_is_tried_again_without_another_change(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_S", 0.01)
    registry = Registry(db)
    await registry.load()
    load_newer = store.load_newer
    failures = 3

    async def failing(db: Database, version: int) -> Any:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise DatabaseUnavailable("away")
        return await load_newer(db, version)

    monkeypatch.setattr(store, "load_newer", failing)
    learned: asyncio.Queue[Any] = asyncio.Queue()
    registry.on_change(learned.put_nowait)
    put = await store.put(db, "orders", given())
    registry.pulse(put.biz.version)
    assert await asyncio.wait_for(learned.get(), 5) == [put.biz]
    await registry.stop()


async def test_what_is_none_of_its_news_is_looked_at_once(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys draw from the same sequence: their version is higher than any biz_type's for long."""
    registry = Registry(db)
    await registry.load()
    reads: asyncio.Queue[int] = asyncio.Queue()
    load_newer = store.load_newer

    async def counted(db: Database, version: int) -> Any:
        news = await load_newer(db, version)
        reads.put_nowait(version)
        return news

    monkeypatch.setattr(store, "load_newer", counted)
    registry.pulse(10_000)
    await asyncio.wait_for(reads.get(), 5)
    await asyncio.sleep(0)
    registry.pulse(10_000)
    await asyncio.sleep(0.05)
    assert reads.empty()
