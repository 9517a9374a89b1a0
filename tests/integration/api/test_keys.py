"""API keys: what they may do and see, how they end, and that nothing shows them."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from broker.api import app
from broker.api.actor import SCOPES
from broker.api.context import Context
from broker.keys import Keys
from tests.fix_clock import DatabaseClock
from tests.integration.api.conftest import client_of
from wheel_timer.bearer import split_key
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.errors import DatabaseUnavailable
from wheel_timer.store import keys as store

ADMIN_KEY = "correct horse battery staple"
CALLBACK = {"callback_url": "http://127.0.0.1:9/callback"}


@pytest.fixture
def keyed(context: Context) -> httpx.AsyncClient:
    """A client without a key of a server with one."""
    return client_of(context, admin_key=ADMIN_KEY)


def bearer(key: str = ADMIN_KEY) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def make(http: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:
    body = {"name": "test", "scopes": ["read"]} | fields
    answer = await http.post("/v1/keys", json=body, headers=bearer())
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


async def test_a_key_is_shown_once_and_kept_as_a_hash(
    keyed: httpx.AsyncClient, db: Database
) -> None:
    answer = await keyed.post(
        "/v1/keys", json={"name": "shop", "scopes": ["read", "submit"]}, headers=bearer()
    )
    assert answer.status_code == 201
    made = answer.json()
    assert answer.headers["location"] == f"/v1/keys/{made['key_id']}"
    assert answer.headers["cache-control"] == "no-store"
    key = made.pop("key")
    assert key.startswith(f"wtk_{made['key_id']}_")
    assert made["biz_types"] == ["*"]
    assert made["scopes"] == ["submit", "read"]
    shown = await keyed.get(f"/v1/keys/{made['key_id']}", headers=bearer())
    assert shown.json() == made
    listed = await keyed.get("/v1/keys", headers=bearer())
    assert listed.json() == {"items": [made], "next_cursor": None}
    secret = key.split("_", 2)[2]
    (row,) = await store.load_newer(db, 0)
    assert secret not in str(row)
    assert len(row.secret) == 32
    columns, changes = await db.read("SELECT * FROM timer_change", timeout_s=5)
    assert secret not in str(changes)
    assert [(c[columns.index("actor")], c[columns.index("action")]) for c in changes] == [
        ("admin", "key.create")
    ]


async def test_a_key_may_what_its_scopes_say(keyed: httpx.AsyncClient) -> None:
    for scope in SCOPES:
        key = (await make(keyed, scopes=[scope]))["key"]
        for operation in app.OPERATIONS:
            path = operation.path.replace("{biz_type}", "nobody")
            for name in ("task_id", "biz_id", "key_id", "operation_id", "name"):
                path = path.replace(f"{{{name}}}", "nothing")
            answer = await keyed.request(
                operation.method, path, headers=bearer(key), content=b"not json"
            )
            is_refused = answer.status_code == 403
            assert is_refused == (scope not in operation.scopes), f"{scope}: {operation.name}"


async def test_what_a_narrowed_key_does_not_see_is_not_there(keyed: httpx.AsyncClient) -> None:
    for name in ("orders.close", "payments"):
        await keyed.put(f"/v1/biz/{name}", json=CALLBACK, headers=bearer())
    scopes = ["submit", "read", "configure", "operate"]
    ours = bearer((await make(keyed, scopes=scopes, biz_types=["orders.*"]))["key"])
    task = {"biz_type": "payments", "biz_id": "1", "delay": 60}
    foreign = (await keyed.post("/v1/tasks", json=task, headers=bearer())).json()["task_id"]
    for path in ("/v1/biz/payments", "/v1/biz/nothing", "/v1/biz/payments/tasks/1"):
        assert (await keyed.get(path, headers=ours)).status_code == 404
    hidden = await keyed.get(f"/v1/tasks/{foreign}", headers=ours)
    absent = await keyed.get(f"/v1/tasks/{foreign[:-1]}0", headers=ours)
    assert hidden.status_code == absent.status_code == 404
    assert hidden.json()["detail"] == absent.json()["detail"]
    assert (await keyed.put("/v1/biz/payments", json=CALLBACK, headers=ours)).status_code == 404
    assert (await keyed.post("/v1/tasks", json=task, headers=ours)).status_code == 404
    assert (
        await keyed.post("/v1/tasks", json=task | {"biz_type": "none"}, headers=ours)
    ).status_code == 404
    names = [b["biz_type"] for b in (await keyed.get("/v1/biz", headers=ours)).json()["items"]]
    assert names == ["orders.close"]
    lanes = (await keyed.get("/v1/wheel", headers=ours)).json()["lanes"]
    assert [lane["biz_type"] for lane in lanes] == ["orders.close"]
    assert (await keyed.get("/v1/audits", headers=ours)).status_code == 200
    assert (await keyed.put("/v1/biz/orders.x", json=CALLBACK, headers=ours)).status_code == 201


async def test_each_task_of_a_batch_is_judged_for_itself(keyed: httpx.AsyncClient) -> None:
    for name in ("orders.close", "payments"):
        await keyed.put(f"/v1/biz/{name}", json=CALLBACK, headers=bearer())
    ours = bearer((await make(keyed, scopes=["submit"], biz_types=["orders.*"]))["key"])
    tasks = [{"biz_type": name, "delay": 60} for name in ("orders.close", "payments", "nothing")]
    out = (await keyed.post("/v1/tasks/batch", json={"tasks": tasks}, headers=ours)).json()
    assert (out["accepted"], out["rejected"]) == (1, 2)
    assert [item.get("error", {}).get("status") for item in out["results"]] == [None, 404, 404]
    lines = "\n".join(f'{{"biz_type": "{t["biz_type"]}", "delay": 60}}' for t in tasks)
    out = (
        await keyed.post(
            "/v1/tasks/batch",
            content=lines,
            headers=ours | {"content-type": "application/x-ndjson"},
        )
    ).json()
    assert (out["accepted"], out["rejected"]) == (1, 2)
    assert [(e["line"], e["error"]["status"]) for e in out["errors"]] == [(2, 404), (3, 404)]


async def test_a_rotated_key_holds_on_for_its_overlap(
    keyed: httpx.AsyncClient, context: Context, clock: DatabaseClock
) -> None:
    first = await make(keyed)
    clock.freeze()
    await context.clock.measure()
    path = f"/v1/keys/{first['key_id']}/rotate"
    second = (await keyed.post(path, json={"overlap": 60}, headers=bearer())).json()
    assert second["key_id"] == first["key_id"]
    assert second["overlap_until"] is not None
    for made in (first, second):
        answer = await keyed.get("/v1/wheel", headers=bearer(made["key"]))
        assert answer.status_code == 200
    clock.advance(60_000)
    await context.clock.measure()
    statuses = [
        (await keyed.get("/v1/wheel", headers=bearer(made["key"]))).status_code
        for made in (first, second)
    ]
    assert statuses == [401, 200]
    third = (await keyed.post(path, json={"overlap": 0}, headers=bearer())).json()
    statuses = [
        (await keyed.get("/v1/wheel", headers=bearer(made["key"]))).status_code
        for made in (second, third)
    ]
    assert statuses == [401, 200]


async def test_an_expired_key_opens_nothing(
    keyed: httpx.AsyncClient, context: Context, clock: DatabaseClock
) -> None:
    clock.freeze()
    await context.clock.measure()
    expires = context.clock.now_ms() / 1000 + 10
    made = await make(keyed, expires=expires)
    assert (await keyed.get("/v1/wheel", headers=bearer(made["key"]))).status_code == 200
    clock.advance(10_001)
    await context.clock.measure()
    assert (await keyed.get("/v1/wheel", headers=bearer(made["key"]))).status_code == 401
    shown = await keyed.get(f"/v1/keys/{made['key_id']}", headers=bearer())
    assert shown.json()["status"] == "expired"


async def test_a_revoked_key_is_over_and_can_be_revoked_again(keyed: httpx.AsyncClient) -> None:
    made = await make(keyed)
    path = f"/v1/keys/{made['key_id']}"
    first = await keyed.delete(path, headers=bearer())
    assert (first.status_code, first.json()["status"]) == (200, "revoked")
    assert (await keyed.delete(path, headers=bearer())).json() == first.json()
    assert (await keyed.get("/v1/wheel", headers=bearer(made["key"]))).status_code == 401
    rotated = await keyed.post(f"{path}/rotate", headers=bearer())
    assert rotated.status_code == 404


async def test_another_broker_knows_a_new_key_at_once_and_a_revoked_one_by_its_pulse(
    keyed: httpx.AsyncClient, db: Database, clock: DatabaseClock
) -> None:
    elsewhere = Clock(db)
    others = Keys(db, elsewhere)
    elsewhere.on_biz_version(others.pulse)
    await elsewhere.measure()
    await others.load()
    made = await make(keyed)
    given = split_key(made["key"].encode())
    assert given is not None
    assert others.actor_of(given) is None
    await others.look_again()
    assert others.actor_of(given) is not None
    await keyed.delete(f"/v1/keys/{made['key_id']}", headers=bearer())
    assert others.actor_of(given) is not None
    await elsewhere.measure()
    assert others._follow is not None
    await others._follow
    assert others.actor_of(given) is None


async def test_wrong_keys_cost_the_database_four_reads_a_second(
    keyed: httpx.AsyncClient, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0
    load = store.load_newer

    async def counted(db: Database, version: int) -> Any:
        nonlocal reads
        reads += 1
        return await load(db, version)

    monkeypatch.setattr(store, "load_newer", counted)
    answers = [keyed.get("/v1/wheel", headers=bearer(f"wtk_{n}_x")) for n in range(50)]
    statuses = {answer.status_code for answer in await asyncio.gather(*answers)}
    assert statuses == {401}
    assert reads <= 2
    for given in (b"wtk_", b"wtk__", b"wtk_1", b"wtk_\x80_\xff"):
        refused = await keyed.get("/v1/wheel", headers={b"authorization": b"Bearer " + given})
        assert refused.status_code == 401


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({}, "#/name"),
        ({"name": "x"}, "#/scopes"),
        ({"name": "x", "scopes": []}, "#/scopes"),
        ({"name": "x", "scopes": ["write"]}, "#/scopes/0"),
        ({"name": "", "scopes": ["read"]}, "#/name"),
        ({"name": "a\nb", "scopes": ["read"]}, "#/name"),
        ({"name": "a\n", "scopes": ["read"]}, "#/name"),
        ({"name": "x", "scopes": ["read"], "biz_types": []}, "#/biz_types"),
        ({"name": "x", "scopes": ["read"], "biz_types": ["*.x"]}, "#/biz_types/0"),
        ({"name": "x", "scopes": ["read"], "biz_types": ["Orders"]}, "#/biz_types/0"),
        ({"name": "x", "scopes": ["read"], "biz_types": ["a**"]}, "#/biz_types/0"),
        ({"name": "x", "scopes": ["read"], "expires": 1700000000}, "#/expires"),
        ({"name": "x", "scopes": ["read"], "expires": "soon"}, "#/expires"),
        ({"name": "x", "scopes": ["read"], "extra": 1}, "#/extra"),
    ],
)
async def test_a_key_that_breaks_a_rule_is_not_made(
    keyed: httpx.AsyncClient, db: Database, body: dict[str, Any], pointer: str
) -> None:
    answer = await keyed.post("/v1/keys", json=body, headers=bearer())
    assert answer.status_code == 422
    assert [error["pointer"].rstrip("/0") for error in answer.json()["errors"]] == [
        pointer.rstrip("/0")
    ]
    assert await store.load_newer(db, 0) == []


async def test_a_narrowed_admin_manages_what_is_narrower(keyed: httpx.AsyncClient) -> None:
    wide = await make(keyed, scopes=["read"])
    ours = bearer((await make(keyed, scopes=["admin"], biz_types=["orders.*"]))["key"])
    body = {"name": "x", "scopes": ["submit"], "biz_types": ["orders.close"]}
    made = (await keyed.post("/v1/keys", json=body, headers=ours)).json()
    for patterns in (["*"], ["orders*"], ["orders.x", "payments"]):
        answer = await keyed.post("/v1/keys", json=body | {"biz_types": patterns}, headers=ours)
        assert answer.status_code == 403
    listed = (await keyed.get("/v1/keys", headers=ours)).json()["items"]
    assert wide["key_id"] not in {key["key_id"] for key in listed}
    assert made["key_id"] in {key["key_id"] for key in listed}
    for method, path in (("GET", ""), ("POST", "/rotate"), ("DELETE", "")):
        answer = await keyed.request(method, f"/v1/keys/{wide['key_id']}{path}", headers=ours)
        assert answer.status_code == 404


async def test_the_list_of_keys_has_pages(keyed: httpx.AsyncClient) -> None:
    made = sorted([(await make(keyed))["key_id"] for _ in range(3)])
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = (await keyed.get(f"/v1/keys?limit=2{cursor}", headers=bearer())).json()
        seen += [key["key_id"] for key in page["items"]]
        cursor = page["next_cursor"] and f"&cursor={page['next_cursor']}"
    assert seen == made


async def test_a_wrong_key_is_told_of_without_it(
    context: Context, caplog: pytest.LogCaptureFixture
) -> None:
    http = client_of(context, admin_key=ADMIN_KEY, trusted_proxies=("127.0.0.0/8",))
    guesses = [bearer(f"wtk_1_guess{n}") | {"x-forwarded-for": "192.0.2.7"} for n in range(3)]
    for headers in [{}, *guesses]:
        assert (await http.get("/v1/wheel", headers=headers)).status_code == 401
    told = [record.getMessage() for record in caplog.records if "key" in record.getMessage()]
    assert told == ["a key from 192.0.2.7 counts for nothing here"]
    assert "guess" not in caplog.text


async def test_a_read_that_failed_is_tried_again_at_the_next_pulse(
    keyed: httpx.AsyncClient, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a revoked key would live on until something else is changed."""
    elsewhere = Clock(db)
    others = Keys(db, elsewhere)
    elsewhere.on_biz_version(others.pulse)
    made = await make(keyed)
    await others.load()
    given = split_key(made["key"].encode())
    assert given is not None
    await keyed.delete(f"/v1/keys/{made['key_id']}", headers=bearer())

    async def fails(*_: object) -> None:
        raise DatabaseUnavailable("gone")

    with monkeypatch.context() as patch:
        patch.setattr(store, "load_newer", fails)
        await elsewhere.measure()
        assert others._follow is not None
        await others._follow
    assert others.actor_of(given) is not None
    await elsewhere.measure()
    assert others._follow is not None
    await others._follow
    assert others.actor_of(given) is None
    # Nothing new: nothing is read.
    await elsewhere.measure()
    assert others._follow is None
