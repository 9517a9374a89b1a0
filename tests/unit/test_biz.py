"""A biz_type: what a PUT may say, what it makes of what was there, what a GET shows."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from wheel_timer.biz import (
    Backoff,
    BizType,
    BizTypeIn,
    Retention,
    Retry,
    RetryIn,
    SigningSecret,
    is_biz_type,
    merged,
    shown,
)
from wheel_timer.callback import Mark
from wheel_timer.errors import InvalidTask
from wheel_timer.store.biz_row import from_stored, to_stored

URL = "http://example.com/callback"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def given(**fields: Any) -> BizTypeIn:
    return msgspec.convert({"callback_url": URL} | fields, BizTypeIn)


@pytest.mark.parametrize("name", ["a", "0", "orders", "a.b_c-d", "a" * 64])
def test_a_name_is_taken(name: str) -> None:
    assert is_biz_type(name)


@pytest.mark.parametrize("name", ["", "A", ".a", "-a", "_a", "a b", "a/b", "a" * 65, "ä", "a\n"])
def test_a_name_is_refused(name: str) -> None:
    assert not is_biz_type(name)


def test_what_is_left_out_gets_its_default() -> None:
    biz = merged("orders", given(), None)
    assert biz == BizType(biz_type="orders", version=0, callback_url=URL)
    assert biz.timeout_ms == 10_000
    assert biz.max_age_ms is None
    assert biz.retry == Retry(16, Backoff(5, 3, 21600, 0.5), None)
    assert biz.retention == Retention(2_592_000, 7_776_000, 86_400)
    assert biz.retention_ms("cancelled") == 86_400_000


def test_one_retention_is_for_all_outcomes() -> None:
    assert merged("o", given(retention=60), None).retention == Retention(60, 60, 60)


def test_a_ladder_stands_in_the_place_of_backoff() -> None:
    biz = merged("o", given(retry={"max_attempts": 3, "ladder": [1, 2.5]}), None)
    assert biz.retry.ladder == (1.0, 2.5)
    assert shown(biz).retry == RetryIn(max_attempts=3, ladder=(1.0, 2.5))
    assert biz.retry.overridden(RetryIn(backoff=Backoff(1))).ladder is None
    assert biz.retry.overridden(RetryIn(max_attempts=9)) == Retry(9, Backoff(), (1.0, 2.5))


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"callback_url": None}, "#/callback_url"),
        ({"callback_url": "ftp://x"}, "#/callback_url"),
        ({"biz_type": "other"}, "#/biz_type"),
        ({"callback_headers": {"host": "x"}}, "#/callback_headers/host"),
        ({"callback_headers": {"a": "1", "A": "2"}}, "#/callback_headers/A"),
        ({"callback_headers": {"x-api-key": {"set": True}}}, "#/callback_headers/x-api-key"),
        ({"secret": "short"}, "#/secret"),
        ({"secret": "whsec_????"}, "#/secret"),
        ({"secret": {"set": True}}, "#/secret"),
        ({"retry": {"ladder": [1], "backoff": {}}}, "#/retry"),
        ({"retry": {"backoff": {"initial": 10, "max": 5}}}, "#/retry/backoff/max"),
    ],
)
def test_a_put_that_breaks_a_rule_names_the_field(fields: dict[str, Any], pointer: str) -> None:
    with pytest.raises(InvalidTask) as raised:
        merged("orders", given(**fields), None)
    assert pointer in [error.pointer for error in raised.value.errors]


@pytest.mark.parametrize(
    "fields",
    [
        {"timeout": 0.05},
        {"timeout": 601},
        {"timeout": True},
        {"timeout": "10"},
        {"max_concurrency": 0},
        {"callback_method": "TRACE"},
        {"final_statuses": [204]},
        {"retry": {"max_attempts": 0}},
        {"retry": {"ladder": []}},
        {"retry": {"backoff": {"jitter": 2}}},
        {"retention": -1},
        {"max_age": 0},
        {"unheard_of": 1},
        {"rate": 5},
    ],
)
def test_the_types_refuse(fields: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        given(**fields)


def test_write_only_values_are_kept_replaced_and_removed() -> None:
    headers = {"Authorization": "Bearer a", "x-api-key": "k", "x-plain": "p"}
    before = merged("o", given(secret=SECRET, callback_headers=headers), None)
    assert before.secrets == (SigningSecret(SECRET),)

    kept = merged("o", given(), before)
    assert kept.secrets == (SigningSecret(SECRET),)
    assert kept.callback_headers == {"authorization": "Bearer a", "x-api-key": "k"}

    marked = merged("o", given(callback_headers={"x-api-key": {"set": True}}), before)
    assert marked.callback_headers["x-api-key"] == "k"

    removed = given(secret=None, callback_headers={"x-api-key": None, "authorization": "new"})
    after = merged("o", removed, before)
    assert after.secrets == ()
    assert after.callback_headers == {"authorization": "new"}


def test_what_a_get_shows_can_be_put_back() -> None:
    headers = {"authorization": "a", "x-plain": "p"}
    new = merged("o", given(secret=SECRET, callback_headers=headers, retention=9), None)
    before = msgspec.structs.replace(new, version=1)
    seen = msgspec.json.encode(shown(before))
    assert SECRET.encode() not in seen
    assert merged("o", msgspec.json.decode(seen, type=BizTypeIn), before) == before


def test_nothing_secret_is_shown_by_accident() -> None:
    biz = merged("o", given(secret=SECRET, callback_headers={"x-api-key": "hidden"}), None)
    assert shown(biz).secret == Mark()
    for text in (repr(biz), str(biz), repr(given(secret=SECRET))):
        assert SECRET not in text
        assert "hidden" not in text


def test_a_row_keeps_write_only_values_apart() -> None:
    headers = {"x-api-key": "hidden", "x-plain": "p"}
    biz = merged("o", given(secret=SECRET, callback_headers=headers), None)
    config, secrets = to_stored(biz)
    assert SECRET not in str(config)
    assert "hidden" not in str(config)
    read = from_stored("o", 0, config, secrets)
    assert read == biz


def test_a_row_of_a_newer_release_can_be_read() -> None:
    config, secrets = to_stored(merged("o", given(), None))
    newer = config | {"of_a_newer_release": 7}
    assert from_stored("o", 3, newer, secrets).version == 3
