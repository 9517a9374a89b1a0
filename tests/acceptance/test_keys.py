"""`wheel-timer keys` against a running server, and what the keys then open, over two brokers."""

from __future__ import annotations

import json
import time
from pathlib import Path

import httpx

from tests.acceptance.fix_up import Up, wheel_timer

REVOKED_WITHIN_S = 2.0


def test_a_key_from_its_making_to_its_end(up: Up, tmp_path: Path) -> None:
    made = wheel_timer(
        *("keys", "create", "--url", up.url, "--name", "shop", "--scope", "read"),
        *("--biz-type", "orders.*"),
    )
    assert made.returncode == 0, made.stderr
    key = made.stdout.strip()
    _, key_id, secret = key.split("_", 2)
    assert secret not in made.stderr

    listed = wheel_timer("keys", "list", "--url", up.url, "--json")
    (shown,) = [k for k in map(json.loads, listed.stdout.splitlines()) if k["key_id"] == key_id]
    assert (shown["name"], shown["biz_types"], shown["status"]) == ("shop", ["orders.*"], "active")
    assert key_id in wheel_timer("keys", "list", "--url", up.url).stdout

    (tmp_path / "key").write_text(key)
    refused = wheel_timer(
        *("submit", "--url", up.url, "--key-file", str(tmp_path / "key"), "--in", "1h")
    )
    assert refused.returncode == 3
    assert "lacks the scope submit" in refused.stderr

    rotated = wheel_timer("keys", "rotate", key_id, "--url", up.url, "--overlap", "1h", "--json")
    second = json.loads(rotated.stdout)["key"]
    assert {_status(up, one) for one in (key, second) for _ in range(10)} == {200}

    asked = wheel_timer("keys", "revoke", key_id, "--url", up.url)
    assert asked.returncode == 2
    assert "--yes" in asked.stderr
    assert _status(up, second) == 200
    revoked = wheel_timer("keys", "revoke", key_id, "--url", up.url, "--yes")
    since_s = time.monotonic()
    assert revoked.returncode == 0, revoked.stderr
    # A connection a request, so that both brokers answer.
    last_200_s = since_s
    while time.monotonic() < since_s + REVOKED_WITHIN_S + 0.5:
        if 200 in (_status(up, key), _status(up, second)):
            last_200_s = time.monotonic()
    assert last_200_s - since_s < REVOKED_WITHIN_S
    missing = wheel_timer("keys", "revoke", "nothing", "--url", up.url, "--yes")
    assert missing.returncode == 1


def _status(up: Up, key: str) -> int:
    headers = {"authorization": f"Bearer {key}"}
    return httpx.get(f"{up.url}/v1/wheel", headers=headers).status_code
