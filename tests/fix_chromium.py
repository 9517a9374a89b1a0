"""
Chromium without a window, driven through its debugging pipe: real clicks on real pages.

Nothing has to be installed beside the browser itself: the pipe is two file descriptors (3 and 4)
that carry JSON, each message ended by a NUL. Where there is no Chromium the tests are skipped.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Self

import pytest

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser")
ANSWER_S: Final = 20.0
_FLAGS: Final = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe"),
)


class Browser:
    """One Chromium with one page. Close it."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        its_in, self._out = os.pipe()
        self._in, its_out = os.pipe()
        self._process = subprocess.Popen(
            [CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            close_fds=False,
            preexec_fn=lambda: _as_three_and_four(its_in, its_out),
        )
        os.close(its_in)
        os.close(its_out)
        self._read = b""
        self._id = 0
        self._events: list[dict[str, Any]] = []
        self.errors: list[str] = []
        targets = self._call("Target.getTargets")["targetInfos"]
        (page,) = [target for target in targets if target["type"] == "page"]
        attached = self._call(
            "Target.attachToTarget", {"targetId": page["targetId"], "flatten": True}
        )
        self._session: str = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """A command to the page; its result."""
        return self._call(method, params, self._session)

    def shape(self, width: int, height: int, *, is_dark: bool = False) -> None:
        """The size of the window in CSS pixels, and what its user likes better."""
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    def without_scripts(self, is_without: bool) -> None:
        """As a browser whose user has switched JavaScript off."""
        self.send("Emulation.setScriptExecutionDisabled", value=is_without)

    def open(self, url: str) -> None:
        """Go there, and wait until it is there."""
        self._events.clear()
        answer = self.send("Page.navigate", url=url)
        assert "errorText" not in answer, answer
        self._wait("Page.loadEventFired")

    def click(self, selector: str) -> None:
        """Click on the one element, where a person would, and wait for the page that follows."""
        self._press(selector)
        self._wait("Page.loadEventFired")

    def poke(self, selector: str) -> None:
        """Click without a page that follows."""
        self._press(selector)

    def fill(self, selector: str, text: str) -> None:
        """Put a text into a field in place of what is there, by the keyboard."""
        self._press(selector)
        self.evaluate(f"document.querySelector({json.dumps(selector)}).select()")
        self.send("Input.insertText", text=text)

    def choose(self, selector: str, value: str) -> None:
        """Choose one of a list."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).value = {json.dumps(value)}")

    def evaluate(self, expression: str) -> Any:
        """What a script of ours says about the page."""
        answer = self.send("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def text(self, selector: str = "main") -> str:
        """What is to be read there."""
        found: str = self.evaluate(f"document.querySelector({json.dumps(selector)}).innerText")
        return found

    def wait_for(self, expression: str, timeout_s: float = ANSWER_S) -> None:
        """Until a script of ours says yes."""
        deadline = time.monotonic() + timeout_s
        while not self.evaluate(expression):
            assert time.monotonic() < deadline, f"{expression} is not so: {self.text('body')}"
            time.sleep(0.05)

    @property
    def url(self) -> str:
        """Where it is."""
        found: str = self.evaluate("location.href")
        return found

    def picture(self, path: Path) -> None:
        """The whole page as PNG."""
        shot = self.send("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        """End it."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _press(self, selector: str) -> None:
        found = json.dumps(selector)
        count = self.evaluate(f"document.querySelectorAll({found}).length")
        assert count == 1, f"{count} of {selector} in {self.url}: {self.text('body')}"
        x, y = self.evaluate(
            f"(() => {{ const it = document.querySelector({found});"
            " it.scrollIntoView({block: 'center'}); const box = it.getBoundingClientRect();"
            " return [box.left + box.width / 2, box.top + box.height / 2]; })()"
        )
        self._events.clear()
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def _call(
        self, method: str, params: dict[str, Any] | None = None, session: str | None = None
    ) -> dict[str, Any]:
        self._id += 1
        message: dict[str, Any] = {"id": self._id, "method": method, "params": params or {}}
        if session is not None:
            message["sessionId"] = session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_S
        while True:
            got = self._next(deadline, method)
            if got.get("id") == self._id:
                assert "error" not in got, (method, got["error"])
                result: dict[str, Any] = got["result"]
                return result

    def _wait(self, event: str) -> None:
        deadline = time.monotonic() + ANSWER_S
        while not any(seen["method"] == event for seen in self._events):
            self._next(deadline, event)

    def _next(self, deadline: float, what: str) -> dict[str, Any]:
        while b"\0" not in self._read:
            left_s = deadline - time.monotonic()
            ready, _, _ = select.select([self._in], [], [], max(0.0, left_s))
            if not ready:
                raise AssertionError(f"Chromium does not answer {what}")
            self._read += os.read(self._in, 1 << 20)
        raw, _, self._read = self._read.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        if "method" in message:
            self._events.append(message)
            if message["method"] == "Log.entryAdded":
                entry = message["params"]["entry"]
                if entry["level"] == "error":
                    self.errors.append(f"{entry['text']} {entry.get('url', '')}")
            elif message["method"] == "Runtime.exceptionThrown":
                self.errors.append(str(message["params"]["exceptionDetails"]))
        return message


def _as_three_and_four(its_in: int, its_out: int) -> None:
    """In the child: its ends of the pipes, under the numbers that Chromium knows."""
    low, high = os.dup2(its_in, 60), os.dup2(its_out, 61)
    os.dup2(low, 3)
    os.dup2(high, 4)
    os.closerange(5, 256)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    """A Chromium with a profile of its own."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    with Browser(tmp_path / "profile") as running:
        yield running
