"""
One embedded server: a child process with its log, its watchdog, and an orderly end.

States: stopped -> starting (`start`) -> ready (`wait_ready`) -> stopped (`stop`, or it died:
`is_running` says so, and `start` may be called again, which is what a supervisor does).

When this process dies, also by SIGKILL, a `sh` that holds the other end of a pipe notices and
stops the server properly. When even that failed, the next `start` finds the server by its pid file
and stops it first; a pid file left by a crash, whose number belongs to somebody else by now, is
removed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import IO, ClassVar, Final

import psutil

from wheel_timer.embedded.account import account_for, give, make_reachable, make_readable
from wheel_timer.embedded.directory import DataDirectory
from wheel_timer.errors import StartRefused

LOG_BYTES_MAX: Final = 10 * 1024 * 1024  # a longer one becomes NAME.log.1 at the next start
POLL_S: Final = 0.02
# LC_ALL=C: on macOS another locale makes the postmaster multithreaded, which it refuses to be.
ENVIRONMENT: Final = {"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}
# Blocks until the pipe to its parent closes, then sends the signal $1 to the process $2.
WATCHDOG: Final = 'read -r _; kill -s "$1" "$2" 2>/dev/null'


class EmbeddedServer(ABC):
    """What Postgres and Redis have in common. Not thread-safe; every call blocks."""

    name: ClassVar[str]
    stop_signals: ClassVar[tuple[tuple[signal.Signals, float], ...]]  # each with seconds to wait

    def __init__(self, directory: DataDirectory) -> None:
        self.directory = directory
        self.data = directory.path / self.name
        self.log = directory.path / f"{self.name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        self._log_begin = 0  # where the log of the present life begins

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients find it; stays the same over restarts."""

    @property
    @abstractmethod
    def pid_file(self) -> Path:
        """The file the server writes its pid into."""

    @abstractmethod
    def command(self) -> list[str]:
        """The program and its arguments."""

    @abstractmethod
    def prepare(self) -> None:
        """Make the data directory ready for `command`."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether a client is served."""

    def is_running(self) -> bool:
        """Whether the child process lives."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Start the server; it is not ready yet. Raises StartRefused."""
        assert not self.is_running()
        self._dismiss_watchdog()
        try:
            self._end_orphan()
            self.prepare()
            self.process = self._spawn()
        except OSError as error:
            raise StartRefused(f"{self.name} cannot start in {self.data}: {error}") from error
        self._watchdog = subprocess.Popen(
            ["/bin/sh", "-c", WATCHDOG, "sh", self._stop_signal_name(), str(self.process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait_ready(self, timeout_s: float) -> None:
        """Return when a client is served. Raises StartRefused with the server's own last word."""
        deadline = time.monotonic() + timeout_s
        while not self.answers():
            if not self.is_running():
                reason = self.last_words()
                if not self.may_pass(reason) or time.monotonic() > deadline:
                    raise StartRefused(f"{self.name} did not start: {reason} (see {self.log})")
                self.start()
            if time.monotonic() > deadline:
                raise StartRefused(f"{self.name} was not ready in {timeout_s:g} s (see {self.log})")
            time.sleep(POLL_S)

    def may_pass(self, reason: str) -> bool:  # noqa: ARG002
        """Whether what the server died of goes away by itself."""
        return False

    def stop(self) -> None:
        """Shut down in order: all is on disk, clients are told. Idempotent."""
        if self.process is not None:
            for number, wait_s in self.stop_signals:
                if self.process.poll() is None:
                    self.process.send_signal(number)
                try:
                    self.process.wait(wait_s)
                    break
                except subprocess.TimeoutExpired:
                    continue
            self.process = None
        self._dismiss_watchdog()

    def last_words(self) -> str:
        """What its log says, since the last start, of why it ended: one line."""
        with self.log.open("rb") as log:
            log.seek(self._log_begin)
            lines = log.read(LOG_BYTES_MAX).decode(errors="replace").splitlines()
        return self.reason_in([line.strip() for line in lines if line.strip()])

    def reason_in(self, lines: list[str]) -> str:
        """Of these lines of the log, what is worth showing."""
        return " ".join(lines[-3:]) or "it said nothing"

    def child(self, command: list[str], output: int | IO[bytes]) -> subprocess.Popen[bytes]:
        """Start `command` under the server's account, with nothing of our environment."""
        account = account_for(self.data)
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            env=ENVIRONMENT,
            umask=0o077,
            start_new_session=True,
            user=account.uid if account else None,
            group=account.gid if account else None,
            extra_groups=[] if account else None,
        )

    def own_data_directory(self, path: Path) -> None:
        """Create `path` where needed; it is its server's alone."""
        account = account_for(self.data)
        path.mkdir(exist_ok=True)
        give(path, account)
        if account is not None:
            make_reachable(path)

    def share_programs(self, *trees: Path) -> None:
        """As root: let the server's account read and run what is in these directories."""
        if os.geteuid() == 0:
            for tree in trees:
                make_reachable(tree)
                make_readable(tree)

    def _spawn(self) -> subprocess.Popen[bytes]:
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES_MAX:
            self.log.replace(self.log.with_suffix(".log.1"))
        with self.log.open("ab") as log:
            self._log_begin = log.tell()
            return self.child(self.command(), log)

    def _end_orphan(self) -> None:
        """Stop a server that outlived its parent; remove a pid file that nobody stands behind."""
        try:
            pid = int(self.pid_file.read_text().split("\n", 1)[0])
        except (FileNotFoundError, ValueError):
            self.pid_file.unlink(missing_ok=True)
            return
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            orphan = psutil.Process(pid)
            if orphan.name().startswith(self.name) and orphan.cwd() == str(self.data):
                for number, wait_s in self.stop_signals:
                    orphan.send_signal(number)
                    if _is_gone(orphan, wait_s):
                        break
        self.pid_file.unlink(missing_ok=True)

    def _stop_signal_name(self) -> str:
        return self.stop_signals[0][0].name.removeprefix("SIG")

    def _dismiss_watchdog(self) -> None:
        """End the watchdog before its server's pid can belong to somebody else."""
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.wait()
            assert self._watchdog.stdin is not None
            self._watchdog.stdin.close()
            self._watchdog = None


def _is_gone(process: psutil.Process, wait_s: float) -> bool:
    """Wait for the end of a process that is not our child; one that nobody reaps has ended, too."""
    deadline = time.monotonic() + wait_s
    with suppress(psutil.NoSuchProcess):
        while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
    return True
