"""The options that several commands share, and what they lead to: settings, and a Server."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from wheel_timer.cli.exits import USAGE, Failure
from wheel_timer.cli.output import err
from wheel_timer.settings import Loaded, Settings, load

if TYPE_CHECKING:
    from wheel_timer.cli.server import Server

AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON: one object, or a line for each item.")
]
Config = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="Settings from a TOML file.", dir_okay=False),
]
Url = Annotated[
    str | None,
    typer.Option("--url", metavar="URL", help="The server. Default: the setting URL."),
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--key-file",
        metavar="FILE",
        help="The file that holds the API key; - reads stdin. Default: the setting KEY.",
        dir_okay=False,
    ),
]


def load_settings(config: Path | None = None, **flags: object) -> Settings:
    """Flag, environment, file, default. Raises StartRefused with the one line of what is wrong."""
    return load_with_origins(config, **flags).settings


def load_with_origins(config: Path | None = None, **flags: object) -> Loaded:
    """The same, with where each value came from. What is not known is warned of on stderr."""
    loaded = load(flags, config, os.environ)
    for warning in loaded.warnings:
        err.print(Text.assemble(("warning: ", "yellow"), warning))
    return loaded


def connect(url: str | None, key_file: Path | None, config: Path | None) -> Server:
    """The server that a client command speaks to."""
    from wheel_timer.cli.server import Server  # httpx takes a tenth of a second; --help needs none

    settings = load_settings(config, url=url, key=_read_key(key_file))
    return Server(settings.url, settings.key)


def read_secret(file: Path) -> str:
    """What a file of secrets holds; of `-`, what stdin does."""
    if str(file) == "-":
        return sys.stdin.read().strip()
    try:
        return file.read_text().strip()
    except OSError as error:
        raise Failure(f"{file}: {error.strerror}", USAGE) from None


def _read_key(key_file: Path | None) -> str | None:
    return None if key_file is None else read_secret(key_file)
