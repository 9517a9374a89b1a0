"""What a callback may be: its URL and its headers."""

from __future__ import annotations

import pytest

from wheel_timer.callback import Mark, check_headers, check_url, is_write_only, masked


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com",
        "https://example.com/a?b=c&d=%20",
        "http://127.0.0.1:8080/x",
        "http://[::1]:9000/",
        "https://example.com/" + "a" * (2083 - len("https://example.com/")),
    ],
)
def test_a_url_that_can_be_called_is_taken(url: str) -> None:
    assert check_url(url, "#/u") == []


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "visible"),
        ("example.com/x", "only http"),
        ("ftp://example.com", "only http"),
        ("file:///etc/passwd", "only http"),
        ("http://", "host"),
        ("http:///x", "host"),
        ("http://user@example.com", "user information"),
        ("http://user:secret@example.com", "user information"),
        ("http://example.com:99999/", "not a URL"),
        ("http://example.com:0/", "host"),
        ("http://exa mple.com", "visible"),
        ("http://example.com/\r\nx", "visible"),
        ("http://example.com/\x00", "visible"),
        ("http://ex\u00e4mple.com", "visible"),
        ("http://example.com\\@evil", "visible"),
        ("http://example.com/#part", "fragment"),
        ("http://[::1/", "not a URL"),
        ("https://example.com/" + "a" * 2083, "2083"),
    ],
)
def test_a_url_that_cannot_be_called_is_refused(url: str, said: str) -> None:
    errors = check_url(url, "#/u")
    assert [error.pointer for error in errors] == ["#/u"]
    assert said in errors[0].detail


@pytest.mark.parametrize(
    "headers", [{}, {"x-a": ""}, {"Authorization": "Bearer x"}, {"x-tab": "a\tb"}]
)
def test_headers_that_can_be_sent_are_taken(headers: dict[str, str]) -> None:
    assert check_headers(headers, "#/h") == []


@pytest.mark.parametrize(
    ("headers", "pointer"),
    [
        ({"x a": "1"}, "#/h/x a"),
        ({"": "1"}, "#/h/"),
        ({"x\r\n": "1"}, "#/h/x\r\n"),
        ({"x:y": "1"}, "#/h/x:y"),
        ({"a/b": "1"}, "#/h/a~1b"),
        ({"Host": "1"}, "#/h/Host"),
        ({"Content-Length": "1"}, "#/h/Content-Length"),
        ({"Transfer-Encoding": "chunked"}, "#/h/Transfer-Encoding"),
        ({"Connection": "close"}, "#/h/Connection"),
        ({"TE": "x"}, "#/h/TE"),
        ({"upgrade": "x"}, "#/h/upgrade"),
        ({"webhook-signature": "x"}, "#/h/webhook-signature"),
        ({"Wheel-Timer-Attempt": "1"}, "#/h/Wheel-Timer-Attempt"),
        ({"x": "a\r\nb"}, "#/h/x"),
        ({"x": "a\x00"}, "#/h/x"),
        ({"x": "\u00e4"}, "#/h/x"),
        ({"x": "1", "X": "2"}, "#/h/X"),
        ({f"x-{i}": "1" for i in range(65)}, "#/h"),
        ({"x": "a" * 8193}, "#/h"),
    ],
)
def test_headers_that_cannot_be_sent_are_refused(headers: dict[str, str], pointer: str) -> None:
    assert pointer in [error.pointer for error in check_headers(headers, "#/h")]


@pytest.mark.parametrize(
    "name", ["authorization", "Cookie", "X-Api-Key", "x-auth-token", "CLIENT-SECRET"]
)
def test_a_credential_is_shown_as_a_mark(name: str) -> None:
    assert is_write_only(name)
    assert masked({name: "value", "x-plain": "seen"}) == {name: Mark(), "x-plain": "seen"}


@pytest.mark.parametrize("name", ["key", "x-keys", "accept", "secretary"])
def test_another_header_is_shown(name: str) -> None:
    assert not is_write_only(name)
