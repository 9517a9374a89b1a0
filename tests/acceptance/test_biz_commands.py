"""`wheel-timer biz`, `pause --all`, `resume --all` against a running `up`."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.acceptance.fix_up import Up, wheel_timer

SECRET = "whsec_UExBTlRFRC1TRUNSRVQtT05FLU9ORS1PTkU="


@pytest.fixture
def declared(tmp_path: Path, up: Up) -> Path:
    """A file that declares two biz_types, which call the server's own endpoint."""
    (tmp_path / "secret").write_text(SECRET)
    path = tmp_path / "biz.toml"
    path.write_text(
        f"""
        [biz_types.shop]
        callback_url = "{up.url}/demo/echo"
        secret = {{ file = "secret" }}
        on_failed = "shop.dead"

        [biz_types."shop.dead"]
        callback_url = "{up.url}/demo/echo"
        """
    )
    return path


def test_a_file_is_applied_shown_changed_and_deleted(up: Up, declared: Path) -> None:
    at = ("--url", up.url)
    dry = wheel_timer("biz", "apply", str(declared), "--dry-run", *at)
    assert dry.returncode == 0, dry.stderr
    assert "2 would be created" in dry.stdout
    assert wheel_timer("biz", "show", "shop", *at).returncode == 1

    applied = wheel_timer("biz", "apply", str(declared), *at)
    assert applied.returncode == 0, applied.stderr
    assert "+ shop\n" in applied.stdout
    assert "2 created" in applied.stdout
    again = wheel_timer("biz", "apply", str(declared), "--json", *at)
    actions = [change["action"] for change in json.loads(again.stdout)["changes"]]
    assert actions == ["unchanged", "unchanged"]

    declared.write_text(declared.read_text().replace("on_failed", "timeout = 3\non_failed"))
    (declared.parent / "secret").write_text(SECRET.replace("UEx", "UEy"))
    changed = wheel_timer("biz", "apply", str(declared), *at)
    assert "timeout: 10.0 -> 3.0" in changed.stdout
    assert "secret: (set), another one" in changed.stdout
    assert "1 changed, 1 unchanged" in changed.stdout

    shown = wheel_timer("biz", "show", "shop", *at)
    assert "(set)" in shown.stdout
    listed = wheel_timer("biz", "list", "--json", *at)
    names = [json.loads(line)["biz_type"] for line in listed.stdout.splitlines()]
    assert {"shop", "shop.dead"} <= set(names)
    for one in (dry, applied, again, changed, shown, listed):
        assert "whsec" not in one.stdout + one.stderr

    in_use = wheel_timer("biz", "delete", "shop.dead", "--yes", *at)
    assert (in_use.returncode, "on_failed" in in_use.stderr) == (3, True)
    for name in ("shop", "shop.dead"):
        assert wheel_timer("biz", "delete", name, *at).returncode == 2
        assert wheel_timer("biz", "delete", name, "--yes", *at).returncode == 0


def test_a_bad_file_changes_nothing(up: Up, declared: Path) -> None:
    at = ("--url", up.url)
    declared.write_text(declared.read_text() + "\ntimeout = -1\n")
    refused = wheel_timer("biz", "apply", str(declared), *at)
    assert (refused.returncode, refused.stdout) == (3, "")
    assert "#/biz_types/shop.dead/timeout" in refused.stderr
    declared.write_text("[schedule.x]")
    assert wheel_timer("biz", "apply", str(declared), *at).returncode == 2
    assert wheel_timer("biz", "show", "shop", *at).returncode == 1


def test_one_is_paused_tried_and_its_secret_rotated(up: Up, declared: Path) -> None:
    at = ("--url", up.url)
    wheel_timer("biz", "apply", str(declared), *at)
    paused = wheel_timer("biz", "pause", "shop", "--json", *at)
    assert json.loads(paused.stdout)["paused"] is True
    tried = wheel_timer("biz", "test", "shop", "--data", '{"n": 1}', *at)
    assert tried.returncode == 0, tried.stderr
    assert "< 200" in tried.stdout
    assert "finished" in tried.stdout
    assert wheel_timer("biz", "resume", "shop", *at).returncode == 0
    rotated = wheel_timer("biz", "rotate-secret", "shop", "--grace", "1h", *at)
    assert rotated.returncode == 0, rotated.stderr
    assert rotated.stdout.startswith("whsec_")
    assert "signs until" in rotated.stderr
    assert wheel_timer("biz", "rotate-secret", "shop", "--grace", "0", *at).returncode == 2
    patched = declared.read_text().replace("/demo/echo", "/nothing-there")
    declared.write_text(patched)
    wheel_timer("biz", "apply", str(declared), *at)
    failed = wheel_timer("biz", "test", "shop", *at)
    assert failed.returncode == 1
    assert "< 404" in failed.stdout


def test_what_waits_is_counted_and_purged(up: Up, declared: Path) -> None:
    at = ("--url", up.url)
    wheel_timer("biz", "apply", str(declared), *at)
    for n in range(3):
        wheel_timer("submit", "--biz-type", "shop", "--biz-id", str(n), "--in", "30m", *at)
    stats = wheel_timer("biz", "stats", "shop", "--json", *at)
    assert json.loads(stats.stdout)["next_hour"] == {"tasks": 3, "is_complete": True}
    assert wheel_timer("biz", "delete", "shop", "--yes", *at).returncode == 3
    assert wheel_timer("biz", "purge", "shop", *at).returncode == 2
    begun = wheel_timer("biz", "purge", "shop", "--yes", *at)
    assert begun.returncode == 0, begun.stderr
    shown = ("ops", "show", begun.stdout.strip(), "--json", *at)
    deadline = time.monotonic() + 20
    while json.loads(wheel_timer(*shown).stdout)["state"] == "running":
        assert time.monotonic() < deadline
    assert json.loads(wheel_timer(*shown).stdout)["done"] == 3
    gone = wheel_timer("biz", "delete", "shop", "--purge", "--yes", "--json", *at)
    assert json.loads(gone.stdout)["action"] == "purge"
    assert wheel_timer("biz", "show", "shop", *at).returncode == 1


def test_the_brake_is_put_on_and_taken_off(up: Up) -> None:
    at = ("--url", up.url)
    for words in (("pause", "--reason", "x"), ("resume",), ("pause", "--all")):
        assert wheel_timer(*words, *at).returncode == 2
    on = wheel_timer("pause", "--all", "--reason", "moving house", "--yes", *at)
    assert on.returncode == 0, on.stderr
    assert "moving house" in on.stderr
    off = wheel_timer("resume", "--all", "--json", *at)
    assert json.loads(off.stdout) == {"brake": None}
