"""GET /v1/tasks."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.fix_clock import DatabaseClock
from tests.fix_hands import task_at
from tests.fix_sessions import Sessions
from tests.fix_tasks import settle_as, submit_all
from wheel_timer.database import Database
from wheel_timer.task import Status


async def items(client: httpx.AsyncClient, **query: Any) -> list[dict[str, Any]]:
    """The items of all pages."""
    found: list[dict[str, Any]] = []
    while True:
        answer = await client.get("/v1/tasks", params=query)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert set(page) == {"items", "next_cursor"}
        found += page["items"]
        if page["next_cursor"] is None:
            return found
        query["cursor"] = page["next_cursor"]


async def test_without_a_query_it_is_the_day_before_and_the_day_after(
    client: httpx.AsyncClient, db: Database, clock: DatabaseClock
) -> None:
    now_ms = clock.now_ms()
    hours = (-25, -23, -1, 1, 23, 25)
    tasks = await submit_all(db, [task_at(now_ms + h * 3_600_000, biz_id=str(h)) for h in hours])
    assert [item["biz_id"] for item in await items(client)] == ["-23", "-1", "1", "23"]
    (shown,) = await items(client, biz_type="orders", biz_id="1")
    assert shown["task_id"] == str(tasks[3].task_id)
    assert shown["waiting"]["reason"] == "scheduled"
    assert "biz_data" not in shown
    assert "attempt_log" not in shown


@pytest.mark.parametrize(("given", "hours"), [("start_from", [25, 48]), ("start_to", [-1, 1, 23])])
async def test_one_end_given_the_other_is_a_day_away_from_it(
    given: str, hours: list[int], client: httpx.AsyncClient, db: Database, clock: DatabaseClock
) -> None:
    now_ms = clock.now_ms()
    every = (-25, -1, 1, 23, 25, 48, 50)
    await submit_all(db, [task_at(now_ms + h * 3_600_000, biz_id=str(h)) for h in every])
    found = await items(client, **{given: f"{now_ms / 1000 + 24.5 * 3600:.3f}"})
    assert [int(item["biz_id"]) for item in found] == hours


async def test_the_default_interval_does_not_move_between_two_pages(
    client: httpx.AsyncClient, db: Database, clock: DatabaseClock
) -> None:
    now_ms = clock.freeze()
    tasks = await submit_all(db, [task_at(now_ms + n * 1000, biz_id=str(n)) for n in range(3)])
    page = (await client.get("/v1/tasks?limit=2")).json()
    clock.advance(48 * 3_600_000)
    rest = await client.get("/v1/tasks", params={"limit": 2, "cursor": page["next_cursor"]})
    assert [item["task_id"] for item in page["items"] + rest.json()["items"]] == [
        str(task.task_id) for task in tasks
    ]


async def test_dead_letters_are_all_there_however_old(
    client: httpx.AsyncClient, db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    now_ms = clock.now_ms()
    tasks = await submit_all(db, [task_at(now_ms - n * 40 * 86_400_000) for n in range(6)])
    session = await sessions.open()
    for n, task in enumerate(tasks):
        await settle_as(session, [task], Status.FAILED, now_ms - n, http_status=500)
    found = await items(client, status="failed", limit=2)
    assert [item["task_id"] for item in found] == [str(t.task_id) for t in reversed(tasks)]
    assert {item["status"] for item in found} == {"failed"}
    assert {item["http_status"] for item in found} == {500}


async def test_a_plus_sign_that_arrives_as_a_space_is_one(
    client: httpx.AsyncClient, db: Database, clock: DatabaseClock
) -> None:
    await submit_all(db, [task_at(1_900_000_000_000, biz_id="one")])
    for text in (
        "2030-03-18T01:46:40+08:00",
        "2030-03-18T01:46:40%2B08:00",
        "2030-03-17T17:46:40Z",
        "1900000000",
        "1900000000.000",
        "1.9e9",
    ):
        answer = await client.get(f"/v1/tasks?start_from={text}&start_to=1900000001")
        assert [item["biz_id"] for item in answer.json()["items"]] == ["one"], text


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ("order=desc", "unknown query name: order"),
        ("limit=0", "limit"),
        ("limit=1001", "limit"),
        ("limit=1&limit=2", "given twice"),
        ("status=moved", "status"),
        ("status=", "status"),
        ("status=failed&status=failed", "given twice"),
        ("biz_type=UPPER", "biz_type"),
        ("biz_id=1", "biz_id: needs biz_type"),
        ("biz_id_prefix=1", "biz_id_prefix: needs biz_type"),
        ("biz_type=orders&biz_id=", "biz_id"),
        ("biz_type=orders&biz_id=a%00", "biz_id"),
        ("biz_type=orders&biz_id=" + "x" * 257, "biz_id"),
        ("biz_type=orders&biz_id=a&biz_id_prefix=b", "not both"),
        ("start_from=0", "before 2000-01-01"),
        ("start_from=now", "start_from"),
        ("start_from=", "start_from"),
        ("start_from=2026-01-01T00:00:00", "offset is missing"),
        ("start_to=1900000000000", "after the year 9999"),
        ("start_from=1e999999999", "after the year 9999"),
        ("start_from=1900000001&start_to=1900000000", "start_to lies before start_from"),
        ("finish_from=1900000001&finish_to=1900000000", "finish_to lies before finish_from"),
        ("finish_to=-1", "finish_to"),
        ("http_status=99", "http_status"),
        ("http_status=+200", "http_status"),
        ("schedule_id=1", "schedule_id"),
        ("cursor=", "cursor"),
        ("cursor=%C3%A4", "cursor"),
        ("cursor=WzFd", "cursor"),
        ("cursor=" + "A" * 5000, "cursor"),
    ],
)
async def test_what_is_wrong_with_a_query_is_named(
    query: str, detail: str, client: httpx.AsyncClient
) -> None:
    answer = await client.get(f"/v1/tasks?{query}")
    assert answer.status_code == 422, answer.text
    assert answer.json()["type"] == "/problems/invalid-request"
    assert detail in answer.json()["detail"]


async def test_a_cursor_belongs_to_its_query(
    client: httpx.AsyncClient, db: Database, clock: DatabaseClock
) -> None:
    await submit_all(db, [task_at(clock.now_ms() + n) for n in range(3)])
    cursor = (await client.get("/v1/tasks?limit=1")).json()["next_cursor"]
    other = await client.get("/v1/tasks", params={"cursor": cursor, "biz_type": "orders"})
    assert other.status_code == 422
    assert "another query" in other.json()["detail"]
    longer = await client.get("/v1/tasks", params={"cursor": cursor, "limit": 1000})
    assert len(longer.json()["items"]) == 2


@pytest.mark.parametrize(
    "place",
    [
        '{"start_from":0,"start_to":99999999999999999999999,"key":[0,"{nil}","",0]}',
        '{"start_from":0,"start_to":9,"key":[9223372036854775808,"{nil}","",0]}',
        '{"start_from":0,"start_to":9,"key":[-1,"{nil}","",0]}',
        '{"start_from":0,"start_to":9,"key":[0,"{nil}","a\\u0000",0]}',
        '{"start_from":0,"start_to":9,"key":[0,"nil","",0]}',
        '{"start_from":0,"start_to":9,"key":[]}',
        '{"start_from":0,"start_to":9}',
    ],
)
async def test_a_forged_cursor_is_refused(place: str, client: httpx.AsyncClient) -> None:
    from base64 import urlsafe_b64encode
    from hashlib import sha256

    digest = sha256(b"[]").hexdigest()[:12]
    text = f'["{digest}",{place.replace("{nil}", "00000000-0000-0000-0000-000000000000")}]'
    answer = await client.get("/v1/tasks", params={"cursor": urlsafe_b64encode(text.encode())})
    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"] == "cursor: not one that a list has given"
