"""
The data directory: who may use it, and what lies where in it.

    lock             held (flock) by the one wheel-timer that uses the directory; its pid inside
    postgres/        the database cluster            postgres.log
    redis/           the append-only file            redis.log
    run/             the Unix sockets, where the path is short enough for them
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import socket
import stat
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from wheel_timer.embedded.account import account_for, give, make_reachable
from wheel_timer.errors import StartRefused

# sun_path holds 104 bytes on macOS (108 on Linux), with the NUL.
SOCKET_PATH_BYTES_MAX: Final = 103
LONGEST_SOCKET_NAME: Final = ".s.PGSQL.5432.lock"


class DataDirectory:
    """
    A directory for the files of the embedded servers, locked while it is used.

    Raises StartRefused, one line, where it cannot be used.
    """

    def __init__(self, path: Path) -> None:
        if not sys.platform.startswith(("linux", "darwin")):
            raise StartRefused(
                "the embedded servers run on Linux and macOS only: "
                "set DATABASE_URL and REDIS_URL to servers of your own"
            )
        self.path = path.expanduser().resolve()
        self._lock: IO[str] | None = None

    def lock(self) -> Self:
        """Create the directory where needed, and take it. Ends with `unlock` or this process."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            ignore = self.path / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n")
            lock = (self.path / "lock").open("a+")
        except OSError as error:
            raise StartRefused(
                f"the data directory {self.path} cannot be used: {error.strerror}"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip()
            lock.close()
            process = f" (process {holder})" if holder else ""
            raise StartRefused(
                f"another wheel-timer{process} runs in {self.path}: "
                "stop it, or name another directory with --data-dir"
            ) from None
        lock.seek(0)
        lock.truncate()
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        self._lock = lock
        return self

    def unlock(self) -> None:
        """Let others use the directory. The servers in it must have stopped."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def __enter__(self) -> Self:
        return self.lock()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.unlock()

    def sockets(self) -> Path:
        """
        A directory for the servers' sockets that only their account can enter.

        In the data directory; beside the machine's temporary files, under a name made from the data
        directory's, where that path is too long or its file system has no sockets.
        """
        account = account_for(self.path / "postgres")
        own = self.path / "run"
        if len(os.fsencode(own / LONGEST_SOCKET_NAME)) <= SOCKET_PATH_BYTES_MAX:
            own.mkdir(exist_ok=True)
            if _holds_sockets(own):
                give(own, account)
                if account is not None:
                    make_reachable(own)
                return own
        digest = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:12]
        elsewhere = Path(tempfile.gettempdir()) / f"wheel-timer-{digest}"
        elsewhere.mkdir(mode=0o700, exist_ok=True)
        found = elsewhere.lstat()
        # Others can write there too: take only what is a directory, and ours.
        owners = {os.geteuid()} if account is None else {0, account.uid}
        if not stat.S_ISDIR(found.st_mode) or found.st_uid not in owners:
            raise StartRefused(f"{elsewhere} belongs to somebody else: remove it")
        give(elsewhere, account)
        return elsewhere


def _holds_sockets(directory: Path) -> bool:
    """Whether a Unix socket can be made here: some shared and network file systems have none."""
    path = directory / "probe"
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(os.fspath(path))
        except OSError:
            return False
    path.unlink()
    return True
