"""The console's pages about tasks: found, told, changed, many at once, and the dead ones."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from broker.api.context import Context
from broker.console.pages import PAGES
from tests.fix_clock import DatabaseClock
from tests.fix_console import confirm, form_to, forms_of, sign_in
from tests.fix_hands import task_at
from tests.fix_sessions import Sessions
from tests.fix_tasks import settle_as, submit_all
from tests.integration.api.conftest import client_of
from tests.integration.api.test_keys import ADMIN_KEY, make
from wheel_timer.database import Database
from wheel_timer.task import NewTask, Status

HOUR_MS = 3_600_000
HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>"
PAGE_BYTES_MAX = 90_000  # the page; style and scripts are 60,000 more, once


async def submitted(http: httpx.AsyncClient, **fields: Any) -> str:
    body = {"biz_type": "orders", "delay": 3600} | fields
    answer = await http.post("/v1/tasks", json=body)
    assert answer.status_code == 201, answer.text
    task_id: str = answer.json()["task_id"]
    return task_id


async def status_of(http: httpx.AsyncClient, task_id: str) -> str:
    task: dict[str, str] = (await http.get(f"/v1/tasks/{task_id}")).json()
    return task["status"]


async def test_a_task_is_found_by_either_of_its_ids(client: httpx.AsyncClient, orders: str) -> None:
    task_id = await submitted(client, biz_id="order 1/ü")
    for query in (
        {"search": task_id},
        {"search": f"  {task_id.upper()} "},
        {"search": "order 1/ü"},
    ):
        answer = await client.get("/console/tasks", params=query)
        assert (answer.status_code, answer.headers["location"]) == (
            303,
            f"/console/tasks/{task_id}",
        )
    for query in (
        {"search": "order 1/ü", "biz_type": orders},
        {"search": "order*", "biz_type": orders},
        {"biz_type": orders},
        {"status": "pending"},
        {},
    ):
        page = await client.get("/console/tasks", params=query)
        assert page.status_code == 200
        assert f"/console/tasks/{task_id}" in page.text, query
    for query in ({"search": "nothing"}, {"biz_type": orders, "status": "failed"}):
        page = await client.get("/console/tasks", params=query)
        assert task_id not in page.text
        assert "No task fits" in page.text


async def test_what_is_wrong_with_a_search_is_said(client: httpx.AsyncClient, orders: str) -> None:
    for query, said in (
        ({"start_from": "yesterday"}, "start_from"),
        ({"http_status": "ok"}, "http_status"),
        ({"status": "late"}, "status"),
        ({"biz_type": "A B"}, "biz_type"),
        ({"search": "order*"}, "name a biz_type"),
        ({"search": "x" * 300}, "biz_id"),
        ({"cursor": "x"}, "cursor"),
    ):
        page = await client.get("/console/tasks", params=query)
        assert (page.status_code, said in page.text) == (422, True), query


async def test_a_list_goes_on_where_it_ended(
    client: httpx.AsyncClient, db: Database, clock: DatabaseClock, orders: str
) -> None:
    at_ms = clock.now_ms() + HOUR_MS
    made = await submit_all(db, [task_at(at_ms + n, orders, biz_id=f"n{n}") for n in range(120)])
    shown: list[str] = []
    path = "/console/tasks?biz_type=orders&status=pending"
    while path:
        page = await client.get(path)
        assert page.status_code == 200
        assert len(page.content) < PAGE_BYTES_MAX
        shown += re.findall(r"/console/tasks/([0-9a-f-]{36})\"", page.text)
        found = re.search(r'href="([^"]+)" rel="next"', page.text)
        path = found[1].replace("&amp;", "&") if found else ""
    assert shown == [str(task.task_id) for task in made]


async def test_a_task_is_told_with_its_story(client: httpx.AsyncClient, orders: str) -> None:
    task_id = await submitted(client, biz_id="order-1", biz_data={"order": 1})
    page = (await client.get(f"/console/tasks/{task_id}")).text
    assert "of biz_type orders, known to its business as &#39;order-1&#39;" in page
    assert "its moment has not come" in page
    assert "{&#34;order&#34;:1}" in page.replace(" ", "")
    assert "http://127.0.0.1:9/callback" in page
    for verb in ("run", "reschedule", "cancel"):
        assert f'href="/console/tasks/{task_id}/{verb}"' in page
    assert f"/console/tasks/{task_id}/replay" not in page


@pytest.mark.parametrize(
    ("fields", "shown", "hidden"),
    [
        ({"biz_data": "a" * 5000}, "The first 4,096 bytes are shown.", "a" * 4097),
        ({"biz_data_base64": "AAECAw==", "content_type": "x/y"}, "00 01 02 03", "AAECAw"),
        ({"biz_data_base64": "4pyT" * 2000, "content_type": "text/plain"}, "✓" * 1300, "e2 9c"),
        ({}, "The task has none.", "<pre>"),
    ],
)
async def test_a_payload_is_shown_as_far_as_it_is_fit_for_it(
    client: httpx.AsyncClient, orders: str, fields: dict[str, Any], shown: str, hidden: str
) -> None:
    task_id = await submitted(client, **fields)
    page = (await client.get(f"/console/tasks/{task_id}")).text
    assert shown in page
    assert hidden not in page


async def test_a_payload_that_is_to_be_erased_is_not_shown(
    client: httpx.AsyncClient, orders: str
) -> None:
    task_id = await submitted(client, biz_data={"pin": "S3CR3T"})
    assert "S3CR3T" in (await client.get(f"/console/tasks/{task_id}")).text
    await client.patch("/v1/biz/orders", json={"erase_data": True})
    page = (await client.get(f"/console/tasks/{task_id}")).text
    assert "S3CR3T" not in page
    assert "erase_data" in page


async def test_one_task_is_cancelled_and_started_again(
    client: httpx.AsyncClient, orders: str
) -> None:
    task_id = await submitted(client, biz_id="order-1")
    path = f"/console/tasks/{task_id}"
    asked = await client.get(f"{path}/cancel")
    for word in ("Cancel this task?", "order-1", task_id, "pending"):
        assert word in asked.text
    assert await status_of(client, task_id) == "pending"
    after = await confirm(client, f"{path}/cancel")
    assert "The task is cancelled" in after.text
    assert await status_of(client, task_id) == "cancelled"
    again = await client.post(f"{path}/cancel", data=form_to(asked.text, f"{path}/cancel").fields)
    assert "Nothing had to be done" in (await client.get(again.headers["location"])).text
    refused = await client.post(f"{path}/run", data=await _fields(client, f"{path}/run"))
    assert (refused.status_code, "The task is settled" in refused.text) == (409, True)
    after = await confirm(client, f"{path}/replay")
    assert "The task is pending again." in after.text
    assert await status_of(client, task_id) == "pending"
    assert "cancel" in after.text.partition("Changed by hand")[2]


async def _fields(http: httpx.AsyncClient, path: str) -> dict[str, str]:
    return form_to((await http.get(path)).text, path.partition("?")[0]).fields


async def test_a_task_is_moved_and_called_now(client: httpx.AsyncClient, orders: str) -> None:
    task_id = await submitted(client)
    path = f"/console/tasks/{task_id}/reschedule"
    (form,) = forms_of((await client.get(path)).text)
    assert form.method == "get"
    for query, said in (
        ({"delay": "soon"}, "is no duration"),
        ({"start_time": "2026"}, "not an RFC 3339 time"),
        ({"start_time": "2026-02-30T00:00:00"}, "no such day"),
        ({"delay": "999999999d"}, "beyond the year 9999"),
    ):
        page = await client.get(path, params=query)
        assert (page.status_code, said in page.text) == (422, True), query
    after = await confirm(client, f"{path}?start_time=2031-02-03T04:05")
    assert "The task is due at 2031-02-03T04:05:00.000Z." in after.text
    assert (await confirm(client, f"{path}?delay=2h30m&start_time=2031-02-03T04:05")).is_success
    task = (await client.get(f"/v1/tasks/{task_id}")).json()
    assert task["start_time"] < "2031"
    await confirm(client, f"/console/tasks/{task_id}/run")
    task = (await client.get(f"/v1/tasks/{task_id}")).json()
    assert task["waiting"]["reason"] != "scheduled"


async def test_dead_letters_are_counted_started_again_and_discarded(
    client: httpx.AsyncClient, db: Database, sessions: Sessions, clock: DatabaseClock, orders: str
) -> None:
    now_ms = clock.now_ms()
    made = await submit_all(db, [task_at(now_ms + n, orders, biz_id=f"d{n}") for n in range(3)])
    await settle_as(await sessions.open(), made, Status.FAILED, now_ms, http_status=503)
    page = (await client.get("/console/dead?http_status=503")).text
    assert all(f"/console/tasks/{task.task_id}" in page for task in made)
    assert "/console/tasks/many?status=failed" not in page
    assert "action=replay" in page
    assert "No task has failed" in (await client.get("/console/dead?http_status=500")).text
    assert (await client.get("/console/dead?http_status=x")).status_code == 422
    first, second, _ = (f"/console/tasks/{task.task_id}" for task in made)
    assert "The dead letter is discarded" in (await confirm(client, f"{first}/discard")).text
    assert "pending again" in (await confirm(client, f"{second}/replay")).text
    left = (await client.get("/console/dead")).text
    assert re.findall(r"/console/tasks/([0-9a-f-]{36})", left) == [str(made[2].task_id)]


async def test_many_are_counted_and_an_operation_begins(
    client: httpx.AsyncClient, db: Database, clock: DatabaseClock, orders: str
) -> None:
    at_ms = clock.now_ms() + HOUR_MS
    await submit_all(db, [task_at(at_ms + n, orders, biz_id=f"m{n}") for n in range(40)])
    found = await client.get("/console/tasks?biz_type=orders&search=m1*")
    many = re.search(r'href="(/console/tasks/many[^"]*)"', found.text)
    assert many is not None
    form = forms_of((await client.get(many[1].replace("&amp;", "&"))).text)[0]
    assert form.fields["biz_id_prefix"] == "m1"
    query = urlencode(form.fields | {"action": "shift", "shift": "-30m", "rate": "5"})
    asked = await client.get(f"/console/tasks/many?{query}")
    assert "Move 11 tasks?" in asked.text
    assert "30 min earlier" in asked.text
    assert len(re.findall(r"/console/tasks/[0-9a-f-]{36}", asked.text)) == 10
    assert (await client.get("/v1/operations")).json()["items"] == []
    sent = form_to(asked.text, "/console/tasks/many")
    begun = await client.post(sent.action, data=sent.fields)
    assert begun.status_code == 303
    (operation,) = (await client.get("/v1/operations")).json()["items"]
    assert begun.headers["location"] == f"/console/operations/{operation['operation_id']}"
    assert operation["action"] == "shift"
    assert operation["set"] == {"delay": -1800.0}
    assert operation["rate"] == 5.0
    assert operation["filter"] == {
        "biz_type": "orders", "biz_id_prefix": "m1", "status": "pending"
    }  # fmt: skip


async def test_what_is_wrong_with_an_operation_is_said(
    client: httpx.AsyncClient, orders: str
) -> None:
    for query, said in (
        ({"action": "cancel"}, "say which tasks"),
        ({"action": "shift", "biz_type": orders}, "no duration"),
        ({"action": "shift", "biz_type": orders, "shift": "0s"}, "by nothing"),
        ({"action": "run", "biz_type": orders, "rate": "fast"}, "a number"),
        ({"action": "run", "biz_type": orders, "rate": "-1"}, "rate"),
        ({"action": "explode", "biz_type": orders}, "action"),
        ({"action": "shift", "biz_type": orders, "status": "failed", "shift": "1h"}, "pending"),
        ({"action": "cancel", "biz_type": orders, "biz_id": "x"}, "prefix"),
        ({"action": "cancel", "biz_type": orders, "http_status": "x"}, "a number"),
    ):
        page = await client.get("/console/tasks/many", params=query)
        assert (page.status_code, said in page.text) == (422, True), query
    assert "search for them first" in (await client.get("/console/tasks/many")).text


async def test_what_tenants_write_is_text_and_nothing_else(
    client: httpx.AsyncClient, db: Database, sessions: Sessions, orders: str
) -> None:
    """Whatever a tenant or an endpoint may write, on every page that shows a task."""
    await client.put(
        "/v1/biz/orders",
        json={"callback_url": "http://127.0.0.1:9/?<script>", "allow_callback_override": True},
    )
    task_id = await submitted(
        client,
        biz_id=HOSTILE,
        biz_data={"text": HOSTILE},
        content_type="text/html;<script>",
        callback={"url": "http://127.0.0.1:9/%3Cscript%3E", "headers": {"x-a": HOSTILE}},
    )
    session = await sessions.open()
    await session.execute("UPDATE timer_task SET last_error = %s, attempts = 1", [HOSTILE])
    await session.execute(
        "INSERT INTO timer_attempt (task_id, attempt, life, outcome, error_class, error,"
        " response_excerpt, remote_address, broker) VALUES (%s, 1, 1, 'retry', %s, %s, %s, %s, %s)",
        [task_id, *[HOSTILE] * 5],
    )
    paths = [
        f"/console/tasks/{task_id}",
        *(f"/console/tasks/{task_id}/{verb}" for verb in ("cancel", "reschedule", "replay")),
        "/console/tasks?biz_type=orders",
        "/console/tasks?" + urlencode({"search": HOSTILE, "biz_type": HOSTILE}),
        "/console/tasks/many?" + urlencode({"biz_type": "orders", "action": "cancel"}),
        "/console/tasks/many?" + urlencode({"biz_type": HOSTILE, "rate": HOSTILE}),
        "/console/dead?" + urlencode({"biz_type": HOSTILE}),
        "/console/wheel?" + urlencode({"search": HOSTILE}),
        "/console/sign-in?" + urlencode({"next": HOSTILE}),
        "/console/" + urlencode({"x": HOSTILE}),
    ]
    for path in paths:
        page = (await client.get(path)).text
        assert "<script>" not in page, path
        assert "<img src=x" not in page, path
        assert 'href="javascript' not in page
    assert HOSTILE in (await client.get(f"/v1/tasks/{task_id}")).json()["biz_id"]


async def test_two_keys_of_two_biz_types_see_nothing_of_each_other(
    context: Context, db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    """On every page there is, whatever it is asked for."""
    keyed = client_of(context, admin_key=ADMIN_KEY)
    now_ms = clock.now_ms()
    tasks: dict[str, list[NewTask]] = {}
    for name in ("ours", "theirs"):
        body = {"callback_url": f"http://127.0.0.1:9/{name}"}
        headers = {"authorization": f"Bearer {ADMIN_KEY}"}
        assert (await keyed.put(f"/v1/biz/{name}", json=body, headers=headers)).status_code == 201
        tasks[name] = await submit_all(
            db, [task_at(now_ms + HOUR_MS + n, name, biz_id=f"{name}-{n}") for n in range(4)]
        )
        dead = tasks[name][:2]
        await settle_as(await sessions.open(), dead, Status.FAILED, now_ms, http_status=503)
    await context.registry.refresh()
    for own, other in (("ours", "theirs"), ("theirs", "ours")):
        http = client_of(context, admin_key=ADMIN_KEY)
        made = await make(
            http, scopes=["submit", "read", "operate", "configure", "admin"], biz_types=[own]
        )
        await sign_in(http, made["key"])
        its = [str(task.task_id) for task in tasks[other]]
        for page in PAGES:
            path = page.path.replace("{task_id}", its[3]).replace("{biz_type}", other)
            path = re.sub(r"{\w+}", "nothing", path)
            for query in ("", f"?biz_type={other}", f"?search={other}-3", f"?search={its[2]}"):
                answer = await http.get(path + query, follow_redirects=True)
                unasked = [one for one in its if one not in path + query]
                assert not [one for one in unasked if one in answer.text], path
                shown = answer.text.replace(path + query, "").replace(f'value="{other}', "")
                assert f"{other}-" not in shown.replace(f"{other}-3", ""), path
                assert f"/{other}" not in shown, path
        listed = await http.get("/console/tasks?biz_type=" + other)
        assert listed.status_code == 404
        mine = await http.get("/console/dead")
        assert all(str(task.task_id) in mine.text for task in tasks[own][:2])
        assert f"/console/tasks/{tasks[own][3].task_id}" in (await http.get("/console/tasks")).text
        token = await _fields(http, "/console/tasks/many?action=cancel&biz_type=" + own)
        cross = await http.post("/console/tasks/many", data=token | {"biz_type": other})
        assert cross.status_code == 404
        foreign = f"/console/tasks/{its[3]}/cancel"
        assert (await http.get(foreign)).status_code == 404


async def test_a_task_that_is_not_there_is_404_on_each_of_its_pages(
    client: httpx.AsyncClient, orders: str
) -> None:
    for name in ("nothing", "01a1fca3-faf0-8000-9a6f-40ff88fb5aeb"):
        for page in PAGES:
            if "{task_id}" in page.path:
                path = page.path.replace("{task_id}", name)
                assert (await client.get(path)).status_code == 404, path


async def test_who_may_only_read_is_led_to_no_change(
    context: Context, client: httpx.AsyncClient, orders: str
) -> None:
    task_id = await submitted(client)
    keyed = client_of(context, admin_key=ADMIN_KEY)
    await sign_in(keyed, (await make(keyed, scopes=["read"]))["key"])
    for path in (f"/console/tasks/{task_id}", "/console/tasks?biz_type=orders", "/console/dead"):
        page = await keyed.get(path)
        assert page.status_code == 200
        assert not re.search(r'href="[^"]*/(cancel|run|reschedule|many[^"]*)"', page.text), path
        assert [form.action for form in forms_of(page.text) if form.method == "post"] == [
            "/console/sign-out"
        ]
    assert (await keyed.get(f"/console/tasks/{task_id}/cancel")).status_code == 403
