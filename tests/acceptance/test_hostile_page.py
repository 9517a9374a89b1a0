"""
A hostile web page against the server that `up` runs without a key, in a real browser.

The page lies at another port of this machine: for a browser the same site, and another origin. It
tries everything a page can send, and writes down what it could read. Needs Chromium; without it the
same requests are tried by hand in tests/unit/test_api_access.py.
"""

from __future__ import annotations

import functools
import http.server
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.acceptance.fix_up import Up

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--virtual-time-budget=8000", "--timeout=20000"),
)
BIZ: Final = '{"callback_url": "http://127.0.0.1:9/stolen"}'
TASK: Final = '{"biz_type": "default", "delay": 0, "callback": {"url": "http://127.0.0.1:9/"}}'
PAGE: Final = """<!doctype html><body><script>
const server = "SERVER", found = {};
const task = 'TASK', biz = 'BIZ';
function attempt(name, path, options) {
  found[name] = "no answer";
  return fetch(server + path, options).then(
    answer => { found[name] = answer.type === "opaque" ? "sent" : "read " + answer.status; },
    () => { found[name] = "failed"; });
}
function form(path, type) {
  const frame = document.createElement("iframe");
  frame.name = "f" + Math.random();
  const sent = document.createElement("form");
  Object.assign(sent, {method: "post", action: server + path, target: frame.name, enctype: type});
  const field = document.createElement("input");
  field.name = task.slice(0, -1) + ', "x":"';
  field.value = '"}';
  sent.append(field);
  document.body.append(frame, sent);
  sent.submit();
}
function socket() {
  return new Promise(done => {
    const it = new WebSocket(server.replace("http", "ws") + "/v1/tasks");
    found.socket = "no answer";
    it.onopen = () => done(found.socket = "read");
    it.onerror = () => done(found.socket = "failed");
  });
}
function script() {
  return new Promise(done => {
    const it = document.createElement("script");
    found.script = "no answer";
    it.onload = () => done(found.script = "read");
    it.onerror = () => done(found.script = "failed");
    it.src = server + "/v1/wheel";
    document.body.append(it);
  });
}
const json = {"content-type": "application/json"};
attempt("read", "/v1/biz");
attempt("cookies", "/v1/biz", {credentials: "include"});
attempt("blind", "/v1/biz", {mode: "no-cors"});
attempt("text", "/v1/tasks", {method: "POST", mode: "no-cors", body: task});
attempt("beacon", "/v1/wheel/pause", {
  method: "POST", mode: "no-cors", keepalive: true, body: '{"reason": "hostile"}'});
attempt("json", "/v1/tasks", {method: "POST", headers: json, body: task});
attempt("put", "/v1/biz/stolen", {method: "PUT", headers: json, body: biz});
attempt("delete", "/v1/biz/default", {method: "DELETE"});
attempt("keys", "/v1/keys", {
  method: "POST", mode: "no-cors", body: '{"name": "x", "scopes": ["admin"]}'});
attempt("echo", "/demo/echo", {method: "POST", mode: "no-cors", body: "hostile"});
// Without a content-type, which no form can leave out.
attempt("bodiless", "/v1/biz/default/pause", {method: "POST", mode: "no-cors"});
attempt("bytes", "/v1/tasks", {
  method: "POST", mode: "no-cors", body: new TextEncoder().encode(task)});
socket();
script();
form("/v1/tasks", "text/plain");
form("/v1/biz/default/pause", "application/x-www-form-urlencoded");
form("/v1/wheel/pause", "multipart/form-data");
setInterval(() => { document.title = JSON.stringify(found); }, 100);
</script>"""

Browse = Callable[..., str]


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    """What Chromium makes of a page, in the end."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")

    def run(url: str, *flags: str) -> str:
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", *flags]
        done = subprocess.run(
            [*command, "--dump-dom", url], capture_output=True, text=True, check=True, timeout=60
        )
        return done.stdout

    return run


@pytest.fixture
def hostile(up: Up, tmp_path: Path) -> Iterator[int]:
    """The port that serves the hostile page."""
    page = PAGE.replace("SERVER", up.url).replace("TASK", TASK).replace("BIZ", BIZ)
    (tmp_path / "index.html").write_text(page)
    handler = functools.partial(_Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


def _state(up: Up) -> dict[str, Any]:
    """All that the page would like to change."""
    paths = ("/v1/biz", "/v1/keys", "/v1/tasks?biz_type=default")
    state = {path: httpx.get(up.url + path).json() for path in paths}
    wheel = httpx.get(up.url + "/v1/wheel").json()
    return state | {"brake": wheel.get("brake")}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_a_page_of_another_origin_reads_nothing_and_changes_nothing(
    up: Up, hostile: int, browse: Browse, name: str
) -> None:
    before = _state(up)
    shown = browse(f"http://{name}:{hostile}/")
    found = re.search(r"<title>(.*)</title>", shown)
    assert found is not None, shown
    results = json.loads(found[1])
    assert set(results.values()) == {"failed", "sent"}, results
    assert {results[name] for name in ("socket", "script", "json", "put", "delete")} == {"failed"}
    assert _state(up) == before


@pytest.mark.slow
def test_a_name_that_leads_here_is_served_nothing(up: Up, browse: Browse) -> None:
    """DNS rebinding: for the browser it is then the page's own origin."""
    port = up.url.rpartition(":")[2]
    rebound = "--host-resolver-rules=MAP hostile.example 127.0.0.1"
    for path in ("/v1/biz", "/metrics", "/docs", "/demo/echo"):
        shown = browse(f"http://hostile.example:{port}{path}", rebound)
        assert "only localhost, 127.0.0.1 and [::1] are served" in shown, path
    assert "default" in browse(f"{up.url}/v1/biz")
