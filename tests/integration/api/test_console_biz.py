"""The pages of biz_types: the list, one, its form, what is done to it."""

from __future__ import annotations

import re

import httpx
import pytest

from broker.api.context import Context
from tests.fix_console import confirm, form_to, sign_in
from tests.fix_endpoint import Endpoint
from tests.integration.api.conftest import client_of
from tests.integration.api.test_keys import ADMIN_KEY, bearer, make

ORDERS = "/console/biz/orders"
EDIT = f"{ORDERS}/edit"
NEW = "/console/new-biz-type"
SECRET = "whsec_" + "QUJD" * 8
HOSTILE = "<script>alert(1)</script>"


async def review(http: httpx.AsyncClient, path: str, **fields: str) -> httpx.Response:
    """Fill in the form of a page, and send it."""
    form = form_to((await http.get(path)).text, path)
    return await http.post(path, data=form.fields | fields)


async def act(http: httpx.AsyncClient, path: str, asked: httpx.Response) -> httpx.Response:
    """Confirm what was asked; the answer to that."""
    return await http.post(path, data=form_to(asked.text, path).fields)


async def test_the_list_finds_sorts_and_goes_on(client: httpx.AsyncClient) -> None:
    for n in range(60):
        body = {"callback_url": f"http://host-{n}.example/x", "paused": n == 3}
        assert (await client.put(f"/v1/biz/team-{n:02d}", json=body)).status_code == 201
    first = (await client.get("/console/biz")).text
    assert "1 to 50 of 60" in first
    assert first.count("host-") == 50
    assert first.count(">paused<") == 1
    onward = re.search(r'href="([^"]+)" rel="next"', first)
    assert onward is not None
    second = (await client.get(onward[1].replace("&amp;", "&"))).text
    assert "51 to 60 of 60" in second
    found = (await client.get("/console/biz?search=team-5&order=pending")).text
    assert "10 found" in found
    nothing = (await client.get(f"/console/biz?search={HOSTILE}&page=7&order=x")).text
    assert HOSTILE not in nothing
    assert "No biz_type&#39;s name holds that" in nothing or "No biz_type's name" in nothing


async def test_one_is_made_by_a_form(client: httpx.AsyncClient) -> None:
    asked = await review(
        client,
        NEW,
        biz_type="orders",
        callback_url="https://shop.example/timer",
        secret=SECRET,
        callback_headers="X-Shop: 7\nauthorization: Bearer abc",
        rate_limit="12.5",
        final_statuses="404, 422",
        **{"retry.ladder": "5 60"},
    )
    assert asked.status_code == 200, asked.text
    assert "Make the biz_type orders?" in asked.text
    assert "https://shop.example/timer" in asked.text
    made = await act(client, NEW, asked)
    assert (made.status_code, made.headers["location"]) == (303, ORDERS)
    told = (await client.get("/v1/biz/orders")).json()
    assert (told["rate_limit"], told["final_statuses"]) == (12.5, [404, 422])
    assert told["retry"]["ladder"] == [5.0, 60.0]
    assert told["callback_headers"] == {"x-shop": "7", "authorization": {"set": True}}
    assert told["secret"] == {"set": True}
    page = (await client.get(ORDERS)).text
    assert "orders is made" in (await client.get(ORDERS)).text or "is made" in page
    assert "Bearer abc" not in page
    assert SECRET not in page
    again = await review(client, NEW, biz_type="orders", callback_url="https://shop.example/")
    assert (again.status_code, "it exists already" in again.text) == (422, True)


async def test_what_is_wrong_stands_beside_its_field(client: httpx.AsyncClient) -> None:
    wrong = await review(
        client,
        NEW,
        biz_type="Orders",
        callback_url="ftp://shop.example",
    )
    assert wrong.status_code == 422
    assert 'id="w-biz_type"' in wrong.text
    wrong = await review(
        client, NEW, biz_type="orders", callback_url="ftp://shop.example", timeout="soon"
    )
    assert re.search(r'id="w-timeout">&#39;soon&#39; is no number', wrong.text), wrong.text
    wrong = await review(client, NEW, biz_type="orders", callback_url="ftp://shop.example")
    assert 'id="w-callback_url"' in wrong.text
    assert 'value="ftp://shop.example"' in wrong.text
    deep = await review(
        client,
        NEW,
        biz_type="orders",
        callback_url="http://shop.example",
        callback_headers=f"x: 1\n{HOSTILE}",
        **{"retry.backoff.initial": "9", "retry.backoff.max": "8"},
    )
    assert 'id="w-callback_headers"' in deep.text
    assert HOSTILE not in deep.text
    deep = await review(
        client,
        NEW,
        biz_type="orders",
        callback_url="http://shop.example",
        **{"retry.backoff.initial": "9", "retry.backoff.max": "8"},
    )
    assert 'id="w-retry.backoff.max"' in deep.text
    assert (await client.get("/v1/biz/orders")).status_code == 404


async def test_an_edit_shows_what_will_differ_and_keeps_the_rest(
    client: httpx.AsyncClient, orders: str
) -> None:
    patch = {
        "secret": SECRET,
        "callback_headers": {"authorization": "Bearer abc", "x-shop": "7"},
        "paused": True,
    }
    assert (await client.patch("/v1/biz/orders", json=patch)).status_code == 200
    before = (await client.get("/v1/biz/orders")).json()
    same = await review(client, EDIT)
    assert (same.status_code, same.headers["location"]) == (303, ORDERS)
    assert (await client.get("/v1/biz/orders")).json() == before
    asked = await review(client, EDIT, timeout="5.5")
    assert "10.0 → 5.5" in asked.text
    done = await act(client, EDIT, asked)
    assert done.status_code == 303
    after = (await client.get("/v1/biz/orders")).json()
    assert after == before | {"timeout": 5.5, "version": after["version"]}
    history = (await client.get(f"{ORDERS}/history")).text
    assert "<del>10.0</del> → <ins>5.5</ins>" in history
    removed = await review(client, EDIT, callback_headers="x-shop: 8", **{"secret.remove": "on"})
    await act(client, EDIT, removed)
    last = (await client.get("/v1/biz/orders")).json()
    assert (last["callback_headers"], last["secret"]) == ({"x-shop": "8"}, None)


async def test_of_two_editors_the_second_sees_what_the_first_did(
    client: httpx.AsyncClient, orders: str
) -> None:
    ours = form_to((await client.get(EDIT)).text, EDIT)
    asked = await client.post(EDIT, data=ours.fields | {"priority": "7"})
    await client.patch("/v1/biz/orders", json={"timeout": 3})
    late = await act(client, EDIT, asked)
    assert (late.status_code, "meanwhile" in late.text or "version" in late.text) == (422, True)
    told = (await client.get("/v1/biz/orders")).json()
    assert (told["timeout"], told["priority"]) == (3, 5)
    # The form that comes back carries what was filled in, and the version that is there now.
    again = await client.post(EDIT, data=form_to(late.text, EDIT).fields)
    assert "3.0 → 10" in again.text
    assert "5 → 7" in again.text


async def test_it_is_paused_resumed_purged_and_deleted(
    client: httpx.AsyncClient, orders: str
) -> None:
    assert "is paused" in (await confirm(client, f"{ORDERS}/pause")).text
    assert (await client.get("/v1/biz/orders")).json()["paused"]
    assert "is called again" in (await confirm(client, f"{ORDERS}/resume")).text
    assert not (await client.get("/v1/biz/orders")).json()["paused"]
    await client.post("/v1/tasks", json={"biz_type": "orders", "delay": 1000})
    for path, fields in ((f"{ORDERS}/purge", {}), (f"{ORDERS}/delete", {"purge": "on"})):
        page = await client.get(path)
        form = form_to(page.text, path).fields
        untyped = await client.post(path, data=form | {"typed": "order"})
        assert (untyped.status_code, "type orders" in untyped.text) == (422, True)
        if "delete" in path:
            kept = await client.post(path, data=form | {"typed": "orders"})
            assert (kept.status_code, "pending" in kept.text) == (422, True)
        done = await client.post(path, data=form | {"typed": "orders"} | fields)
        assert done.status_code == 303, done.text
        operation = done.headers["location"].replace("/console/", "/v1/")
        assert (await client.get(operation)).json()["action"] == "purge"
    assert (await client.get("/v1/biz/orders")).status_code == 404
    assert (await client.get(ORDERS)).status_code == 404
    assert "delete" in (await client.get(f"{ORDERS}/history")).text


async def test_a_test_call_is_made_and_told(
    client: httpx.AsyncClient, orders: str, endpoint: Endpoint
) -> None:
    await client.patch("/v1/biz/orders", json={"callback_url": endpoint.url})
    path = f"{ORDERS}/test"
    form = form_to((await client.get(path)).text, path).fields
    bad = await client.post(path, data=form | {"body": "{"})
    assert (bad.status_code, "this is no JSON" in bad.text) == (422, True)
    told = await client.post(path, data=form | {"body": '{"order": 1017}'})
    assert "finished" in told.text
    assert "127.0.0.1" in told.text
    (call,) = endpoint.received
    assert call.body == b'{"order": 1017}'


async def test_a_secret_is_rotated_and_shown_once(client: httpx.AsyncClient, orders: str) -> None:
    path = f"{ORDERS}/rotate-secret"
    form = form_to((await client.get(path)).text, path).fields
    for wrong in ({"grace": "x"}, {"grace": "-1"}, {"secret": "short"}):
        assert (await client.post(path, data=form | wrong)).status_code == 422
    made = await client.post(path, data=form)
    shown = re.search(r"whsec_[\w+/=]+", made.text)
    assert shown is not None
    assert made.headers["cache-control"] == "no-store"
    for page in (ORDERS, path, EDIT, f"{ORDERS}/history"):
        assert shown[0] not in (await client.get(page)).text


async def test_a_narrowed_key_has_its_part(context: Context, orders: str) -> None:
    async with client_of(context, admin_key=ADMIN_KEY) as http:
        for name in ("ours.a", "theirs"):
            body = {"allow_callback_override": True}
            await http.put(f"/v1/biz/{name}", json=body, headers=bearer(ADMIN_KEY))
        key = (await make(http, scopes=["read", "configure"], biz_types=["ours.*"]))["key"]
        await sign_in(http, key)
        page = (await http.get("/console/biz")).text
        assert "ours.a" in page
        assert "theirs" not in page
        for path in ("/console/biz/theirs", "/console/biz/theirs/edit"):
            assert (await http.get(path)).status_code == 404
        assert (await http.get("/console/biz/theirs/history")).status_code == 404
        one = (await http.get("/console/biz/ours.a")).text
        assert "/edit" in one
        assert "/pause" not in one
        refused = await review(http, NEW, biz_type="theirs.b", callback_url="http://x.example/")
        assert (refused.status_code, 'id="w-biz_type"' in refused.text) == (422, True)
        heard = await review(http, "/console/biz/ours.a/edit", on_failed="theirs")
        assert (heard.status_code, 'id="w-on_failed"' in heard.text) == (422, True)


@pytest.mark.parametrize("name", ["nobody", "No%20Name", "..%2Fwheel"])
async def test_what_is_not_there_is_404(client: httpx.AsyncClient, name: str) -> None:
    for part in ("", "/edit", "/test", "/purge", "/delete", "/rotate-secret", "/history"):
        assert (await client.get(f"/console/biz/{name}{part}")).status_code == 404, part
