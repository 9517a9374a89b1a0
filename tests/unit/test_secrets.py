"""Passwords and keys do not survive being shown; all else does."""

from __future__ import annotations

import pytest

from wheel_timer.secrets import mask_secrets


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://user:pa55@db:5432/x", "postgresql://user:***@db:5432/x"),
        ("postgresql://user:p@55@db/x", "postgresql://user:***@db/x"),
        ("redis://:pa55@cache", "redis://:***@cache"),
        ("host=db password='pa 55' user=u", "host=db password=*** user=u"),
        ("postgresql://db/x?password=pa55&user=u", "postgresql://db/x?password=***&user=u"),
        ("bearer wtk_12_pa55-x rejected", "bearer wtk_*** rejected"),
        ("two redis://a:b@c and redis://d:e@f", "two redis://a:***@c and redis://d:***@f"),
        ("http://db:8080/path@home", "http://db:8080/path@home"),
        ("nothing to hide at 12:30", "nothing to hide at 12:30"),
    ],
)
def test_secrets_are_masked(text: str, shown: str) -> None:
    assert mask_secrets(text) == shown
