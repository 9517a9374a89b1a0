"""The machine that a number belongs to, and what else was running on it meanwhile."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterable
from pathlib import Path

import psutil


def cpu_model() -> str:
    """`AMD EPYC`; what the platform says where /proc does not."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def machine(postgres: str, redis: str) -> str:
    """One line. postgres, redis: their versions."""
    return (
        f"{psutil.cpu_count()} cores of {cpu_model()}, {platform.system()}, "
        f"Python {platform.python_version()}, Postgres {postgres}, Redis {redis}"
    )


def cpu_s(processes: Iterable[psutil.Process]) -> float:
    """CPU time these have used, with that of their children that have ended."""
    total = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


class Others:
    """
    How busy everything else keeps the machine: a number measured beside others says little.

    Ours is this process with its children, once they have ended.
    """

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._busy_s = _busy_s()
        self._own_s = cpu_s([psutil.Process()])

    def cores(self) -> float:
        """Cores in use by others, on average since the beginning."""
        own_s = cpu_s([psutil.Process()]) - self._own_s
        elapsed_s = time.monotonic() - self._began_s
        return max(0.0, (_busy_s() - self._busy_s - own_s) / elapsed_s)


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0))
