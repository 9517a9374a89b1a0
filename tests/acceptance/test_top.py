"""`top` as it is used: in a terminal of its own, by its keys; without one; with nobody there."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from collections.abc import Iterator

import pytest

from tests.acceptance.fix_up import PROGRAM, Up, plain_environ, wheel_timer

SOON_S = 20.0
LEAVES_THE_SCREEN = b"\x1b[?1049l"
SHOWS_THE_CURSOR = b"\x1b[?25h"


class Terminal:
    """A command in a terminal of 80 by 24, and what it has written there."""

    def __init__(self, *arguments: str) -> None:
        self._ours, self._theirs = pty.openpty()
        termios.tcsetwinsize(self._theirs, (24, 80))
        self._mode = termios.tcgetattr(self._theirs)
        self.written = b""
        environ = plain_environ({"TERM": "xterm-256color"})
        del environ["COLUMNS"]
        self.process = subprocess.Popen(
            [str(PROGRAM), *arguments],
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            env=environ,
            start_new_session=True,
        )

    def until(self, pattern: bytes) -> None:
        """Read on until this was written since the last time."""
        deadline = time.monotonic() + SOON_S
        fresh = b""
        while re.search(pattern, fresh, re.DOTALL) is None:
            ready, _, _ = select.select([self._ours], [], [], deadline - time.monotonic())
            assert ready, (pattern, self.written[-3_000:])
            fresh += os.read(self._ours, 65_536)
            self.written += fresh

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def resize(self, lines: int, columns: int) -> None:
        termios.tcsetwinsize(self._ours, (lines, columns))
        self.process.send_signal(signal.SIGWINCH)

    def end(self) -> int:
        """Its exit code; the terminal is as it was."""
        self.until(re.escape(LEAVES_THE_SCREEN))
        code = self.process.wait(SOON_S)
        assert termios.tcgetattr(self._theirs) == self._mode
        assert SHOWS_THE_CURSOR in self.written
        return code

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._ours)
        os.close(self._theirs)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    """Those that are put here are closed at the end."""
    opened: list[Terminal] = []
    yield opened
    for terminal in opened:
        terminal.close()


def test_keys_are_obeyed_and_the_terminal_is_left_clean(up: Up, terminals: list[Terminal]) -> None:
    terminals.append(top := Terminal("top", "--url", up.url, "--interval", "0.5"))
    top.until(b"default .*sort: late")
    top.press(b"s")
    top.until(b"sort: depth")
    top.press(b"p")
    top.until(b"paused")
    top.resize(30, 130)
    top.until(b"priority")
    top.press(b"q")
    assert top.end() == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_the_terminal_clean(
    number: signal.Signals, terminals: list[Terminal]
) -> None:
    # Nobody is there: it says so, and goes on trying.
    terminals.append(top := Terminal("top", "--url", "http://127.0.0.1:1"))
    top.until(b"trying again")
    top.process.send_signal(number)
    assert top.end() == 130


def test_without_a_terminal_it_is_plain(up: Up) -> None:
    once = wheel_timer("top", "--url", up.url, "--once", "--interval", "0.2")
    assert once.returncode == 0, once.stderr
    assert "1 daemon" in once.stdout
    assert "default" in once.stdout
    assert "\x1b" not in once.stdout
    told = wheel_timer("top", "--url", up.url, "--once", "--interval", "0.2", "--json")
    picture = json.loads(told.stdout)
    assert {"rates", "lateness", "wheel", "nodes", "operations"} <= set(picture)
    assert picture["rates"]["submitted"] >= 0
    assert "default" in [lane["biz_type"] for lane in picture["wheel"]["lanes"]]
    away = wheel_timer("top", "--url", "http://127.0.0.1:1", "--once")
    assert (away.returncode, "nothing answers" in away.stderr) == (4, True)
