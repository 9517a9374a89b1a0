"""Schedules by the API: made, shown, changed, enabled, disabled, run, deleted, applied."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any, Final

import httpx
import pytest

from broker.api.context import Context
from tests.fix_audits import AuditsHold
from wheel_timer.database import Database

PATH: Final = "/v1/biz/orders/schedules/report"
HOURLY: Final = {"cron": "0 * * * *", "timezone": "Asia/Shanghai"}


async def waiting(client: httpx.AsyncClient, schedule_id: str) -> list[dict[str, Any]]:
    found = await client.get("/v1/tasks", params={"schedule_id": schedule_id, "status": "pending"})
    assert found.status_code == 200, found.text
    items: list[dict[str, Any]] = found.json()["items"]
    return items


async def test_a_schedule_is_made_shown_and_on_the_wheel(
    client: httpx.AsyncClient, orders: str, audits_hold: AuditsHold
) -> None:
    body = HOURLY | {"biz_data": {"n": 1.50}, "jitter": 1.5, "overlap": "skip"}
    made = await client.put(PATH, json=body)
    assert made.status_code == 201, made.text
    assert made.headers["location"] == PATH
    shown = (await client.get(PATH)).json()
    own = {name: shown.pop(name) for name in ("schedule_id", "create_time", "update_time")}
    next_time = shown.pop("next_time")
    assert next_time.endswith(":00:00.000Z")
    assert shown == {
        "biz_type": "orders",
        "name": "report",
        "version": 1,
        "cron": "0 * * * *",
        "timezone": "Asia/Shanghai",
        "enabled": True,
        "start_after": None,
        "end_before": None,
        "misfire": "once",
        "misfire_after": 60.0,
        "overlap": "skip",
        "jitter": 1.5,
        "content_type": None,
        "callback": None,
        "biz_data": {"n": 1.5},
    }
    (task,) = await waiting(client, own["schedule_id"])
    assert task["scheduled_time"] == next_time
    late = datetime.fromisoformat(task["start_time"]) - datetime.fromisoformat(next_time)
    assert 0 <= late.total_seconds() < 1.5
    task = (await client.get(f"/v1/tasks/{task['task_id']}")).json()
    assert task["schedule_id"] == own["schedule_id"]
    assert task["biz_data"] == {"n": 1.5}
    coming = (await client.get(f"{PATH}/upcoming?count=3")).json()
    assert coming["enabled"] is True
    assert coming["items"][0] == {
        "scheduled_time": next_time,
        "start_time": task["start_time"],
        "task_id": task["task_id"],
    }
    assert len(coming["items"]) == 3
    await audits_hold()


async def test_the_same_again_is_no_change(client: httpx.AsyncClient, orders: str) -> None:
    first = (await client.put(PATH, json=HOURLY)).json()
    again = await client.put(PATH, json=first_said(first))
    assert again.status_code == 200
    assert again.json() == first
    assert (await client.patch(PATH, json={})).json() == first
    for _ in range(3):
        assert (await client.post(f"{PATH}/enable")).json() == first
    assert len(await waiting(client, first["schedule_id"])) == 1


def first_said(shown: dict[str, Any]) -> dict[str, Any]:
    """What a GET has shown, as far as a PUT takes it."""
    own = ("schedule_id", "next_time", "create_time", "update_time")
    return {name: value for name, value in shown.items() if name not in own}


async def test_enabled_disabled_changed_deleted(
    client: httpx.AsyncClient, orders: str, db: Database, audits_hold: AuditsHold
) -> None:
    made = (await client.put(PATH, json=HOURLY | {"enabled": False})).json()
    assert made["next_time"] is None
    assert await waiting(client, made["schedule_id"]) == []
    coming = (await client.get(f"{PATH}/upcoming")).json()
    assert coming["enabled"] is False
    assert len(coming["items"]) == 10

    enabled = (await client.post(f"{PATH}/enable")).json()
    assert (enabled["version"], enabled["enabled"]) == (2, True)
    assert len(await waiting(client, made["schedule_id"])) == 1
    changed = await client.patch(PATH, json={"cron": "30 * * * *", "biz_data": [1]})
    assert (changed.status_code, changed.json()["version"]) == (200, 3)
    assert changed.json()["timezone"] == "Asia/Shanghai"
    (task,) = await waiting(client, made["schedule_id"])
    assert task["scheduled_time"].endswith(":30:00.000Z")
    disabled = (await client.post(f"{PATH}/disable")).json()
    assert (disabled["version"], disabled["next_time"]) == (4, None)
    assert await waiting(client, made["schedule_id"]) == []
    assert (await client.post(f"{PATH}/disable")).json()["version"] == 4

    await client.post(f"{PATH}/enable")
    gone = await client.delete(PATH)
    assert (gone.status_code, gone.content) == (204, b"")
    assert (await client.delete(PATH)).status_code == 404
    assert (await client.get(PATH)).status_code == 404
    assert await waiting(client, made["schedule_id"]) == []
    changes = (await client.get("/v1/changes?object=orders/report")).json()["items"]
    assert [one["action"] for one in changes] == [
        *("schedule.delete", "schedule.enable", "schedule.disable", "schedule.patch"),
        *("schedule.enable", "schedule.put"),
    ]
    await audits_hold()


async def test_one_is_run_now(client: httpx.AsyncClient, orders: str) -> None:
    made = (await client.put(PATH, json=HOURLY | {"enabled": False, "biz_data": 7})).json()
    ran = await client.post(f"{PATH}/run")
    assert ran.status_code == 201
    task = (await client.get(ran.headers["location"])).json()
    assert (task["schedule_id"], task["biz_data"]) == (made["schedule_id"], 7)
    assert task["scheduled_time"] == task["start_time"]


async def test_what_nobody_is_told_of(client: httpx.AsyncClient, orders: str) -> None:
    callback = {
        "url": "http://127.0.0.1:9/x",
        "headers": {"Authorization": "Bearer hush", "x-a": "1"},
    }
    made = (await client.put(PATH, json=HOURLY | {"callback": callback})).json()
    assert made["callback"]["headers"] == {"authorization": {"set": True}, "x-a": "1"}
    again = await client.put(PATH, json=first_said(made))
    assert (again.status_code, again.json()["version"]) == (200, 1)
    patched = await client.patch(PATH, json={"callback": {"headers": {"x-a": None}}})
    assert patched.json()["callback"]["headers"] == {"authorization": {"set": True}}
    stored = await client.get("/v1/changes?object=orders/report")
    assert "hush" not in stored.text
    gone = await client.patch(PATH, json={"callback": {"headers": {"authorization": None}}})
    assert gone.json()["callback"]["headers"] == {}
    unknown = {"url": "http://127.0.0.1:9/x", "headers": {"x-token": {"set": True}}}
    refused = await client.patch(PATH, json={"callback": unknown})
    assert refused.json()["errors"][0]["pointer"] == "#/callback/headers/x-token"
    none = await client.patch(PATH, json={"callback": None})
    assert none.json()["callback"] is None


async def test_what_a_get_showed_can_be_sent_back(client: httpx.AsyncClient, orders: str) -> None:
    await client.put(PATH, json=HOURLY | {"biz_data": [1], "start_after": 1_900_000_000})
    shown = (await client.get(PATH)).json()
    for method in ("PUT", "PATCH"):
        same = await client.request(method, PATH, json=shown)
        assert (same.status_code, same.json()) == (200, shown), same.text
    changed = await client.put(PATH, json=shown | {"jitter": 3})
    assert (changed.json()["jitter"], changed.json()["version"]) == (3.0, 2)
    other = {"schedule_id": "00000000-0000-4000-8000-000000000000"}
    refused = await client.patch(PATH, json=other)
    assert refused.json()["errors"][0]["pointer"] == "#/schedule_id"


async def test_a_payload_stays_byte_for_byte(
    client: httpx.AsyncClient, orders: str, db: Database
) -> None:
    said = b'{"cron": "0 9 * * *", "biz_data": {"n": 1.50,  "\\u00e9": "\xc3\xa9"}}'
    made = await client.put(PATH, content=said)
    assert made.status_code == 201, made.text
    patched = await client.patch(PATH, json={"jitter": 1, "overlap": "skip"})
    assert (patched.status_code, patched.json()["version"]) == (200, 2)
    stored = (await db.read("SELECT biz_data FROM timer_schedule", timeout_s=5))[1]
    assert bytes(stored[0][0]) == b'{"n": 1.50,  "\\u00e9": "\xc3\xa9"}'
    # A payload of null is one; and a PATCH takes it away.
    assert "biz_data" not in (await client.patch(PATH, json={"biz_data": None})).json()


async def test_a_payload_that_is_no_json_stays_as_it_is(
    client: httpx.AsyncClient, orders: str
) -> None:
    encoded = base64.b64encode(b"\xff\x00").decode()
    body = HOURLY | {"biz_data_base64": encoded, "content_type": "application/octet-stream"}
    made = (await client.put(PATH, json=body)).json()
    assert made["biz_data_base64"] == encoded
    patched = (await client.patch(PATH, json={"jitter": 2})).json()
    assert (patched["biz_data_base64"], patched["jitter"]) == (encoded, 2.0)
    patched = (await client.patch(PATH, json={"biz_data_base64": None})).json()
    assert "biz_data_base64" not in patched
    assert patched["content_type"] is None


@pytest.mark.parametrize(
    ("wrong", "pointer"),
    [
        ({"cron": "61 * * * *"}, "#/cron"),
        ({"cron": "0 0 30 2 *"}, "#/cron"),
        ({"cron": None}, "#/cron"),
        ({"cron": 7}, "#/cron"),
        ({"timezone": "Mars/X"}, "#/timezone"),
        ({"enabled": "yes"}, "#/enabled"),
        ({"misfire": "never"}, "#/misfire"),
        ({"misfire_after": -1}, "#/misfire_after"),
        ({"overlap": "wait"}, "#/overlap"),
        ({"jitter": 86_401}, "#/jitter"),
        ({"start_after": "2027-01-01"}, "#/start_after"),
        ({"end_before": 7}, "#/end_before"),
        ({"start_after": 1_900_000_000, "end_before": 1_900_000_000}, "#/end_before"),
        ({"content_type": "text/plain"}, "#/content_type"),
        ({"biz_data": 1, "biz_data_base64": ""}, "#/biz_data"),
        ({"biz_data_base64": "!"}, "#/biz_data_base64"),
        ({"callback": {"url": "ftp://a/"}}, "#/callback/url"),
        ({"callback": {"url": "http://a/", "headers": {"host": "b"}}}, "#/callback/headers/host"),
        ({"biz_type": "refunds"}, "#/biz_type"),
        ({"name": "other"}, "#/name"),
        ({"running": None}, "#/running"),
    ],
)
async def test_what_is_wrong_is_said_of_its_field(
    client: httpx.AsyncClient, orders: str, wrong: dict[str, Any], pointer: str
) -> None:
    refused = await client.put(PATH, json=HOURLY | wrong)
    assert refused.status_code == 422, refused.text
    assert [error["pointer"] for error in refused.json()["errors"]] == [pointer]


async def test_what_is_not_there(client: httpx.AsyncClient, orders: str) -> None:
    assert (await client.put("/v1/biz/nobody/schedules/x", json=HOURLY)).status_code == 404
    for name in ("%20", "%00", "x" * 129):
        bad_name = await client.put(f"/v1/biz/orders/schedules/{name}", json=HOURLY)
        assert bad_name.json()["errors"][0]["pointer"] == "#/name", name
    for method, path in (
        *(("GET", PATH), ("PATCH", PATH), ("DELETE", PATH), ("GET", f"{PATH}/upcoming")),
        *(("POST", f"{PATH}/{verb}") for verb in ("enable", "disable", "run")),
        ("GET", "/v1/biz/nobody/schedules"),
    ):
        answer = await client.request(method, path, json={} if method == "PATCH" else None)
        assert answer.status_code == 404, (method, path)
    stale = await client.put(PATH, json=HOURLY | {"version": 7})
    assert stale.status_code == 412
    await client.put(PATH, json=HOURLY | {"callback": {"url": "http://127.0.0.1:9/"}})
    for body in (b'{"callback": "\xff"}', b'{"callback": {"url": "\xff"}}', b'{"cron": "\xff"}'):
        assert (await client.patch(PATH, content=body)).status_code == 400
    assert (await client.patch(PATH, json={"callback": {"headers": []}})).status_code == 422


async def test_lists_go_page_by_page(client: httpx.AsyncClient, orders: str) -> None:
    await client.put("/v1/biz/refunds", json={"callback_url": "http://127.0.0.1:9/"})
    for biz_type, name in (("orders", "b"), ("refunds", "a"), ("orders", "a")):
        await client.put(f"/v1/biz/{biz_type}/schedules/{name}", json=HOURLY)
    found: list[tuple[str, str]] = []
    cursor = None
    while True:
        query = {"limit": 2} | ({"cursor": cursor} if cursor else {})
        page = (await client.get("/v1/schedules", params=query)).json()
        found += [(one["biz_type"], one["name"]) for one in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found == [("orders", "a"), ("orders", "b"), ("refunds", "a")]
    for path in ("/v1/schedules?biz_type=refunds", "/v1/biz/refunds/schedules"):
        assert len((await client.get(path)).json()["items"]) == 1


async def test_a_biz_type_with_a_schedule_is_in_use(
    client: httpx.AsyncClient, orders: str, db: Database
) -> None:
    await client.put(PATH, json=HOURLY | {"enabled": False})
    assert (await client.delete("/v1/biz/orders")).status_code == 409
    assert (await client.delete("/v1/biz/orders?purge=true")).status_code == 202
    assert (await db.read("SELECT count(*) FROM timer_schedule", timeout_s=5))[1] == [(0,)]


async def test_a_narrowed_key_sees_its_own(
    client: httpx.AsyncClient, orders: str, context: Context
) -> None:
    await client.put("/v1/biz/refunds", json={"callback_url": "http://127.0.0.1:9/"})
    for biz_type in ("orders", "refunds"):
        await client.put(f"/v1/biz/{biz_type}/schedules/s", json=HOURLY)
    body = {"name": "k", "scopes": ["read", "configure"], "biz_types": ["refunds"]}
    key = (await client.post("/v1/keys", json=body)).json()["key"]
    headers = {"authorization": f"Bearer {key}"}
    listed = (await client.get("/v1/schedules", headers=headers)).json()["items"]
    assert [one["biz_type"] for one in listed] == ["refunds"]
    # Nor is there a page, or a cursor, of what it does not see.
    page = (await client.get("/v1/schedules?limit=1", headers=headers)).json()
    assert ([one["biz_type"] for one in page["items"]], page["next_cursor"]) == (["refunds"], None)
    assert (await client.get(PATH, headers=headers)).status_code == 404
    foreign = {"biz_types": {}, "schedules": {"orders": {"s": HOURLY}}}
    assert (await client.post("/v1/apply", json=foreign, headers=headers)).status_code == 404


async def test_schedules_are_applied_with_their_biz_types(client: httpx.AsyncClient) -> None:
    declared: dict[str, Any] = {
        "biz_types": {"shop": {"callback_url": "http://127.0.0.1:9/"}},
        "schedules": {"shop": {"daily": {"cron": "0 9 * * *"}, "often": {"cron": "* * * * *"}}},
    }
    dry = (await client.post("/v1/apply", json=declared | {"dry_run": True})).json()
    assert [one["action"] for one in dry["schedules"]] == ["created", "created"]
    assert (await client.get("/v1/schedules")).json()["items"] == []
    applied = (await client.post("/v1/apply", json=declared)).json()
    assert [(one["name"], one["version"]) for one in applied["schedules"]] == [
        ("daily", 1),
        ("often", 1),
    ]
    await client.post("/v1/biz/shop/schedules/often/disable")
    declared["schedules"]["shop"]["daily"]["jitter"] = 5
    again = (await client.post("/v1/apply", json=declared)).json()["schedules"]
    assert [(one["action"], one["version"]) for one in again] == [("changed", 2), ("unchanged", 2)]
    assert again[0]["old"] == {"jitter_ms": 0}
    assert (await client.get("/v1/biz/shop/schedules/often")).json()["enabled"] is False


@pytest.mark.parametrize(
    ("schedules", "pointer"),
    [
        ({"shop": {"s": {"cron": "x"}}}, "#/schedules/shop/s/cron"),
        ({"shop": {"s": {}}}, "#/schedules/shop/s/cron"),
        ({"shop": {"~/": {"cron": "0 9 * * *"}}}, "#/schedules/shop/~0~1"),
        ({"nobody": {"s": {"cron": "0 9 * * *"}}}, "#/schedules/nobody/s"),
        ({"No": {}}, "#/schedules/No"),
    ],
)
async def test_where_a_schedule_is_wrong_nothing_is_applied(
    client: httpx.AsyncClient, schedules: dict[str, Any], pointer: str
) -> None:
    biz_types = {"shop": {"callback_url": "http://127.0.0.1:9/"}}
    refused = await client.post("/v1/apply", json={"biz_types": biz_types, "schedules": schedules})
    assert refused.status_code == 422, refused.text
    assert [error["pointer"] for error in refused.json()["errors"]] == [pointer]
    assert (await client.get("/v1/biz/shop")).status_code == 404
