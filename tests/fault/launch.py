"""
Starts real daemons and brokers that tell of points in their code, and may be killed at one.

    python -m tests.fault.launch

Imports both programs once and forks a process for each order, so that a test of ten processes does
not spend ten seconds on importing. Reads an order a line from stdin and answers on stdout, JSON
both: {"pid": ...} at once, {"pid": ..., "code": ...} when that process has ended (negative: the
signal that ended it). A process runs what `python -m daemon` or `python -m broker` runs. Into the
FIFO of its order goes what it prints, and a line `POINT MONOTONIC_NS` whenever it comes to a point
it is to tell of; SIGKILL, sent to itself, is what it gets at the `die` of its order. The `trouble`
of an order is what is wrong with the process, or with its machine, from its start on.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Literal

import msgspec

import broker.__main__
import daemon.__main__
from wheel_timer import signal as points

PROGRAMS = {"broker": broker.__main__.main, "daemon": daemon.__main__.main}


class Trouble(msgspec.Struct, frozen=True):
    """
    skew_s: how far the machine's clock, as this process sees it, is wrong. block: a point, at which
    coming to it the event loop stands still, and for how many seconds. files: the most file
    descriptors. name: its host's name, and whoever has one has pid 1, as in a container.
    """

    skew_s: float = 0.0
    block: tuple[str, int, float] | None = None
    files: int | None = None
    name: str | None = None


class Order(msgspec.Struct):
    """A process to start. die: a point, and at which coming to it. fifo: a path, open for us."""

    program: Literal["broker", "daemon"]
    arguments: list[str]
    environ: dict[str, str]
    fifo: str
    tell: list[str]
    die: tuple[str, int] | None = None
    trouble: Trouble = Trouble()


def _telling(point: str) -> Callable[[], None]:
    def tell() -> None:
        # One write to the descriptor: it is out before whatever comes next, a SIGKILL say.
        os.write(2, f"{point} {time.monotonic_ns()}\n".encode())

    return tell


def _once(point: str, times: int, act: Callable[[], None]) -> Callable[[], None]:
    """Tell, and then act, at the n-th coming to a point."""
    tell = _telling(point)
    left = times

    def handle() -> None:
        nonlocal left
        left -= 1
        if not left:
            tell()
            act()

    return handle


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _make(trouble: Trouble) -> None:
    """Before the program runs: it finds its machine so."""
    if trouble.skew_s:
        real_s, real_ns, skew_s = time.time, time.time_ns, trouble.skew_s
        time.time = lambda: real_s() + skew_s
        time.time_ns = lambda: real_ns() + round(skew_s * 1e9)
    if trouble.block is not None:
        point, times, seconds = trouble.block
        points.on(point, _once(point, times, partial(time.sleep, seconds)))
    if trouble.files is not None:
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (trouble.files, most))
    if trouble.name is not None:
        name = trouble.name
        socket.gethostname = lambda: name
        os.getpid = lambda: 1


def _run(order: Order) -> int:
    """The life of one process; its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    random.seed()
    output = os.open(order.fifo, os.O_WRONLY)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.environ.update(order.environ)
    for point in order.tell:
        points.on(point, _telling(point))
    if order.die is not None:
        points.on(order.die[0], _once(*order.die, _die))
    _make(order.trouble)
    sys.argv = [order.program, *order.arguments]
    try:
        PROGRAMS[order.program]()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def _answer(**facts: int) -> None:
    os.write(1, msgspec.json.encode(facts) + b"\n")


def _reap(*_: object) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        _answer(pid=pid, code=os.waitstatus_to_exitcode(status))


def main() -> None:
    signal.signal(signal.SIGCHLD, _reap)
    for line in sys.stdin:
        order = msgspec.json.decode(line, type=Order)
        # Its end is told after its beginning, however short it is.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        pid = os.fork()
        if not pid:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            # Without the exit handlers of this process: what it owns stays.
            os._exit(_run(order))
        _answer(pid=pid)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})


if __name__ == "__main__":
    main()
