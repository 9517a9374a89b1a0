"""The installed `wheel-timer` as a subprocess, and an `up` of it."""

from __future__ import annotations

import asyncio
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final, Self

import psutil

from tests.processes import arguments

PROGRAM: Final = Path(sys.executable).parent / "wheel-timer"
START_S: Final = 60.0
GONE_S: Final = 20.0
_URL: Final = re.compile(r"http://127\.0\.0\.1:\d+")


def wheel_timer(
    *arguments: str, stdin: str | None = None, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [str(PROGRAM), *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
        env=plain_environ(environ),
    )


async def beside(
    *arguments: str, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """The same, while this loop goes on: it may be serving the endpoint that is called back."""
    return await asyncio.to_thread(wheel_timer, *arguments, environ=environ)


class Up:
    """
    A running `wheel-timer up`; its terminal is what it prints.

    Its lines are read by a thread, so that it never waits for us.
    """

    def __init__(
        self, data_dir: Path, *arguments: str, environ: Mapping[str, str] | None = None
    ) -> None:
        self.data_dir = data_dir
        self.said: list[str] = []
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._process = subprocess.Popen(
            [str(PROGRAM), "up", "--port", "0", "--data-dir", str(data_dir), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=plain_environ(environ),
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=[self._process.stdout], daemon=True)
        self._reader.start()
        try:
            found = _URL.search(self.wait_for_line(_URL, START_S))
            assert found is not None
            self.url = found[0]
            self.wait_for_line(re.compile("Ctrl-C stops everything"), START_S)
        except BaseException:
            self.close()
            raise

    def wait_for_line(self, pattern: re.Pattern[str], timeout_s: float) -> str:
        """The next line that it prints and pattern is found in."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"no {pattern.pattern!r} in {self.said}") from None
            if line is None:
                raise AssertionError(f"it ended: {self.said}")
            if pattern.search(line):
                return line

    def processes(self) -> list[psutil.Process]:
        """Itself and all below it."""
        parent = psutil.Process(self._process.pid)
        return [parent, *parent.children(recursive=True)]

    def children(self, part_of_command: str) -> list[psutil.Process]:
        """Those of its processes that were started with such an argument."""
        return [one for one in self.processes()[1:] if part_of_command in arguments(one)]

    def get(self, path: str) -> Any:
        """GET the path; the JSON of the answer, or its text."""
        with urllib.request.urlopen(self.url + path, timeout=10) as answer:
            body = answer.read().decode()
        return json.loads(body) if answer.headers.get_content_subtype() == "json" else body

    def interrupt(self, number: signal.Signals = signal.SIGINT) -> None:
        """Ctrl-C."""
        self._process.send_signal(number)

    def wait(self, timeout_s: float = GONE_S) -> int:
        """Its exit code."""
        return self._process.wait(timeout_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop it, if need be the hard way."""
        if self._process.poll() is None:
            self.interrupt()
            try:
                self.wait()
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._reader.join()

    def _read(self, output: IO[str]) -> None:
        with output:
            for line in output:
                self.said.append(line)
                self._lines.put(line)
        self._lines.put(None)


def all_gone(processes: list[psutil.Process], timeout_s: float = GONE_S) -> bool:
    """Whether none of them is left, within that time."""
    _, alive = psutil.wait_procs(processes, timeout=timeout_s)
    return not [one for one in alive if one.is_running() and one.status() != "zombie"]


def plain_environ(changes: Mapping[str, str] | None) -> dict[str, str]:
    plain = {"COLUMNS": "200", "NO_COLOR": "1", "PYTHONWARNINGS": ""}
    return {**os.environ, **plain, **(changes or {})}
