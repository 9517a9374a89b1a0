"""`demo`: some thousand timers from submit to callback, on this machine, and what came of them."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from wheel_timer import log
from wheel_timer.cli.exits import NO
from wheel_timer.cli.options import AsJson
from wheel_timer.cli.output import err

LOG_LINES: Final = 12  # of what the processes said, shown where something went wrong


def demo(
    tasks: Annotated[
        int, typer.Option("--tasks", min=1, max=1_000_000, metavar="N", help="How many timers.")
    ] = 2_000,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.0, max=3_600.0, metavar="S", help="Over how long.")
    ] = 10.0,
    as_json: AsJson = False,
) -> None:
    """
    See it work: thousands of timers, and how late each came.

    Starts everything in a temporary directory, with an endpoint of its own, and removes it all
    afterwards. Exits 0 only if every timer arrived exactly once, none early, and every audit
    holds. Your settings and servers are not touched.

    [bold]Examples[/]

    $ wheel-timer demo

    $ wheel-timer demo --tasks 20000 --seconds 10
    """
    from wheel_timer.cli.interrupts import run_stoppable
    from wheel_timer.cli.showing import Showing

    with contextlib.ExitStack() as cleanup:
        # A short path: the sockets of Postgres and Redis have to fit below it.
        directory = Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="wheel-timer-")))
        output = cleanup.enter_context((directory / "log").open("a+"))
        log.set_up("info", "text", output)
        showing = Showing(tasks, seconds, directory, output, as_json=as_json)

        async def run() -> int:
            return await run_stoppable(showing, showing.run)

        code = NO
        try:
            code = asyncio.run(run())
        finally:
            if code == NO:
                output.seek(0)
                for line in output.readlines()[-LOG_LINES:]:
                    err.print(Text(line.rstrip(), style="dim"))
        raise typer.Exit(code)
