"""
Secrets are planted everywhere they can be, a run with failures is made, and all that comes out of
it is searched: the terminal at level debug, log files, every GET, the metrics, the views.
"""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import psycopg
import pytest

from broker.api import app
from tests.acceptance.fix_up import Up, wheel_timer

ADMIN_KEY: Final = "planted-admin-key-4f1d"
SIGNING: Final = "whsec_" + b64encode(b"planted-signing-secret-aaaaaaaaa").decode()
ROTATED: Final = "whsec_" + b64encode(b"planted-signing-secret-bbbbbbbbb").decode()
HEADER: Final = "planted-header-token-77"
OWN_HEADER: Final = "planted-own-header-88"
WRONG: Final = "planted-wrong-value-99"
# Shown where the configuration is shown, and nowhere else.
QUERY: Final = "planted-query-token-55"
PAYLOAD: Final = "planted-payload-66"
SETTLED_S: Final = 30.0


class Planted:
    """A server with its secrets, and everything that it answered."""

    def __init__(self, up: Up, http: httpx.Client) -> None:
        self.up = up
        self._http = http
        self.secrets = [ADMIN_KEY, SIGNING, ROTATED, HEADER, OWN_HEADER, WRONG]
        self.secrets += [secret.removeprefix("whsec_") for secret in (SIGNING, ROTATED)]
        self.answers: list[str] = []

    def ask(self, method: str, path: str, key: str = ADMIN_KEY, **given: Any) -> httpx.Response:
        """An answer, kept to be searched."""
        headers = {"authorization": f"Bearer {key}"} | given.pop("headers", {})
        answer = self._http.request(method, path, headers=headers, **given)
        self.answers.append(f"{method} {path}: {answer.headers} {answer.text}")
        return answer

    def plant(self, answer: httpx.Response, secret: str) -> None:
        """The one answer that may show this secret has come."""
        self.answers.pop()
        assert answer.is_success, answer.text
        self.secrets.append(secret)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Planted]:
    environ = {
        "WHEEL_TIMER_ADMIN_KEY": ADMIN_KEY,
        "WHEEL_TIMER_LOG_LEVEL": "debug",
        "WHEEL_TIMER_CALLBACK_ALLOW": "127.0.0.0/8",
    }
    with (
        Up(tmp_path_factory.mktemp("planted"), environ=environ) as up,
        httpx.Client(base_url=up.url, timeout=20) as http,
    ):
        made = Planted(up, http)
        _run(made)
        yield made


def _run(server: Planted) -> None:
    """Deliveries that succeed and fail, and requests that are refused in every way."""
    made = server.ask("POST", "/v1/keys", json={"name": "shop", "scopes": ["read", "submit"]})
    key = made.json()["key"]
    server.plant(made, key.split("_", 2)[2])
    rotated = server.ask("POST", f"/v1/keys/{made.json()['key_id']}/rotate", json={"overlap": 60})
    server.plant(rotated, rotated.json()["key"].split("_", 2)[2])

    biz = {
        "callback_headers": {"x-receiver-token": HEADER},
        "secret": SIGNING,
        "allow_callback_override": True,
        "retry": {"max_attempts": 2, "ladder": [0.1]},
    }
    urls = {
        "good": f"{server.up.url}/demo/echo?token={QUERY}",
        "closed": f"http://127.0.0.1:1/?token={QUERY}",
        "nowhere": f"http://no-such-name.invalid/?token={QUERY}",
        "untrusted": f"https://127.0.0.1:{server.up.url.rpartition(':')[2]}/?token={QUERY}",
    }
    for name, url in urls.items():
        answer = server.ask("PUT", f"/v1/biz/{name}", json=biz | {"callback_url": url})
        assert answer.status_code == 201, answer.text
    rotation = {"secret": ROTATED, "grace": 3600}
    assert server.ask("POST", "/v1/biz/good/rotate-secret", json=rotation).is_success
    server.ask("POST", "/v1/biz/good/test")
    server.ask("POST", "/v1/biz/closed/test")

    own = {"url": f"http://127.0.0.1:1/?token={QUERY}", "headers": {"authorization": OWN_HEADER}}
    tasks: list[dict[str, Any]] = [
        {"biz_type": name, "biz_id": name, "delay": 0, "biz_data": {"card": PAYLOAD}}
        for name in urls
    ]
    tasks.append({"biz_type": "good", "biz_id": "own", "delay": 0, "callback": own})
    stored = server.ask("POST", "/v1/tasks/batch", key, json={"tasks": tasks})
    assert stored.json()["accepted"] == len(tasks), stored.text

    for wrong in (WRONG, f"wtk_{WRONG}", f"wtk_1_{WRONG}", ADMIN_KEY + WRONG):
        assert server.ask("GET", "/v1/biz", wrong).status_code == 401
    for body in (
        {"secret": WRONG},
        {"secret": "whsec_" + WRONG},
        {"callback_url": f"http://user:{WRONG}@a.example/"},
        {"callback_headers": {"x-some-token": f"{WRONG}\r\nx: y"}},
        {"callback_headers": {"x-some-token": {"a": WRONG}}},
        {"timeout": WRONG},
    ):
        answer = server.ask("PUT", "/v1/biz/bad", json={"callback_url": "http://a.example/"} | body)
        assert answer.status_code == 422, answer.text
    task = {"biz_type": "good", "delay": 0, "callback": {"url": f"http://:{WRONG}@a.example/"}}
    assert server.ask("POST", "/v1/tasks", json=task).status_code == 422
    assert server.ask("POST", "/v1/tasks", content=f'{{"{WRONG}').status_code == 400

    until_s = time.monotonic() + SETTLED_S
    waiting = [str(task["biz_id"]) for task in tasks]
    while waiting and time.monotonic() < until_s:
        name = waiting[0]
        found = server.ask("GET", f"/v1/biz/{'good' if name == 'own' else name}/tasks/{name}")
        if found.json()["status"] in ("finished", "failed"):
            waiting.pop(0)
        else:
            time.sleep(0.1)
    assert not waiting, server.answers[-1]
    for operation in app.OPERATIONS:
        if operation.method == "GET":
            path = operation.path.replace("{biz_type}", "good").replace("{biz_id}", "own")
            server.ask("GET", path.replace("{key_id}", made.json()["key_id"]))


def test_no_answer_shows_a_secret(planted: Planted) -> None:
    metrics = planted.ask("GET", "/metrics").text
    for answer in planted.answers:
        for secret in planted.secrets:
            assert secret not in answer
    assert "good" in metrics
    assert QUERY not in metrics
    # What is told of a failure names the place, and not the whole URL.
    for name in ("closed", "nowhere", "untrusted"):
        task = planted.ask("GET", f"/v1/biz/{name}/tasks/{name}").json()
        assert task["status"] == "failed"
        assert QUERY not in json.dumps([task["last_error"], task["attempt_log"]])


def test_no_log_shows_a_secret_or_a_payload(planted: Planted) -> None:
    files = [path for path in planted.up.data_dir.rglob("*") if "log" in path.name.lower()]
    texts = {str(path): path.read_bytes() for path in files if path.is_file()}
    # The terminal carries what /demo/echo prints of the callbacks, which is for its user to see.
    lines = [line for line in planted.up.said if not line.startswith(("    ", "←"))]
    texts["terminal"] = "\n".join(lines).encode()
    assert len(lines) > 20
    for place, text in texts.items():
        for secret in (*planted.secrets, QUERY, PAYLOAD):
            assert secret.encode() not in text, place
    everything = "\n".join(planted.up.said)
    for secret in planted.secrets:
        assert secret not in everything


def test_no_command_shows_a_secret(planted: Planted, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(ADMIN_KEY)
    server = ("--url", planted.up.url, "--key-file", str(tmp_path / "key"))
    environ = {"WHEEL_TIMER_ADMIN_KEY": ADMIN_KEY, "WHEEL_TIMER_KEY": ADMIN_KEY}
    for command in (
        ("biz", "show", "good", *server),
        ("biz", "list", *server),
        ("keys", "list", *server),
        ("get", "good/own", *server),
        ("explain", "good/own", *server),
        ("explain", "closed/closed", *server),
    ):
        done = wheel_timer(*command)
        assert done.returncode == 0, done.stderr
        for secret in planted.secrets:
            assert secret not in done.stdout + done.stderr, command
    shown = wheel_timer("config", environ=environ)
    assert ADMIN_KEY not in shown.stdout + shown.stderr


def test_no_view_and_no_change_shows_a_secret(planted: Planted) -> None:
    url = next(part for part in "\n".join(planted.up.said).split() if "postgresql://" in part)
    with psycopg.connect(url) as connection:
        names = ["timer_change", "timer_biz_history", "timer_attempt", "timer_key_api"]
        views = connection.execute(
            "SELECT viewname FROM pg_views WHERE viewname LIKE 'timer_%' "
            "AND viewname <> 'timer_payload_view'"
        )
        names += [name for (name,) in views.fetchall()]
        assert "timer_task_view" in names
        for name in names:
            rows = connection.execute(f'SELECT * FROM "{name}"'.encode()).fetchall()
            for secret in planted.secrets:
                assert secret not in str(rows), name
