"""`wheel-timer demo`: the first thing that a visitor runs."""

from __future__ import annotations

import re

from tests.acceptance.fix_up import wheel_timer


def test_every_timer_arrives_once_none_early_and_audits_hold() -> None:
    done = wheel_timer("demo", "--tasks", "200", "--seconds", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    for word in ("p50", "p99.9", "early", "duplicates", "lost", "misplaced"):
        assert re.search(rf"\b{word}\b", done.stdout), word
