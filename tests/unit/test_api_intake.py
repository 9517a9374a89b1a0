"""What a task may say: every rule, with the field that it names."""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.api.intake import (
    RefusedByBizType,
    check_biz_type,
    decode_task,
    nesting_is_within,
    read_task,
    valid_traceparent,
)
from broker.api.problems import PayloadTooLarge, Refused, problem_of
from broker.submission import Submission
from wheel_timer.biz import BizType
from wheel_timer.errors import InvalidTask

NOW_MS = 1_800_000_000_000.0
MAX_BODY = 1000
NESTED_TASK = b'{"biz_type":"orders","delay":1,"biz_data":%b}'
OPEN = BizType(
    biz_type="orders", version=1, callback_url="http://a.example/", allow_callback_override=True
)


def read(body: bytes | dict[str, Any], biz: BizType = OPEN, **more: Any) -> Submission:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return read_task(decode_task(raw), biz, now_ms=NOW_MS, body_bytes_max=MAX_BODY, **more)


def task(**fields: Any) -> dict[str, Any]:
    return {"biz_type": "orders", "delay": 5} | fields


def pointers(body: bytes | dict[str, Any], biz: BizType = OPEN) -> list[str]:
    """Where the errors of a refused task point."""
    with pytest.raises(InvalidTask) as raised:
        read(body, biz)
    return [error.pointer for error in raised.value.errors]


def test_the_least_task() -> None:
    assert read({"biz_type": "orders", "delay": 0}) == Submission("orders", None)


def test_a_task_with_everything() -> None:
    body = (
        b'{"biz_type":"orders","biz_id":"o-1","start_time":"2030-01-01T00:00:00Z",'
        b'"biz_data":{"a": [1, 2.50]},"content_type":"application/cloudevents+json",'
        b'"callback":{"url":"https://b.example/x","method":"PUT","headers":{"x-a":"1"},'
        b'"timeout":2},"retry":{"max_attempts":3,"ladder":[1,2]},"max_age":1.5,"spread":60,'
        b'"on_duplicate":"reject"}'
    )
    got = read(body, traceparent="t")
    assert (got.start_time_ms, got.delay_ms, got.spread_ms) == (1893456000000, 0, 60_000)
    assert got.biz_id == "o-1"
    assert got.biz_data == b'{"a": [1, 2.50]}'
    assert got.content_type == "application/cloudevents+json"
    assert msgspec.json.decode(got.callback or b"") == {
        "url": "https://b.example/x",
        "method": "PUT",
        "headers": {"x-a": "1"},
        "timeout": 2.0,
    }
    assert msgspec.json.decode(got.retry or b"") == {"max_attempts": 3, "ladder": [1.0, 2.0]}
    assert (got.max_age_ms, got.traceparent, got.on_duplicate) == (1500, "t", "reject")


@pytest.mark.parametrize(
    "data",
    [
        b"null",
        b"0",
        b'""',
        b"[ ]",
        b'{"a" :1 ,"a":2}',
        b'"\\u0000"',
        b"1e400",
        b'{ "z":"\xc3\xa4"}',
        b"[" * 64 + b"]" * 64,
        b'"' + b"[" * 100 + b'"',
        b'"\\"' + b"{" * 70 + b'\\\\"',
    ],
)
def test_biz_data_is_kept_byte_by_byte(data: bytes) -> None:
    assert read(b'{"biz_type":"orders","delay":1,"biz_data": ' + data + b" }").biz_data == data


def test_base64_is_decoded() -> None:
    body = task(biz_data_base64=base64.b64encode(b"\x00\xff").decode(), content_type="image/png")
    assert read(body).biz_data == b"\x00\xff"


@pytest.mark.parametrize("field", ["biz_id", "biz_data_base64", "content_type", "callback"])
def test_null_is_as_if_left_out(field: str) -> None:
    assert read(task(**{field: None})) == read(task())


def test_null_moments_are_as_if_left_out() -> None:
    assert read(task(start_time=None)) == read(task())
    assert read(task(on_duplicate=None, retry=None, max_age=None, spread=None)) == read(task())


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"delay": None}, "#/start_time"),
        ({"start_time": 1900000000}, "#/start_time"),
        ({"start_time": None, "delay": None}, "#/start_time"),
        ({"delay": -1}, "#/delay"),
        ({"delay": True}, "#/delay"),
        ({"delay": "5"}, "#/delay"),
        ({"delay": 10**18}, "#/delay"),
        ({"delay": 252_000_000_000}, "#/delay"),
        ({"delay": None, "start_time": 1900000000000}, "#/start_time"),
        ({"delay": None, "start_time": 30000000}, "#/start_time"),
        ({"delay": None, "start_time": True}, "#/start_time"),
        ({"delay": None, "start_time": "2030-01-01T00:00:00"}, "#/start_time"),
        ({"delay": None, "start_time": 253402300799, "spread": 5}, "#/spread"),
        ({"biz_type": 1}, "#/biz_type"),
        ({"biz_type": None}, "#/biz_type"),
        ({"biz_id": ""}, "#/biz_id"),
        ({"biz_id": 7}, "#/biz_id"),
        ({"biz_id": "a" * 257}, "#/biz_id"),
        ({"biz_id": "ä" * 129}, "#/biz_id"),
        ({"biz_id": "a\x00"}, "#/biz_id"),
        ({"biz_id": "a\n"}, "#/biz_id"),
        ({"biz_id": "a\x7f"}, "#/biz_id"),
        ({"biz_id": "a\x85"}, "#/biz_id"),
        ({"biz_data": 1, "biz_data_base64": "AA=="}, "#/biz_data"),
        ({"biz_data_base64": "A"}, "#/biz_data_base64"),
        ({"biz_data_base64": "AA==\n"}, "#/biz_data_base64"),
        ({"biz_data_base64": "ä"}, "#/biz_data_base64"),
        ({"biz_data": 1, "content_type": "json"}, "#/content_type"),
        ({"biz_data": 1, "content_type": ""}, "#/content_type"),
        ({"biz_data": 1, "content_type": "a/b\r\nx: y"}, "#/content_type"),
        ({"biz_data": 1, "content_type": "a/" + "b" * 254}, "#/content_type"),
        ({"content_type": "text/plain"}, "#/content_type"),
        ({"callback": {}}, "#/callback/url"),
        ({"callback": {"url": "ftp://x"}}, "#/callback/url"),
        ({"callback": {"url": "http://u:p@x/"}}, "#/callback/url"),
        ({"callback": {"url": "http://x/", "method": "get"}}, "#/callback/method"),
        ({"callback": {"url": "http://x/", "headers": {"host": "y"}}}, "#/callback/headers/host"),
        ({"callback": {"url": "http://x/", "headers": {"a": 1}}}, "#/callback/headers"),
        ({"callback": {"url": "http://x/", "timeout": 0}}, "#/callback/timeout"),
        ({"callback": {"url": "http://x/", "timeout": 601}}, "#/callback/timeout"),
        ({"callback": {"url": "http://x/", "secret": "s"}}, "#/callback/secret"),
        ({"retry": {"max_attempts": 0}}, "#/retry/max_attempts"),
        ({"retry": {"max_attempts": 1.5}}, "#/retry/max_attempts"),
        ({"retry": {"ladder": [1, -1]}}, "#/retry/ladder/1"),
        ({"retry": {"ladder": [1], "backoff": {}}}, "#/retry"),
        ({"retry": {"backoff": {"factor": 0.5}}}, "#/retry/backoff/factor"),
        ({"max_age": 0}, "#/max_age"),
        ({"max_age": True}, "#/max_age"),
        ({"spread": -1}, "#/spread"),
        ({"spread": 31_536_001}, "#/spread"),
        ({"spread": "1"}, "#/spread"),
        ({"on_duplicate": "newest"}, "#/on_duplicate"),
        ({"on_duplicate": 1}, "#/on_duplicate"),
        ({"priority": 3}, "#/priority"),
        ({"a/b~c": 3}, "#/a~1b~0c"),
    ],
)
def test_what_breaks_a_rule_is_refused_by_name(fields: dict[str, Any], pointer: str) -> None:
    assert pointer in pointers(task(**fields))


@pytest.mark.parametrize(
    ("raw", "pointer"),
    [
        (b"{}", "#/biz_type"),
        (b"[]", "#"),
        (b'"x"', "#"),
        (b'{"biz_type":"orders","delay":1e400}', "#/delay"),
        (b'{"biz_type":"orders","start_time":1e400}', "#/start_time"),
        (b'{"biz_type":"orders","delay":1,"max_age":1e400}', "#/max_age"),
        (b'{"biz_type":"orders","delay":1,"biz_data":"\xff"}', "#/biz_data"),
        (b'{"biz_type":"orders","delay":1,"biz_data":{"\xc3":1}}', "#/biz_data"),
        (NESTED_TASK % (b"[" * 65 + b"]" * 65), "#/biz_data"),
        (NESTED_TASK % (b"[" * 99999 + b"]" * 99999), "#"),
    ],
)
def test_what_json_cannot_be_written_by_a_library(raw: bytes, pointer: str) -> None:
    assert pointer in pointers(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"nothing",
        b'{"biz_type":"orders","delay":NaN}',
        b'{"biz_type":"orders","delay":Infinity}',
        b'{"biz_type":"orders","delay":01}',
        b'{"biz_type":"orders","delay":1} {}',
        b'{"biz_type":"orders","delay":1,"biz_data":nope}',
        b'{"biz_type":"orders","delay":1,"biz_data":"\x00"}',
        b'{"biz_type":"orders","delay":1,"biz_data":[1,]}',
        b'{"biz_type":"orders","delay":1,"biz_id":"\xff"}',
        b'{"biz_type":"orders","delay":1,"biz_id":"\\ud800"}',
        b'\xef\xbb\xbf{"biz_type":"orders","delay":1}',
        "{}".encode("utf-16"),
    ],
)
def test_what_is_not_json_is_a_400(raw: bytes) -> None:
    with pytest.raises(Refused) as raised:
        read(raw)
    assert raised.value.problem.code == 400


def test_everything_that_is_wrong_is_said_at_once() -> None:
    wrong = task(biz_id="", max_age=1, content_type="x", callback={"url": "x"})
    assert pointers(wrong) == ["#/biz_id", "#/content_type", "#/callback/url"]


def test_a_payload_beyond_its_limit_is_too_large() -> None:
    assert read(task(biz_data="a" * (MAX_BODY - 2))).biz_data is not None
    encoded = base64.b64encode(b"a" * (MAX_BODY + 1)).decode()
    for fields in ({"biz_data": "a" * (MAX_BODY - 1)}, {"biz_data_base64": encoded}):
        with pytest.raises(PayloadTooLarge) as raised:
            read(task(**fields))
        problem = problem_of(raised.value)
        assert (problem.name, problem.code) == ("too-large", 413)
        assert problem.errors[0].pointer.startswith("#/biz_data")


def test_a_callback_of_its_own_needs_leave() -> None:
    closed = BizType(biz_type="orders", version=1, callback_url="http://a.example/")
    with pytest.raises(RefusedByBizType) as raised:
        read(task(callback={"url": "http://b.example/"}), closed)
    assert raised.value.errors[0].pointer == "#/callback"


def test_a_biz_type_without_a_url_needs_a_callback_of_the_task() -> None:
    urlless = BizType(biz_type="orders", version=1, allow_callback_override=True)
    assert pointers(task(), urlless) == ["#/callback"]
    assert read(task(callback={"url": "http://b.example/"}), urlless).callback is not None


def test_a_start_time_too_far_in_the_past_is_refused_where_the_biz_type_says_so() -> None:
    strict = msgspec.structs.replace(OPEN, max_past=60.0)
    late = {"biz_type": "orders", "start_time": NOW_MS / 1000 - 61}
    with pytest.raises(RefusedByBizType):
        read(late, strict)
    assert read(late).start_time_ms == NOW_MS - 61_000
    assert read(late | {"start_time": NOW_MS / 1000 - 59}, strict).start_time_ms


def test_the_idempotency_key_is_the_biz_id_where_there_is_none() -> None:
    assert read(task(), default_biz_id="key").biz_id == "key"
    assert read(task(biz_id="own"), default_biz_id="key").biz_id == "own"
    with pytest.raises(InvalidTask):
        read(task(), default_biz_id="k" * 257)


@pytest.mark.parametrize("biz_id", ["a", "ä" * 128, "a" * 256, "a/b c%", "\u2028", "🎈"])
def test_a_biz_id_is_any_text(biz_id: str) -> None:
    assert read(task(biz_id=biz_id)).biz_id == biz_id


@pytest.mark.parametrize("name", ["", "A", "a/b", "a" * 65, "a\x00"])
def test_a_name_that_can_be_no_biz_type_is_refused(name: str) -> None:
    with pytest.raises(InvalidTask):
        check_biz_type(name)


@pytest.mark.parametrize(
    ("value", "is_passed_on"),
    [
        (None, False),
        ("", False),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", True),
        ("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7", False),
        ("00-4BF92F3577B34DA6A3CE929D0E0E4736-00F067AA0BA902B7-01", False),
        ("x" * 10_000, False),
    ],
)
def test_a_malformed_traceparent_is_ignored(value: str | None, is_passed_on: bool) -> None:
    assert valid_traceparent(value) == (value if is_passed_on else None)


NESTED = st.recursive(
    st.none() | st.booleans() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=40,
)


def depth_of(value: Any) -> int:
    """How deep a value nests, by walking it."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


@given(NESTED)
def test_nesting_is_counted_as_a_parser_counts_it(value: Any) -> None:
    raw = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    depth = depth_of(value)
    assert nesting_is_within(raw, depth)
    assert depth == 0 or not nesting_is_within(raw, depth - 1)


def test_nesting_needs_no_recursion() -> None:
    deep = sys.getrecursionlimit() * 100
    assert not nesting_is_within(b"[" * deep + b"]" * deep, 64)
