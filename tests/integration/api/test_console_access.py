"""Who sees the console, and by what it is kept from others: every page of it, one by one."""

from __future__ import annotations

import re
import time
from typing import Any

import httpx
import pytest

from broker.api.actor import SCOPES
from broker.api.context import Context
from broker.console.page import Page
from broker.console.pages import PAGES
from broker.console.session import COOKIE
from tests.fix_console import confirm, form_to, forms_of, hidden, sign_in
from tests.integration.api.conftest import client_of
from tests.integration.api.test_keys import ADMIN_KEY, bearer, make

FOREIGN = ("http://localhost:9999", "https://localhost:8080.evil.example", "null")


@pytest.fixture
def keyed(context: Context) -> httpx.AsyncClient:
    return client_of(context, admin_key=ADMIN_KEY)


def path_of(page: Page) -> str:
    """The page's path with something in its parameters that is not there."""
    return re.sub(r"{\w+}", "nothing", page.path)


def check_headers(answer: httpx.Response) -> None:
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "same-origin"
    assert "no-store" in answer.headers["cache-control"]
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_who_has_not_signed_in_sees_no_page(keyed: httpx.AsyncClient) -> None:
    for path in map(path_of, PAGES):
        for answer in (await keyed.get(path), await keyed.post(path, data={"step": "act"})):
            check_headers(answer)
            assert answer.status_code == 303, path
            assert answer.headers["location"].startswith("/console/sign-in?next=%2Fconsole%2F")
            assert COOKIE not in answer.headers.get("set-cookie", "")
        part = await keyed.get(path, headers={"hx-request": "true"})
        assert (part.status_code, part.headers["hx-refresh"], part.text) == (401, "true", "")


async def test_a_page_wants_its_scope(keyed: httpx.AsyncClient) -> None:
    """The page is refused and what is done there, and no menu leads to what is refused."""
    keys = {}
    for page in PAGES:
        scopes = tuple(scope for scope in SCOPES if scope not in page.scopes)
        if not page.scopes:
            continue
        if scopes not in keys:
            keys[scopes] = (await make(keyed, scopes=list(scopes)))["key"]
        await sign_in(keyed, keys[scopes])
        for answer in (await keyed.get(path_of(page)), await keyed.post(path_of(page))):
            check_headers(answer)
            assert answer.status_code == 403, page.path
            assert "lacks the scope" in answer.text
            assert f'href="{page.path}"' not in answer.text


async def test_nothing_is_done_without_the_token_of_its_confirmation(
    client: httpx.AsyncClient,
) -> None:
    resume = "/console/wheel/resume"
    other = form_to((await client.get(resume)).text, resume).fields
    for path in (path_of(page) for page in PAGES if page.path != resume):
        for fields in ({}, {"step": "act"}, {"step": "act", "token": "0" * 64}, other):
            answer = await client.post(path, data=fields)
            check_headers(answer)
            assert answer.status_code in (403, 405), (path, fields)
    for headers in (
        *({"origin": origin} for origin in FOREIGN),
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "cross-site"},
    ):
        answer = await client.post(resume, data=other, headers=headers)
        assert answer.status_code == 403, headers
    assert (await client.post(resume, data=other | {"step": "review"})).status_code == 405
    assert (await client.post(resume, data=other)).status_code == 303


async def test_a_foreign_page_may_change_nothing_on_a_keyed_server(
    keyed: httpx.AsyncClient,
) -> None:
    await sign_in(keyed, ADMIN_KEY)
    path = "/console/wheel/pause"
    asked = await keyed.get(f"{path}?reason=trial")
    fields = form_to(asked.text, path).fields
    for headers in (
        *({"origin": origin} for origin in FOREIGN),
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": "http://localhost:8080"},
    ):
        answer = await keyed.post(path, data=fields, headers=headers)
        assert answer.status_code == 403, headers
    assert (await keyed.get("/v1/wheel", headers=bearer())).json()["brake"] is None
    own = {"origin": "http://localhost:8080", "sec-fetch-site": "same-origin"}
    assert (await keyed.post(path, data=fields, headers=own)).status_code == 303
    wheel = (await keyed.get("/v1/wheel", headers=bearer())).json()
    assert (wheel["brake"]["reason"], wheel["brake"]["actor"]) == ("trial", "admin")


async def test_a_key_signs_in_and_out(keyed: httpx.AsyncClient) -> None:
    made = await make(keyed, scopes=["read", "operate"])
    answer = await sign_in(keyed, made["key"])
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/wheel")
    cookie = answer.headers["set-cookie"]
    assert all(word in cookie for word in ("HttpOnly", "SameSite=lax", "Path=/console"))
    assert "Secure" not in cookie
    assert made["key"].split("_", 2)[2] not in cookie
    wheel = await keyed.get("/console/wheel")
    assert wheel.status_code == 200
    assert f"key:{made['key_id']}" in wheel.text
    assert made["key"] not in wheel.text
    out = form_to(wheel.text, "/console/sign-out")
    assert (await keyed.post(out.action, data={"token": "no"})).status_code == 403
    gone = await keyed.post(out.action, data=out.fields)
    assert gone.headers["location"] == "/console/sign-in"
    assert (await keyed.get("/console/wheel")).status_code == 303


async def test_a_wrong_key_signs_nobody_in(
    keyed: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    for key in ("", "wrong", "wtk_0000_wrong", "wtk_", "ä"):
        answer = await sign_in(keyed, key)
        check_headers(answer)
        assert answer.status_code == 401
        assert "not one of this server" in answer.text
        assert not key or key not in list(hidden(answer.text))
    assert (await keyed.get("/console/wheel")).status_code == 303
    assert any("counts for nothing here" in line for line in caplog.messages)
    assert not any("wrong" in line for line in caplog.messages)


async def test_a_sign_in_of_another_page_is_refused(keyed: httpx.AsyncClient) -> None:
    page = await keyed.get("/console/sign-in")
    fields = form_to(page.text, "/console/sign-in").fields | {"key": ADMIN_KEY}
    foreign = {"origin": "https://evil.example"}
    answer = await keyed.post("/console/sign-in", data=fields, headers=foreign)
    assert answer.status_code == 403
    keyed.cookies.clear()
    answer = await keyed.post("/console/sign-in", data=fields)
    assert answer.status_code == 401
    assert "too old" in answer.text


async def test_a_revoked_key_ends_its_sessions(keyed: httpx.AsyncClient) -> None:
    made = await make(keyed, scopes=["read"])
    await sign_in(keyed, made["key"])
    assert (await keyed.get("/console/wheel")).status_code == 200
    gone = await keyed.delete(f"/v1/keys/{made['key_id']}", headers=bearer())
    assert gone.status_code == 200
    assert (await keyed.get("/console/wheel")).status_code == 303


async def test_a_rotated_key_ends_its_sessions_after_the_overlap(keyed: httpx.AsyncClient) -> None:
    made = await make(keyed, scopes=["read"])
    await sign_in(keyed, made["key"])
    path = f"/v1/keys/{made['key_id']}/rotate"
    await keyed.post(path, json={"overlap": 60}, headers=bearer())
    assert (await keyed.get("/console/wheel")).status_code == 200
    await keyed.post(path, json={"overlap": 0}, headers=bearer())
    assert (await keyed.get("/console/wheel")).status_code == 303


async def test_a_session_ends_by_the_clock(
    keyed: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    began_s = time.time()
    await sign_in(keyed, ADMIN_KEY)
    # Beside the client's jar, which lets a cookie go by the same clock.
    keyed.headers["cookie"] = f"{COOKIE}={keyed.cookies[COOKIE]}"
    keyed.cookies.clear()
    assert (await keyed.get("/console/wheel")).status_code == 200
    monkeypatch.setattr(time, "time", lambda: began_s + 12 * 3600 + 60)
    assert (await keyed.get("/console/wheel")).status_code == 303


async def test_after_signing_in_one_gets_where_one_wanted_and_nowhere_else(
    keyed: httpx.AsyncClient,
) -> None:
    for wanted, got in (
        ("/console/wheel?search=a", "/console/wheel?search=a"),
        ("//evil.example", "/console/wheel"),
        ("/console.evil.example", "/console/wheel"),
        ("https://evil.example/console/", "/console/wheel"),
        ("/console/\\evil.example", "/console/wheel"),
        ("/console/\r\nset-cookie: a=b", "/console/wheel"),
        ("/console/sign-in", "/console/wheel"),
    ):
        page = await keyed.get("/console/sign-in", params={"next": wanted})
        fields = form_to(page.text, "/console/sign-in").fields
        assert fields["next"] == got
        sent = fields | {"key": ADMIN_KEY, "next": wanted}
        answer = await keyed.post("/console/sign-in", data=sent)
        assert (answer.status_code, answer.headers["location"]) == (303, got)


async def test_behind_a_trusted_proxy_with_tls_the_cookie_is_secure(context: Context) -> None:
    for trusted, is_secure in ((("127.0.0.0/8",), True), ((), False)):
        http = client_of(context, admin_key=ADMIN_KEY, trusted_proxies=trusted)
        http.headers["x-forwarded-proto"] = "https"
        page = await http.get("/console/sign-in")
        assert ("Secure" in page.headers["set-cookie"]) is is_secure


async def test_an_open_server_serves_this_machine_only(client: httpx.AsyncClient) -> None:
    page = await client.get("/console/wheel")
    assert page.status_code == 200
    assert "open on this machine" in page.text
    for headers in ({"host": "evil.example"}, {"x-forwarded-for": "203.0.113.9"}):
        refused = await client.get("/console/wheel", headers=headers)
        check_headers(refused)
        assert refused.status_code == 403
        assert "Without ADMIN_KEY" in refused.text


async def test_on_an_open_server_a_key_shows_what_it_sees(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/keys", json={"name": "shop", "scopes": ["read"]})
    refused = await sign_in(client, "anything")
    assert (refused.status_code, "begin with wtk_" in refused.text) == (401, True)
    await sign_in(client, answer.json()["key"])
    page = await client.get("/console/wheel")
    assert f"key:{answer.json()['key_id']}" in page.text
    assert "/console/wheel/pause" not in page.text


async def test_what_is_not_there_is_404_and_other_methods_are_405(
    client: httpx.AsyncClient,
) -> None:
    for path in ("/console/nothing", "/console/wheel/", "/console/static/console.css"):
        answer = await client.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (
            404,
            "text/html; charset=utf-8",
        )
        check_headers(answer)
    assert (await client.delete("/console/wheel")).status_code == 405
    assert (await client.get("/consoles")).headers["content-type"] == "application/problem+json"
    head = await client.head("/console/wheel")
    assert (head.status_code, head.content) == (200, b"")


async def test_a_form_is_bounded_and_of_one_kind(client: httpx.AsyncClient) -> None:
    path = "/console/wheel/resume"
    kinds: dict[str, Any] = {"multipart/form-data; boundary=x": 415, "application/json": 415}
    for kind, status in kinds.items():
        answer = await client.post(path, content=b"{}", headers={"content-type": kind})
        assert answer.status_code == status
    form = {"content-type": "application/x-www-form-urlencoded"}
    for body, status in (
        (b"a=" + b"x" * (1 << 20), 413),
        (b"&".join(b"a%d=1" % n for n in range(300)), 400),
        (b"a=%ff", 400),
        (b"\xff=1", 400),
        (b"a=1&a=2", 400),
    ):
        answer = await client.post(path, content=body, headers=form)
        assert answer.status_code == status


async def test_files_are_kept_for_good_under_names_of_their_content(
    client: httpx.AsyncClient,
) -> None:
    page = (await client.get("/console/wheel")).text
    paths = re.findall(r'"(/console/static/[^"]+)"', page)
    assert len(set(paths)) == 4
    for path in paths:
        answer = await client.get(path)
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert "//" not in re.sub(r"http-equiv|<!.*?>", "", page).replace("/console/", "")


async def test_the_brake_is_put_on_and_taken_off(client: httpx.AsyncClient) -> None:
    page = await client.get("/console/wheel/pause")
    (form,) = forms_of(page.text)
    assert (form.method, form.action) == ("get", "/console/wheel/pause")
    empty = await client.get("/console/wheel/pause", params={"reason": "   "})
    assert (empty.status_code, "printable" in empty.text) == (422, True)
    after = await confirm(client, "/console/wheel/pause?reason=%3Cb%3Eshop%20is%20down")
    assert "The brake is on: nothing new is called." in after.text
    assert "&lt;b&gt;shop is down" in after.text
    assert "<b>" not in after.text
    assert 'role="status"' not in (await client.get("/console/wheel")).text
    after = await confirm(client, "/console/wheel/resume")
    assert "The brake is off" in after.text
    changes = (await client.get("/v1/changes")).json()["items"]
    assert [change["actor"] for change in changes] == ["local", "local"]


async def test_the_brake_is_not_for_a_narrowed_key(keyed: httpx.AsyncClient) -> None:
    made = await make(keyed, scopes=["read", "operate"], biz_types=["orders.*"])
    await sign_in(keyed, made["key"])
    assert "/console/wheel/pause" not in (await keyed.get("/console/wheel")).text
    for verb in ("pause?reason=x", "resume", "accept-jump"):
        assert (await keyed.get(f"/console/wheel/{verb}")).status_code == 403
