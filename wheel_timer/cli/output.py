"""
What a command prints: for people with rich, for programs (`--json`) one object or NDJSON.

Answers go to stdout; progress, hints and errors to stderr, so that a pipe carries answers only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import msgspec
from rich.console import Console
from rich.text import Text

from wheel_timer.cli.exits import Failure

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(value: object) -> None:
    """One object on one line."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def print_ndjson(items: Iterable[object]) -> None:
    """A list: one item a line."""
    for item in items:
        print_json(item)


def print_failure(failure: Failure, *, as_json: bool) -> None:
    """The one line of what went wrong and its hint; problem+json with --json."""
    if as_json:
        sys.stderr.write(msgspec.json.encode(failure.problem).decode() + "\n")
        return
    err.print(Text.assemble(("wheel-timer: ", "bold red"), str(failure)))
    if failure.hint:
        err.print(Text(f"             {failure.hint}", style="dim"))
