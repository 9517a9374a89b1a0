"""`pause --all` and `resume --all`: the brake of the whole wheel."""

from __future__ import annotations

from typing import Annotated

import typer

from wheel_timer.cli.confirm import Unasked
from wheel_timer.cli.exits import USAGE, Failure
from wheel_timer.cli.options import AsJson, Config, KeyFile, Url, connect
from wheel_timer.cli.output import err, print_json

All = Annotated[bool, typer.Option("--all", help="Of every biz_type.")]


def pause(
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="What whoever finds it so will read.")
    ],
    everything: All = False,
    _yes: Unasked = False,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Put the brake on: nothing new is called.

    Holds within two seconds, and over restarts, until `resume --all`. Submits go on.

    [bold]Examples[/]

    $ wheel-timer pause --all --reason "the shop is moving"
    """
    _check(everything, "pause")
    with connect(url, key_file, config) as server:
        state = server.post("/v1/wheel/pause", {"reason": reason})
    if as_json:
        print_json(state)
    else:
        err.print(f"the brake is on since {state['brake']['since']}: {state['brake']['reason']}")


def resume(
    everything: All = False,
    _yes: Unasked = False,
    url: Url = None,
    key_file: KeyFile = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Take the brake off: what came due meanwhile is called.

    [bold]Examples[/]

    $ wheel-timer resume --all
    """
    _check(everything, "resume")
    with connect(url, key_file, config) as server:
        state = server.post("/v1/wheel/resume", {})
    if as_json:
        print_json(state)
    else:
        err.print("the brake is off")


def _check(everything: bool, verb: str) -> None:
    if not everything:
        raise Failure(f"{verb} what?", USAGE, hint=f"--all, or `wheel-timer biz {verb} NAME`")
