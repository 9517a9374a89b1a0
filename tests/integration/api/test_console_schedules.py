"""The pages of schedules: listed, made, changed, and what is done with one."""

from __future__ import annotations

import httpx
import pytest

from broker.api.context import Context
from tests.fix_console import confirm, form_to, sign_in
from tests.integration.api.conftest import client_of
from tests.integration.api.test_keys import ADMIN_KEY, bearer, make

NEW = "/console/new-schedule"
ONE = "/console/schedules/orders/daily"
EDIT = f"{ONE}/edit"
HOSTILE = "<script>alert(1)</script>"
GIVEN = {"biz_type": "orders", "name": "daily", "cron": "0 9 * * *", "timezone": "Asia/Shanghai"}


async def review(http: httpx.AsyncClient, path: str, **fields: str) -> httpx.Response:
    """Fill in the form of a page, and send it."""
    form = form_to((await http.get(path)).text, path).fields
    form.pop("show", None)
    return await http.post(path, data=form | fields)


@pytest.fixture
async def daily(client: httpx.AsyncClient, orders: str) -> str:
    """A schedule, made by the form."""
    asked = await review(client, NEW, **GIVEN, biz_data='{"a": [1]}')
    assert "Make the schedule daily?" in asked.text, asked.text
    assert "09:00:00" in asked.text
    made = await client.post(NEW, data=form_to(asked.text, NEW).fields)
    assert (made.status_code, made.headers["location"]) == (303, ONE)
    return "daily"


async def test_one_is_made_and_shown(client: httpx.AsyncClient, daily: str) -> None:
    told = (await client.get("/v1/biz/orders/schedules/daily")).json()
    assert (told["cron"], told["timezone"], told["biz_data"]) == (
        *("0 9 * * *", "Asia/Shanghai"),
        {"a": [1]},
    )
    page = (await client.get(ONE)).text
    assert page.count("09:00:00") == 10
    assert page.count("> 01:00:00<") == 10
    assert "daily" in (await client.get("/console/schedules")).text
    assert "daily" in (await client.get("/console/schedules?biz_type=orders")).text
    nothing = (await client.get(f"/console/schedules?biz_type={HOSTILE}")).text
    assert "There is no such biz_type" in nothing
    assert HOSTILE not in nothing
    again = await review(client, NEW, **GIVEN)
    taken = await client.post(NEW, data=form_to(again.text, NEW).fields)
    assert (taken.status_code, 'id="w-name"' in taken.text) == (422, True)


async def test_what_is_wrong_stands_beside_its_field(
    client: httpx.AsyncClient, orders: str
) -> None:
    for field, text in (
        ("cron", "nonsense"),
        ("cron", ""),
        ("timezone", "Mars/Olympus"),
        ("name", "no name"),
        ("biz_type", "nobody"),
        ("start_after", "soon"),
        ("misfire_after", "long"),
        ("jitter", "inf"),
        ("biz_data", "{"),
        ("callback.url", "ftp://x"),
    ):
        wrong = await review(client, NEW, **(GIVEN | {field: text}))
        assert (field, wrong.status_code) == (field, 422)
        assert f'id="w-{field}"' in wrong.text, field
    hostile = await review(client, NEW, **(GIVEN | {"cron": HOSTILE, "name": HOSTILE}))
    assert HOSTILE not in hostile.text


async def test_the_next_times_are_told_while_one_types(
    client: httpx.AsyncClient, orders: str
) -> None:
    told = (await client.get("/console/cron?cron=30+9+*+*+*&timezone=Asia/Shanghai")).text
    assert told.count("09:30:00") == 10
    assert 'id="coming"' in told
    wrong = (await client.get(f"/console/cron?cron={HOSTILE}")).text
    assert 'class="wrong"' in wrong
    assert HOSTILE not in wrong
    assert "Nothing comes" in (await client.get("/console/cron")).text
    # Without JavaScript a button tells it.
    form = form_to((await client.get(NEW)).text, NEW).fields
    shown = await client.post(NEW, data=form | GIVEN | {"show": "yes"})
    assert (shown.status_code, shown.text.count("09:00:00")) == (200, 10)
    assert (await client.get("/v1/schedules")).json()["items"] == []


async def test_an_edit_keeps_what_the_form_does_not_know(
    client: httpx.AsyncClient, daily: str
) -> None:
    path = "/v1/biz/orders/schedules/daily"
    callback = {"url": "http://127.0.0.1:9/own", "headers": {"x-token": "s3cr3t", "x-a": "1"}}
    before = (await client.patch(path, json={"callback": callback})).json()
    same = await review(client, EDIT)
    assert (same.status_code, same.headers["location"]) == (303, ONE)
    asked = await review(client, EDIT, cron="0 10 * * *", jitter="5")
    assert "0 9 * * * → 0 10 * * *" in asked.text
    assert "s3cr3t" not in asked.text
    assert (await client.post(EDIT, data=form_to(asked.text, EDIT).fields)).status_code == 303
    after = (await client.get(path)).json()
    assert (after["cron"], after["jitter"]) == ("0 10 * * *", 5.0)
    for name in ("callback", "biz_data", "timezone", "misfire_after"):
        assert after[name] == before[name]
    other = form_to((await client.get(EDIT)).text, EDIT).fields
    await client.patch(path, json={"jitter": 6})
    late = await client.post(EDIT, data=other | {"jitter": "7"})
    assert (late.status_code, "meanwhile" in late.text) == (422, True)


async def test_a_payload_that_is_no_json_stays(client: httpx.AsyncClient, daily: str) -> None:
    path = "/v1/biz/orders/schedules/daily"
    binary = {"biz_data_base64": "/wCA", "content_type": "application/octet-stream"}
    await client.patch(path, json=binary)
    asked = await review(client, EDIT, jitter="3")
    await client.post(EDIT, data=form_to(asked.text, EDIT).fields)
    told = (await client.get(path)).json()
    assert (told["biz_data_base64"], told["jitter"]) == ("/wCA", 3.0)


async def test_it_is_disabled_enabled_run_and_deleted(
    client: httpx.AsyncClient, daily: str
) -> None:
    assert "It is disabled" in (await confirm(client, f"{ONE}/disable")).text
    assert "if it were enabled" in (await client.get(ONE)).text
    assert "It is enabled" in (await confirm(client, f"{ONE}/enable")).text
    assert "It is called now" in (await confirm(client, f"{ONE}/run")).text
    assert "is deleted" in (await confirm(client, f"{ONE}/delete")).text
    for part in ("", "/edit", "/run", "/enable", "/disable", "/delete"):
        assert (await client.get(ONE + part)).status_code == 404


async def test_a_narrowed_key_has_its_part(
    context: Context, client: httpx.AsyncClient, daily: str
) -> None:
    await client.put("/v1/biz/ours.a", json={"callback_url": "http://127.0.0.1:9/"})
    async with client_of(context, admin_key=ADMIN_KEY) as http:
        key = (await make(http, scopes=["read", "configure"], biz_types=["ours.*"]))["key"]
        await sign_in(http, key)
        assert "daily" not in (await http.get("/console/schedules")).text
        assert "no such" in (await http.get("/console/schedules?biz_type=orders")).text
        for path in (ONE, EDIT, f"{ONE}/delete"):
            assert (await http.get(path)).status_code == 404
        refused = await review(http, NEW, **GIVEN)
        assert (refused.status_code, 'id="w-biz_type"' in refused.text) == (422, True)
        own = await review(http, NEW, **(GIVEN | {"biz_type": "ours.a"}))
        assert own.status_code == 200
        assert (await http.get("/v1/schedules", headers=bearer(key))).json()["items"] == []
