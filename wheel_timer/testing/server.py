"""`wheel-timer up --test-clock` for a session of tests, in a directory of its own."""

from __future__ import annotations

import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

import msgspec

from wheel_timer.biz import BizTypeOut
from wheel_timer.client import Client
from wheel_timer.settings import PREFIX

START_S_MAX: Final = 60.0
STOP_S_MAX: Final = 30.0
# Its files live in memory where there is so much of it: nothing is to survive a session.
MEMORY: Final = "/dev/shm"
MEMORY_BYTES_MIN: Final = 2 * 1024**3
# A move of the clock waits for callbacks, and a machine that runs tests is busy.
TOTAL_S: Final = 30.0


class Server:
    """
    url: where its API is. client: a Client of it. Ends with this process, however that ends.
    Raises RuntimeError, with what it said, where it does not start.
    """

    def __init__(self) -> None:
        self.url = ""
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()

    def biz(self, name: str, **settings: Any) -> BizTypeOut:
        """
        Make a biz_type what is given: biz("orders", callback_url=received.url). Its breaker is off
        unless you set one: it would hold back one test's callbacks for another test's failures.
        """
        settings.setdefault("breaker", {"enabled": False})
        return self.client.biz.put(name, **settings)

    def __enter__(self) -> Self:
        # A short path: the sockets of Postgres and Redis have to fit below it.
        self._directory = tempfile.TemporaryDirectory(prefix="wheel-timer-", dir=_memory())
        environ = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        environ |= {f"{PREFIX}LOG_FORMAT": "json", f"{PREFIX}LOG_LEVEL": "warning"}
        log = Path(self._directory.name) / "log"
        data = Path(self._directory.name) / "data"
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                # Its standard input is a pipe that only we hold: it ends with us.
                [
                    *(sys.executable, "-P", "-m", "wheel_timer.cli.leash", "wheel_timer.cli"),
                    *("up", "--test-clock", "--port", "0", "--brokers", "1"),
                    *("--data-dir", str(data)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=environ,
                start_new_session=True,
            )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=[self._process.stdout], daemon=True)
        self._reader.start()
        try:
            self.url = self._wait_for_url(log)
        except BaseException:
            self.close()
            raise
        self.client = Client(self.url, "", total_s=TOTAL_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.client.close()
        self.close()

    def close(self) -> None:
        """Stop it, if need be the hard way, and remove its files."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(STOP_S_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            assert self._process.stdin is not None
            self._process.stdin.close()
        if self._reader is not None:
            self._reader.join()
        if self._directory is not None:
            with suppress(OSError):
                self._directory.cleanup()

    def _wait_for_url(self, log: Path) -> str:
        deadline_s = time.monotonic() + START_S_MAX
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline_s - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                said = log.read_text()[-2_000:].strip()
                raise RuntimeError(f"the wheel-timer server did not start: {said}")
            with suppress(msgspec.DecodeError):
                found = msgspec.json.decode(line)
                if isinstance(found, dict) and found.get("event") == "up":
                    return str(found["url"])

    def _read(self, output: IO[str]) -> None:
        """Take its lines, so that it never waits for us."""
        with output:
            for line in output:
                self._lines.put(line)
        self._lines.put(None)


def _memory() -> str | None:
    """A directory in memory; None where there is none, or too little, as in most containers."""
    if not os.access(MEMORY, os.W_OK | os.X_OK):
        return None
    return MEMORY if shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN else None
