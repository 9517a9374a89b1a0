"""Who may call a server with a key, and one without."""

from __future__ import annotations

import pytest

from broker.api.access import Access
from wheel_timer.errors import Forbidden, Unauthorized

KEY = "correct horse battery staple"


def check(access: Access, method: str = "GET", path: str = "/v1/limits", **headers: str) -> None:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    access.check(method, path, raw)


@pytest.mark.parametrize(
    "host",
    ["localhost", "LocalHost:8080", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:65535"],
)
def test_without_a_key_this_machine_is_served(host: str) -> None:
    check(Access(None), host=host)
    check(Access(""), "POST", host=host)
    check(Access(None), "POST", host=host, origin=f"http://{host}")
    check(Access(None), "POST", host=host, sec_fetch_site="same-origin")


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
def test_without_a_key_another_name_is_refused(host: str) -> None:
    for path in ("/v1/limits", "/healthz", "/docs", "/metrics"):
        with pytest.raises(Forbidden):
            check(Access(None), path=path, host=host)


def test_without_a_key_a_host_is_needed_once() -> None:
    with pytest.raises(Forbidden):
        check(Access(None))
    with pytest.raises(Forbidden):
        Access(None).check("GET", "/", [(b"host", b"localhost"), (b"host", b"localhost")])


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("origin", "http://example.com"),
        ("origin", "null"),
        ("origin", "http://localhost:3000"),
        ("origin", "https://localhost:8080"),
        ("sec_fetch_site", "cross-site"),
    ],
)
def test_a_foreign_page_may_read_but_change_nothing(method: str, name: str, value: str) -> None:
    access = Access(None)
    check(access, "GET", host="localhost:8080", **{name: value})
    with pytest.raises(Forbidden):
        check(access, method, host="localhost:8080", **{name: value})


def test_with_a_key_it_is_needed_for_everything_that_tells() -> None:
    access = Access(KEY)
    for path in ("/v1/limits", "/v1/tasks", "/metrics", "/v1/"):
        with pytest.raises(Unauthorized):
            check(access, path=path)
        check(access, path=path, authorization=f"Bearer {KEY}")
        check(access, path=path, authorization=f"bearer  {KEY} ")
    for path in ("/healthz", "/readyz", "/openapi.json", "/docs", "/problems/not-found", "/x"):
        check(access, path=path)


@pytest.mark.parametrize(
    "value", ["", KEY, f"Basic {KEY}", "Bearer", "Bearer ", "Bearer wrong", f"Bearer {KEY}x"]
)
def test_another_key_does_not_count(value: str) -> None:
    with pytest.raises(Unauthorized):
        check(Access(KEY), authorization=value)


def test_with_a_key_any_host_and_origin_are_served() -> None:
    headers = {"host": "timer.example.com", "origin": "http://other.example.com"}
    check(Access(KEY), "POST", authorization=f"Bearer {KEY}", **headers)
