"""Who may call a server with a key, and one without."""

from __future__ import annotations

import pytest

from broker.api.access import ADMIN, ANYONE, LOCAL, Access
from broker.api.actor import Actor
from wheel_timer.bearer import GivenKey, split_key
from wheel_timer.errors import Forbidden, Unauthorized

KEY = "correct horse battery staple"
OURS = Actor("key:1", frozenset({"read"}), ("orders.*",))


class Keys:
    """One key, which is known only after a second look."""

    def __init__(self) -> None:
        self.looks = 0

    def actor_of(self, given: GivenKey) -> Actor | None:
        return OURS if self.looks and given == split_key(b"wtk_1_secret") else None

    async def look_again(self) -> None:
        self.looks += 1


def server(admin_key: str | None) -> Access:
    return Access(admin_key, Keys())


async def check(
    access: Access, method: str = "GET", path: str = "/v1/limits", **headers: str
) -> Actor:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return await access.check(method, path, raw)


@pytest.mark.parametrize(
    "host",
    ["localhost", "LocalHost:8080", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:65535"],
)
async def test_without_a_key_this_machine_is_served(host: str) -> None:
    await check(server(None), host=host)
    await check(server(""), "POST", host=host)
    await check(server(None), "POST", host=host, origin=f"http://{host}")
    await check(server(None), "POST", host=host, sec_fetch_site="same-origin")


@pytest.mark.parametrize(
    "host",
    [
        "example.com",
        "localhost.example.com",
        "127.0.0.1.nip.io",
        "0.0.0.0",
        "",
        "localhost:x",
        "::1",
        "127.0.0.1:8080@evil",
        "localhost\n",
        "127.1",
        "[::2]",
        "localhost:123456",
    ],
)
async def test_without_a_key_another_name_is_refused(host: str) -> None:
    for path in ("/v1/limits", "/healthz", "/docs", "/metrics"):
        with pytest.raises(Forbidden):
            await check(server(None), path=path, host=host)


async def test_without_a_key_a_host_is_needed_once() -> None:
    with pytest.raises(Forbidden):
        await check(server(None))
    with pytest.raises(Forbidden):
        await server(None).check("GET", "/", [(b"host", b"localhost"), (b"host", b"localhost")])


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("origin", "http://example.com"),
        ("origin", "null"),
        ("origin", "http://localhost:3000"),
        ("origin", "https://localhost:8080"),
        ("origin", "http://localhost"),
        ("origin", "http://127.0.0.1:8080"),
        ("origin", "file://"),
        ("origin", "chrome-extension://abcdef"),
        ("origin", ""),
        ("sec_fetch_site", "cross-site"),
        # localhost:3000 is the same site, and not the same origin.
        ("sec_fetch_site", "same-site"),
    ],
)
async def test_a_foreign_page_may_read_but_change_nothing(
    method: str, name: str, value: str
) -> None:
    access = server(None)
    await check(access, "GET", host="localhost:8080", **{name: value})
    with pytest.raises(Forbidden):
        await check(access, method, host="localhost:8080", **{name: value})


async def test_with_a_key_it_is_needed_for_everything_that_tells() -> None:
    access = server(KEY)
    for path in ("/v1/limits", "/v1/tasks", "/metrics", "/v1/"):
        with pytest.raises(Unauthorized):
            await check(access, path=path)
        await check(access, path=path, authorization=f"Bearer {KEY}")
        await check(access, path=path, authorization=f"bearer  {KEY} ")
    for path in ("/healthz", "/readyz", "/openapi.json", "/docs", "/problems/not-found", "/x"):
        await check(access, path=path)


@pytest.mark.parametrize(
    "value", ["", KEY, f"Basic {KEY}", "Bearer", "Bearer ", "Bearer wrong", f"Bearer {KEY}x"]
)
async def test_another_key_does_not_count(value: str) -> None:
    with pytest.raises(Unauthorized):
        await check(server(KEY), authorization=value)


async def test_with_a_key_any_host_and_origin_are_served() -> None:
    headers = {"host": "timer.example.com", "origin": "http://other.example.com"}
    await check(server(KEY), "POST", authorization=f"Bearer {KEY}", **headers)


async def test_two_origins_are_as_foreign_as_one() -> None:
    own, foreign = (b"origin", b"http://localhost"), (b"origin", b"http://example.com")
    for pair in ((own, foreign), (foreign, own)):
        with pytest.raises(Forbidden):
            await server(None).check("POST", "/v1/tasks", [(b"host", b"localhost"), *pair])


async def test_without_a_key_a_proxy_lets_nobody_in() -> None:
    await check(server(None), host="localhost", x_forwarded_for="127.0.0.1, ::1")
    for hops in ("192.0.2.7", "127.0.0.1, 192.0.2.7", "unknown", ""):
        with pytest.raises(Forbidden):
            await check(server(None), host="localhost", x_forwarded_for=hops)


async def test_a_key_that_others_made_a_moment_ago_counts() -> None:
    keys = Keys()
    access = Access(KEY, keys)
    assert await check(access, authorization="Bearer wtk_1_secret") == OURS
    assert keys.looks == 1
    with pytest.raises(Unauthorized):
        await check(access, authorization="Bearer wtk_1_other")
    assert keys.looks == 2
    with pytest.raises(Unauthorized):
        await check(access, authorization="Bearer no key of ours")
    assert keys.looks == 2


async def test_who_calls() -> None:
    assert await check(server(KEY), authorization=f"Bearer {KEY}") == ADMIN
    assert await check(server(KEY), path="/docs") == ANYONE
    assert await check(server(None), host="localhost") == LOCAL


async def test_a_key_narrows_on_an_open_server_too() -> None:
    access = server(None)
    assert await check(access, host="localhost", authorization="Bearer wtk_1_secret") == OURS
    assert await check(access, host="localhost", authorization="Bearer left over") == LOCAL
    with pytest.raises(Unauthorized):
        await check(access, host="localhost", authorization="Bearer wtk_1_revoked")
    with pytest.raises(Forbidden):
        await check(access, host="example.com", authorization="Bearer wtk_1_secret")
