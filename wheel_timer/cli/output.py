"""
What a command prints: for people with rich, for programs (`--json`) one object or NDJSON.

Answers go to stdout; progress, hints and errors to stderr, so that a pipe carries answers only.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from wheel_timer.cli.exits import Failure

WIDE_CHARS_MAX: Final = 2_000

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)


def print_wide(table: Table) -> None:
    """
    A table, a line a row, however wide: a narrow terminal wraps the lines, and what is to be copied
    from them stays whole.
    """
    wide = Console(width=WIDE_CHARS_MAX, highlight=False)
    with wide.capture() as capture:
        wide.print(table)
    for line in capture.get().splitlines():
        sys.stdout.write(f"{line.rstrip()}\n")


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
