"""The file of `biz apply`: what it may say, and that nothing else gets through."""

from __future__ import annotations

from pathlib import Path

import pytest

from wheel_timer.cli.declared import read_declared
from wheel_timer.cli.exits import USAGE, Failure

TOML = """
[biz_types.orders]
callback_url = "http://a.example/callback"
rate_limit = 2.5
secret = { env = "ORDERS_SECRET" }
callback_headers = { authorization = { file = "token.txt" }, x-shop = "7" }

[biz_types.refunds]
secret = { set = false }
retry = { ladder = [1, 60] }
"""
JSON = '{"biz_types": {"orders": {"secret": null, "callback_headers": {"x-key": {"env": "KEY"}}}}}'


def test_references_are_read_where_the_file_is(tmp_path: Path) -> None:
    (tmp_path / "token.txt").write_text("Bearer t0ken\n")
    (tmp_path / "biz.toml").write_text(TOML)
    declared = read_declared(str(tmp_path / "biz.toml"), {"ORDERS_SECRET": "whsec_x"})
    assert declared.schedules == {}
    assert declared.biz_types == {
        "orders": {
            "callback_url": "http://a.example/callback",
            "rate_limit": 2.5,
            "secret": "whsec_x",
            "callback_headers": {"authorization": "Bearer t0ken", "x-shop": "7"},
        },
        "refunds": {"secret": {"set": False}, "retry": {"ladder": [1, 60]}},
    }


def test_json_is_known_by_its_first_character(tmp_path: Path) -> None:
    path = tmp_path / "biz"
    path.write_text(JSON)
    declared = read_declared(str(path), {"KEY": "k"})
    assert declared.biz_types == {"orders": {"secret": None, "callback_headers": {"x-key": "k"}}}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[biz_types.o", "biz.toml"),
        ("[schedules.x]", "a schedule belongs to its biz_type"),
        ("[biz_types.o]\nschedules = 7", "biz_types.o.schedules: not a table"),
        ("[biz_types.o.schedules.x]\nend_before = 2027-01-01", "a date has no place"),
        ("[biz_types.o.schedules.x]\nend_before = 2027-01-01T00:00:00", "has no place"),
        ("[biz.o]", "unknown section 'biz'"),
        ("biz_types = 7", "not a table"),
        ('[biz_types.o]\nsecret = {env = "NONE"}', "biz_types.o.secret: the environment has no"),
        ('[biz_types.o]\nsecret = {env = "A", file = "b"}', "biz_types.o.secret"),
        ("[biz_types.o]\nsecret = {env = 7}", "biz_types.o.secret"),
        ('[biz_types.o]\nsecret = {file = "none"}', "none: No such file"),
        ('[biz_types.o]\nsecret = {file = "empty"}', "empty is empty"),
        ('[biz_types.o]\ncallback_headers = {x-key = {env = "NONE"}}', "callback_headers.x-key"),
        ("[biz_types.o]\nrate_limit = nan", "biz_types.o.rate_limit: not a finite number"),
        ("[biz_types.o]\nretry = {ladder = [inf]}", "ladder[0]: not a finite number"),
        ("[biz_types.o]\nmax_age = 2026-01-01", "a date has no place"),
        ('{"biz_types": {"o": {}, "o": {}}}', "'o' is given twice"),
        ('{"biz_types": NaN}', "not a table"),
        ('{"biz_types": {"o": {"timeout": NaN}}}', "not a finite number"),
        ("{", "biz.toml"),
    ],
)
def test_a_bad_file_is_refused_before_anything_is_sent(
    tmp_path: Path, text: str, told: str
) -> None:
    (tmp_path / "empty").write_text("")
    (tmp_path / "biz.toml").write_text(text)
    with pytest.raises(Failure) as refused:
        read_declared(str(tmp_path / "biz.toml"), {})
    assert refused.value.exit_code == USAGE
    assert told in str(refused.value)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "latin").write_bytes(b"\xff")
    for name in ("none", "latin"):
        with pytest.raises(Failure, match=name):
            read_declared(str(tmp_path / name), {})


def test_a_broken_file_does_not_show_its_secrets(tmp_path: Path) -> None:
    for text in ('[biz_types.o]\nsecret = "planted-secret', '{"secret": "planted-secret"'):
        (tmp_path / "biz.toml").write_text(text)
        with pytest.raises(Failure) as refused:
            read_declared(str(tmp_path / "biz.toml"), {})
        assert "planted" not in str(refused.value)


def test_schedules_stand_with_their_biz_type(tmp_path: Path) -> None:
    (tmp_path / "biz.toml").write_text(
        """
        [biz_types.orders.schedules.report]
        cron = "0 9 * * MON"
        end_before = 2027-06-01T00:00:00Z
        callback = { url = "http://a.example/", headers = { x-token = { env = "TOKEN" } } }

        [biz_types.refunds]
        callback_url = "http://a.example/callback"
        schedules = {}
        """
    )
    declared = read_declared(str(tmp_path / "biz.toml"), {"TOKEN": "t"})
    assert declared.biz_types == {"refunds": {"callback_url": "http://a.example/callback"}}
    assert declared.schedules == {
        "orders": {
            "report": {
                "cron": "0 9 * * MON",
                "end_before": "2027-06-01T00:00:00+00:00",
                "callback": {"url": "http://a.example/", "headers": {"x-token": "t"}},
            }
        },
        "refunds": {},
    }
