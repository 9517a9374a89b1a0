"""
How a command ends: the exit codes, and the one exception that carries them.

    0    done
    1    the answer is no: a violation, not found, a task that failed
    2    wrong usage, or settings that cannot work
    3    the server refused (4xx)
    4    out of reach, or 5xx: worth a retry
    130  interrupted
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

DONE: Final = 0
NO: Final = 1
USAGE: Final = 2
REFUSED: Final = 3
UNREACHABLE: Final = 4
INTERRUPTED: Final = 130

_TITLES: Final = {
    NO: "No",
    USAGE: "Wrong usage",
    REFUSED: "Refused",
    UNREACHABLE: "Out of reach",
}


class Failure(Exception):
    """
    A command cannot go on. The text is one line for the terminal; hint, a second one.

    problem: the server's problem+json where it sent one; `--json` prints it to stderr.
    """

    def __init__(
        self,
        text: str,
        exit_code: int,
        *,
        hint: str | None = None,
        problem: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.hint = hint
        self._problem = problem

    @property
    def problem(self) -> dict[str, Any]:
        """RFC 9457: the server's own, or one of `about:blank` made from the text."""
        if self._problem is not None:
            return dict(self._problem)
        title = _TITLES.get(self.exit_code, "Failed")
        return {"type": "about:blank", "title": title, "detail": str(self)}
