"""What destroys something asks first; where nobody can be asked, it needs --yes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from wheel_timer.cli.exits import NO, USAGE, Failure

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
# Of a command that does not ask: a script that says it everywhere is not wrong.
Unasked = Annotated[bool, typer.Option("--yes", "-y", hidden=True)]


def confirm(question: str, yes: bool) -> None:
    """Return only where it may be done. Raises Failure: 2 without a terminal, 1 for a no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise Failure(f"{question} There is no terminal to ask at", USAGE, hint="give --yes")
    # On stderr: stdout carries the answer alone.
    if not typer.confirm(question, err=True):
        raise Failure("nothing was done", NO)
