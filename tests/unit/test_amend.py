"""What a PATCH and a rotation make of a biz_type, and how two versions differ."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from wheel_timer.amend import SECRETS_MAX, differing, patched, rotated
from wheel_timer.biz import BizType, BizTypeIn, SigningSecret, merged
from wheel_timer.errors import InvalidTask

URL = "http://a.example/callback"
OLD, NEW, THIRD = (f"whsec_{letter * 43}=" for letter in "ABC")
HEADERS = {"authorization": "Bearer hidden", "x-plain": "p"}


def biz(**fields: Any) -> BizType:
    given = msgspec.convert({"callback_url": URL} | fields, BizTypeIn)
    return merged("o", given, None)


def patch(before: BizType, **fields: Any) -> BizType:
    given = msgspec.convert(patched(before, fields), BizTypeIn)
    return merged("o", given, before)


def test_what_a_patch_leaves_out_stays() -> None:
    before = biz(timeout=3, retry={"max_attempts": 3, "ladder": [1, 2]}, secret=OLD)
    assert patch(before) == before
    assert patch(before, timeout=4) == msgspec.structs.replace(before, timeout=4.0)
    assert patch(before, breaker={"consecutive": 3}).breaker.consecutive == 3


def test_null_gives_a_setting_its_default() -> None:
    before = biz(timeout=3, rate_limit=5, burst=2, retention=60)
    after = patch(before, timeout=None, rate_limit=None, burst=None, retention=None)
    assert after == biz()


def test_null_removes_a_write_only_value_and_absence_keeps_it() -> None:
    before = biz(secret=OLD, callback_headers=HEADERS)
    kept = patch(before, callback_headers={"X-Plain": None})
    assert kept.callback_headers == {"authorization": "Bearer hidden"}
    removed = patch(before, secret=None, callback_headers={"Authorization": None})
    assert (removed.secrets, removed.callback_headers) == ((), {"x-plain": "p"})
    assert patch(before, callback_headers=None).callback_headers == {}


def test_a_header_is_found_whatever_its_case() -> None:
    before = biz(callback_headers=HEADERS)
    after = patch(before, callback_headers={"AUTHORIZATION": "Bearer new", "X-Plain": "q"})
    assert after.callback_headers == {"authorization": "Bearer new", "x-plain": "q"}
    with pytest.raises(InvalidTask, match="given twice"):
        patched(before, {"callback_headers": {"x-a": "1", "X-A": "2"}})


def test_a_ladder_takes_the_place_of_the_backoff_and_back() -> None:
    laddered = patch(biz(), retry={"ladder": [1, 2]})
    assert laddered.retry.ladder == (1.0, 2.0)
    backed = patch(laddered, retry={"backoff": {"initial": 7}})
    assert (backed.retry.ladder, backed.retry.backoff.initial) == (None, 7.0)
    with pytest.raises(InvalidTask, match="not both"):
        patch(biz(), retry={"ladder": [1], "backoff": {"initial": 7}})


def test_an_unknown_name_is_refused_even_where_it_is_to_be_removed() -> None:
    with pytest.raises(InvalidTask, match="#/nope"):
        patched(biz(), {"nope": None})


def values(found: BizType) -> list[tuple[str, int | None]]:
    return [(one.value, one.until_ms) for one in found.secrets]


def test_the_old_secret_signs_to_the_end_of_its_grace() -> None:
    first = rotated(biz(secret=OLD), NEW, grace_ms=500, now_ms=1_000)
    assert values(first) == [(NEW, None), (OLD, 1_500)]
    second = rotated(first, THIRD, grace_ms=10_000, now_ms=1_200)
    assert values(second) == [(THIRD, None), (NEW, 11_200), (OLD, 1_500)]
    later = rotated(second, OLD, grace_ms=10_000, now_ms=1_600)
    assert values(later) == [(OLD, None), (THIRD, 11_600), (NEW, 11_200)]


def test_a_rotation_may_be_said_again() -> None:
    first = rotated(biz(secret=OLD), NEW, grace_ms=500, now_ms=1_000)
    assert rotated(first, NEW, grace_ms=500, now_ms=1_100) == first
    assert values(rotated(first, NEW, grace_ms=100, now_ms=1_100))[1] == (OLD, 1_200)


def test_a_grace_of_nothing_ends_every_older_secret() -> None:
    first = rotated(biz(secret=OLD), NEW, grace_ms=500, now_ms=1_000)
    assert values(rotated(first, THIRD, grace_ms=0, now_ms=1_100)) == [(THIRD, None)]
    assert values(rotated(first, NEW, grace_ms=0, now_ms=1_100)) == [(NEW, None)]


def test_a_first_secret_has_none_before_it() -> None:
    assert values(rotated(biz(), NEW, grace_ms=500, now_ms=0)) == [(NEW, None)]


def test_secrets_do_not_pile_up() -> None:
    found = biz(secret=OLD)
    for i in range(SECRETS_MAX - 1):
        found = rotated(found, f"whsec_{i}" + "A" * 42 + "=", grace_ms=500, now_ms=0)
    with pytest.raises(InvalidTask, match="grace"):
        rotated(found, NEW, grace_ms=500, now_ms=0)
    assert values(rotated(found, NEW, grace_ms=500, now_ms=600))[0] == (NEW, None)


def test_a_put_of_the_current_secret_leaves_the_grace() -> None:
    found = rotated(biz(secret=OLD), NEW, grace_ms=500, now_ms=1_000)
    again = merged("o", BizTypeIn(callback_url=URL, secret=NEW), found)
    assert again.secrets == found.secrets
    other = merged("o", BizTypeIn(callback_url=URL, secret=THIRD), found)
    assert other.secrets == (SigningSecret(THIRD),)


def test_what_differs_is_shown_and_secrets_are_not() -> None:
    before = biz(timeout=3, secret=OLD, callback_headers=HEADERS)
    after = patch(before, timeout=4, secret=NEW, callback_headers={"authorization": "Bearer x"})
    old, new = differing(before, after)
    marks = {"authorization": {"set": True}, "x-plain": "p"}
    assert old == {"timeout": 3.0, "secret": {"set": True}, "callback_headers": marks}
    assert new == {"timeout": 4.0, "secret": {"set": True}, "callback_headers": marks}
    assert differing(before, before) == ({}, {})
    whole = differing(None, after)
    assert whole[0] is None
    assert whole[1] is not None
    assert whole[1]["timeout"] == 4.0
    for text in (OLD, NEW, "Bearer"):
        assert text not in str((old, new, whole))
