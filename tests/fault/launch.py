"""
A real daemon or broker that tells of points in its code, and may be killed at one.

    python -m tests.fault.launch [--tell POINT]... [--die POINT TIMES] daemon|broker ARGUMENTS...

Runs what `python -m daemon` or `python -m broker` runs. Writes a line `POINT MONOTONIC_NS` to
stderr whenever it comes to a point it is to tell of; SIGKILL, sent to itself, is what it gets when
it comes to POINT for the TIMES-th time.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from importlib import import_module

from wheel_timer import signal as points


def _telling(point: str) -> Callable[[], None]:
    def tell() -> None:
        # One write to the descriptor: it is out before whatever comes next, a SIGKILL say.
        os.write(2, f"{point} {time.monotonic_ns()}\n".encode())

    return tell


def _dying(point: str, times: int) -> Callable[[], None]:
    tell = _telling(point)
    left = times

    def die() -> None:
        nonlocal left
        left -= 1
        if not left:
            tell()
            os.kill(os.getpid(), signal.SIGKILL)

    return die


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tell", action="append", default=[])
    parser.add_argument("--die", nargs=2)
    parser.add_argument("program", choices=("daemon", "broker"))
    options, arguments = parser.parse_known_args()
    for point in options.tell:
        points.on(point, _telling(point))
    if options.die is not None:
        points.on(options.die[0], _dying(options.die[0], int(options.die[1])))
    sys.argv = [options.program, *arguments]
    import_module(f"{options.program}.__main__").main()


if __name__ == "__main__":
    main()
