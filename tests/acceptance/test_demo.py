"""`wheel-timer demo`: the first thing that a visitor runs."""

from __future__ import annotations

import json
import re

from tests.acceptance.fix_up import wheel_timer


def test_every_timer_arrives_once_none_early_and_audits_hold() -> None:
    done = wheel_timer("demo", "--tasks", "200", "--seconds", "2")
    assert done.returncode == 0, done.stdout + done.stderr
    for word in ("p50", "p99.9", "early", "duplicates", "lost", "misplaced"):
        assert re.search(rf"\b{word}\b", done.stdout), word


def test_json_is_one_object_of_its_figures() -> None:
    done = wheel_timer("demo", "--tasks", "20", "--seconds", "0.5", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert (told["tasks"], told["arrived"], told["early"], told["duplicates"]) == (20, 20, 0, 0)
    assert told["holds"] is True
    assert done.stderr == ""
