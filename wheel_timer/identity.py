"""
The name of a process in this life of it, and whether one of that name is known to be dead.

    ROLE-HOST-MACHINE-PID-NONCE

MACHINE stands for one boot of one kernel and one namespace of pids in it, and is empty where the
system does not tell them. Within it a pid that nobody has is a proof: its process, and each call
that it had under way, is over. Whoever was only frozen or cut off still has its pid.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import socket
from pathlib import Path
from typing import Final

BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
NAMESPACE: Final = Path("/proc/self/ns/pid")
HOST_MAX: Final = 40
NAME: Final = re.compile(r"[a-z]+-(?P<place>.+-[0-9a-f]{8})-(?P<pid>[0-9]+)-[0-9a-f]{8}")
ENDED: Final = frozenset("ZX")


def _machine() -> str:
    """Eight hex digits, or none."""
    try:
        told = f"{BOOT.read_text(encoding='ascii')} {NAMESPACE.readlink()}"
    except OSError:
        return ""
    return hashlib.blake2b(told.encode(), digest_size=4).hexdigest()


def _place() -> str:
    return f"{socket.gethostname()[:HOST_MAX]}-{_machine()}"


def identity(role: str) -> str:
    """A name for this life of this process. The nonce: pids come again."""
    return f"{role}-{_place()}-{os.getpid()}-{secrets.token_hex(4)}"


def is_gone(name: str) -> bool:
    """Whether the process of that name is known to have ended; False where nobody can say."""
    found = NAME.fullmatch(name)
    if found is None or found["place"] != _place():
        return False
    pid = int(found["pid"])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (PermissionError, OverflowError):
        return False
    try:
        # Of one that nobody has waited for only the pid is left: its sockets are closed.
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2][:1]
    except (OSError, UnicodeDecodeError):
        return False
    return state in ENDED
