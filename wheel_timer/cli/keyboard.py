"""
The keys of a terminal one by one, and what else wakes a command that has the whole screen: a new
size, news from another thread, Ctrl-Z.

SIGTERM and SIGHUP count as Ctrl-C, so that whatever ends the command leaves the terminal clean.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from types import TracebackType
from typing import Any, Final, Self

READ_BYTES: Final = 64
# What the terminal sends for them, in both of its cursor key modes.
_SEQUENCES: Final = {
    "\x1b[A": "up", "\x1bOA": "up", "\x1b[B": "down", "\x1bOB": "down",
    "\x1b[5~": "page up", "\x1b[6~": "page down",
    "\x1b[H": "home", "\x1bOH": "home", "\x1b[1~": "home",
}  # fmt: skip
_ENDS: Final = (signal.SIGTERM, signal.SIGHUP)


class Keyboard:
    """`with Keyboard() as keyboard` where stdin is a terminal, in the main thread."""

    def __init__(self) -> None:
        self._stdin = sys.stdin.fileno()
        self._listens = True
        self._is_suspended = False
        self._woken, self._waker = os.pipe()
        self._handlers: dict[int, Any] = {}
        self._mode: list[Any] = []

    def __enter__(self) -> Self:
        for end in (self._woken, self._waker):
            os.set_blocking(end, False)
        self._handlers = {
            number: signal.signal(number, handler)
            for number, handler in (
                *((number, _interrupt) for number in _ENDS),
                (signal.SIGWINCH, self._note),
                (signal.SIGTSTP, self._suspend),
            )
        }
        self._take()
        return self

    # The pipe is left open: another thread may wake us to the end of the process.
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._give_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def wake(self) -> None:
        """Let `wait` return; from any thread."""
        try:
            os.write(self._waker, b"!")
        except BlockingIOError:
            return  # it is full of such: nobody will miss one

    def wait(self, timeout_s: float) -> list[str]:
        """The keys that were pressed; none where something else woke us, or nothing did."""
        sources = [self._woken, self._stdin] if self._listens else [self._woken]
        ready, _, _ = select.select(sources, [], [], timeout_s)
        if self._woken in ready:
            os.read(self._woken, READ_BYTES)
        if self._stdin not in ready:
            return []
        given = os.read(self._stdin, READ_BYTES)
        self._listens = bool(given)  # nothing: whoever held the other end has gone
        return _keys(given.decode(errors="replace"))

    @property
    def is_suspended(self) -> bool:
        """Whether Ctrl-Z was pressed: clear the screen, then `suspend`."""
        return self._is_suspended

    def suspend(self) -> None:
        """Stop this process as Ctrl-Z does; returns when it goes on."""
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        signal.signal(signal.SIGTSTP, self._suspend)
        self._is_suspended = False
        self._take()

    def _take(self) -> None:
        import termios  # not everywhere that the client is installed there is one
        import tty

        self._mode = termios.tcgetattr(self._stdin)
        tty.setcbreak(self._stdin)

    def _give_back(self) -> None:
        import termios

        termios.tcsetattr(self._stdin, termios.TCSADRAIN, self._mode)

    def _note(self, *_: object) -> None:
        self.wake()

    def _suspend(self, *_: object) -> None:
        self._is_suspended = True
        self.wake()


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _keys(given: str) -> list[str]:
    keys: list[str] = []
    while given:
        for sequence, name in _SEQUENCES.items():
            if given.startswith(sequence):
                keys.append(name)
                given = given.removeprefix(sequence)
                break
        else:
            keys.append(given[0])
            given = given[1:]
    return keys
