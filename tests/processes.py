"""What is asked of processes that may end at any moment, as the backends of a Postgres do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import psutil


def arguments(process: psutil.Process) -> list[str]:
    """Its command line; empty once it has ended."""
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []


def tell(processes: Iterable[psutil.Process], number: int) -> None:
    """This signal to all of them that are still there."""
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(number)
