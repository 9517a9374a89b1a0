"""Pages of what is done and kept: keys, operations, changes, audits, the ledger."""

from __future__ import annotations

import re

import httpx
import pytest

from broker.api.context import Context
from tests.fix_console import confirm, form_to, sign_in
from tests.fix_sessions import until
from tests.integration.api.conftest import client_of
from tests.integration.api.test_keys import ADMIN_KEY, bearer, make
from wheel_timer.database import Database
from wheel_timer.store import audit as audit_store
from wheel_timer.store.audit import Audit, audit_files

HOSTILE = "<img src=x onerror=alert(1)>"
NEW_KEY = "/console/new-key"


async def test_a_key_is_made_shown_once_rotated_and_revoked(context: Context) -> None:
    async with client_of(context, admin_key=ADMIN_KEY) as http:
        await sign_in(http, ADMIN_KEY)
        form = form_to((await http.get(NEW_KEY)).text, NEW_KEY).fields
        none = await http.post(NEW_KEY, data=form | {"name": "shop"})
        assert (none.status_code, "at least one" in none.text) == (422, True)
        filled = form | {
            "name": f"shop {HOSTILE}",
            "scope.submit": "on",
            "biz_types": "orders.*, refunds",
            "expires": "2090-01-01T00:00",
        }
        for wrong in ({"biz_types": "Orders!"}, {"expires": "soon"}, {"name": ""}):
            assert (await http.post(NEW_KEY, data=filled | wrong)).status_code == 422
        asked = await http.post(NEW_KEY, data=filled)
        assert HOSTILE not in asked.text
        assert "orders.*, refunds" in asked.text
        made = await http.post(NEW_KEY, data=form_to(asked.text, NEW_KEY).fields)
        (key,) = re.findall(r"wtk_\w+_[\w-]+", made.text)
        assert made.headers["cache-control"] == "no-store"
        assert (await http.get("/v1/tasks/x", headers=bearer(key))).status_code == 403
        listed = (await http.get("/console/keys")).text
        assert key not in listed
        assert HOSTILE not in listed
        (told,) = (await http.get("/v1/keys", headers=bearer(ADMIN_KEY))).json()["items"]
        assert (told["scopes"], told["biz_types"]) == (["submit"], ["orders.*", "refunds"])
        assert told["expires"] == "2090-01-01T00:00:00.000Z"
        rotate = f"/console/keys/{told['key_id']}/rotate"
        fields = form_to((await http.get(rotate)).text, rotate).fields
        assert (await http.post(rotate, data=fields | {"overlap": "x"})).status_code == 422
        rotated = await http.post(rotate, data=fields | {"overlap": "0"})
        (second,) = re.findall(r"wtk_\w+_[\w-]+", rotated.text)
        assert second != key
        assert (await http.get("/v1/tasks/x", headers=bearer(key))).status_code == 401
        page = await confirm(http, f"/console/keys/{told['key_id']}/revoke")
        assert "is revoked" in page.text
        assert (await http.get("/v1/tasks/x", headers=bearer(second))).status_code == 401
        assert (await http.get("/console/keys/nothing/rotate")).status_code == 404


async def test_a_narrowed_admin_makes_keys_for_his_part(context: Context) -> None:
    async with client_of(context, admin_key=ADMIN_KEY) as http:
        await make(http, name="another's", scopes=["read"])
        own = await make(http, name="ours", scopes=["admin"], biz_types=["ours.*"])
        await sign_in(http, own["key"])
        listed = (await http.get("/console/keys")).text
        assert "another" not in listed
        form = form_to((await http.get(NEW_KEY)).text, NEW_KEY).fields
        assert form["biz_types"] == "ours.*"
        filled = form | {"name": "x", "scope.read": "on"}
        beyond = await http.post(NEW_KEY, data=filled | {"biz_types": "*"})
        act = form_to(beyond.text, NEW_KEY).fields
        refused = await http.post(NEW_KEY, data=act)
        assert (refused.status_code, "its own biz_types" in refused.text) == (422, True)


async def test_an_operation_is_shown_and_stopped(client: httpx.AsyncClient, orders: str) -> None:
    body = {"action": "cancel", "filter": {"biz_type": orders, "biz_id_prefix": HOSTILE}}
    begun = (await client.post("/v1/operations", json=body)).json()
    listed = (await client.get("/console/operations")).text
    assert begun["operation_id"] in listed
    assert HOSTILE not in listed
    path = f"/console/operations/{begun['operation_id']}"
    assert "running" in (await client.get(path)).text
    assert "It is stopped" in (await confirm(client, f"{path}/stop")).text
    assert "It had ended before" not in (await client.get(path)).text
    assert (await client.get("/console/operations/nothing")).status_code == 404


async def test_a_narrowed_key_sees_its_operations(context: Context) -> None:
    async with client_of(context, admin_key=ADMIN_KEY) as http:
        for name in ("ours.a", "theirs"):
            body = {"allow_callback_override": True}
            await http.put(f"/v1/biz/{name}", json=body, headers=bearer(ADMIN_KEY))
            await http.post(f"/v1/biz/{name}/purge", headers=bearer(ADMIN_KEY))
        key = (await make(http, scopes=["read", "operate"], biz_types=["ours.*"]))["key"]
        await sign_in(http, key)
        listed = (await http.get("/console/operations")).text
        assert "ours.a" in listed
        assert "theirs" not in listed
        ops = (await http.get("/v1/operations", headers=bearer(ADMIN_KEY))).json()["items"]
        (other,) = (one for one in ops if one["filter"]["biz_type"] == "theirs")
        for part in ("", "/stop"):
            found = await http.get(f"/console/operations/{other['operation_id']}{part}")
            assert found.status_code == 404
        assert (await http.get("/console/ledger?biz_type=theirs")).status_code == 404
        assert "theirs" not in (await http.get("/console/ledger")).text


async def test_changes_are_found_by_what_by_whom_and_when(
    client: httpx.AsyncClient, orders: str
) -> None:
    await client.patch("/v1/biz/orders", json={"timeout": 7})
    await client.put("/v1/biz/other", json={"allow_callback_override": True})
    page = (await client.get("/console/changes")).text
    assert "biz.patch" in page
    assert "&#34;timeout&#34;: 7.0" in page
    of_one = (await client.get("/console/changes?object=other&actor=local")).text
    assert "biz.put" in of_one
    assert "biz.patch" not in of_one
    later = (await client.get("/console/changes?from=2090-01-01T00:00")).text
    assert "Nothing that fits" in later
    wrong = await client.get(f"/console/changes?from={HOSTILE}")
    assert wrong.status_code == 422
    assert HOSTILE not in wrong.text


async def test_a_change_is_cut_where_it_is_long(client: httpx.AsyncClient, orders: str) -> None:
    headers = {f"x-{n}": "v" * 100 for n in range(60)}
    for n in range(45):
        await client.patch("/v1/biz/orders", json={"callback_headers": headers, "timeout": n + 1})
    page = await client.get("/console/changes")
    assert len(page.content) < 150_000
    onward = re.search(r'href="([^"]+)" rel="next"', page.text)
    assert onward is not None
    older = (await client.get(onward[1].replace("&amp;", "&"))).text
    assert "biz.put" in older


async def test_audits_run_behind_the_page(context: Context, client: httpx.AsyncClient) -> None:
    listed = (await client.get("/console/audits")).text
    for file in audit_files():
        assert f"/console/audits/{file.name}" in listed
    assert listed.count("not run yet") == len(audit_files())
    one = (await client.get("/console/audits/lost")).text
    assert "nothing will ever look at again" in one
    assert "FROM timer_task AS t" in one
    assert "There is no result yet" in one
    assert "The audit lost runs" in (await confirm(client, "/console/audits/lost/run")).text

    async def has_ended() -> bool:
        return (await audit_store.runs(context.db))["lost"].ended_ms is not None

    await until(has_ended)
    assert "No row." in (await client.get("/console/audits/lost")).text
    assert "holds" in (await client.get("/console/audits")).text
    assert (await client.get("/console/audits/nothing")).status_code == 404


async def test_what_an_audit_found_is_kept_for_those_who_see_it(
    context: Context, db: Database
) -> None:
    rows = [("t1", "ours.a", HOSTILE), ("t2", "theirs", "x"), ("t3", None, None)]
    await audit_store.keep(
        db, Audit("overdue", "violation", ["task_id", "biz_type", "why"], rows), 1_500.0
    )
    await audit_store.begin(db, "early")
    assert not await audit_store.begin(db, "early")
    await audit_store.give_up(db, "lateness", 300_000.0, "no reply within 300 s")
    async with client_of(context, admin_key=ADMIN_KEY) as http:
        await sign_in(http, ADMIN_KEY)
        listed = (await http.get("/console/audits")).text
        assert "3 found" in listed
        assert ">runs<" in listed
        assert "given up" in listed
        one = (await http.get("/console/audits/overdue")).text
        assert "theirs" in one
        assert HOSTILE not in one
        key = (await make(http, scopes=["read"], biz_types=["ours.*"]))["key"]
        await sign_in(http, key)
        assert "3 found" not in (await http.get("/console/audits")).text
        narrowed = (await http.get("/console/audits/overdue")).text
        assert "t1" in narrowed
        assert "t2" not in narrowed
        assert "t3" not in narrowed


async def test_the_api_keeps_what_its_audits_found(
    context: Context, client: httpx.AsyncClient
) -> None:
    assert (await client.get("/v1/audits")).json()["holds"]
    runs = await audit_store.runs(context.db)
    assert {name for name, run in runs.items() if run.error is None and run.begun_ms is None} == {
        file.name for file in audit_files()
    }


@pytest.mark.parametrize("by", ["day", "quarter"])
async def test_the_ledger_adds_up(client: httpx.AsyncClient, orders: str, by: str) -> None:
    for minute in (0, 14, 15):
        start = f"2090-03-01T10:{minute:02d}:00Z"
        made = (
            await client.post("/v1/tasks", json={"biz_type": orders, "start_time": start})
        ).json()
    assert (await client.delete(f"/v1/tasks/{made['task_id']}")).status_code == 200
    page = (await client.get(f"/console/ledger?biz_type={orders}&by={by}&day=2090-03-01")).text
    cells = re.findall(r'data-label="(Submitted|Pending|Cancelled)">(\d+)<', page)
    sums = [("Submitted", "3"), ("Pending", "2"), ("Cancelled", "1")]
    if by == "day":
        assert cells == sums * 2
    else:
        assert cells == [
            *(("Submitted", "1"), ("Pending", "0"), ("Cancelled", "1")),
            *(("Submitted", "2"), ("Pending", "2"), ("Cancelled", "0")),
            *sums,
        ]
    for odd in ("x", "9999-12-31", "0001-01-01", HOSTILE):
        answer = await client.get(f"/console/ledger?biz_type={orders}&by={by}&day={odd}")
        assert (answer.status_code, HOSTILE in answer.text) == (200, False)
