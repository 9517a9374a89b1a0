"""`up`: everything on this machine."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.text import Text

from wheel_timer import log
from wheel_timer.cli.exits import DONE
from wheel_timer.cli.options import Config, load_with_origins
from wheel_timer.cli.output import err, out, print_json

if TYPE_CHECKING:
    from wheel_timer.cli.machine import Machine


def up(
    host: Annotated[str, typer.Option("--host", help="The address of the API.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65_535, help="Its port; 0 takes a free one.")
    ] = 8080,
    data_dir: Annotated[
        Path,
        typer.Option(
            "--data-dir", metavar="DIR", help="Where Postgres and Redis keep their files."
        ),
    ] = Path(".wheel-timer"),
    brokers: Annotated[
        int | None,
        typer.Option("--brokers", min=1, max=64, metavar="N", help="Default: one per core."),
    ] = None,
    daemons: Annotated[
        int, typer.Option("--daemons", min=1, max=16, metavar="N", help="One leads, others wait.")
    ] = 1,
    test_clock: Annotated[
        bool,
        typer.Option("--test-clock", help="Time is what PUT /v1/clock says. For tests alone."),
    ] = False,
    config: Config = None,
) -> None:
    """
    Run everything on this machine.

    Postgres, Redis, the daemon, the brokers. Prints a curl to try: it sets a timer whose callback,
    /demo/echo, shows up in this terminal. Whatever dies is started again. Ctrl-C stops all of it
    and waits for calls under way; a second Ctrl-C does not wait. What was submitted is there after
    the next start.

    With the settings DATABASE_URL and REDIS_URL it uses those servers and starts none.

    [bold]Examples[/]

    $ wheel-timer up

    $ wheel-timer up --port 8090 --data-dir /var/lib/wheel-timer

    $ WHEEL_TIMER_DATABASE_URL=postgresql://app@db/app wheel-timer up --daemons 2
    """
    from wheel_timer.biz import BizTypeIn, Breaker
    from wheel_timer.cli.interrupts import run_stoppable
    from wheel_timer.cli.machine import Machine, Plan

    loaded = load_with_origins(config)
    settings = loaded.settings
    if loaded.origins["LOG_LEVEL"] == "default":
        # The terminal belongs to what /demo/echo prints; what goes wrong is still told.
        settings = msgspec.structs.replace(settings, log_level="warning")
    log.set_up(settings.log_level, settings.log_format)
    plan = Plan(
        host=host,
        port=port,
        data_dir=data_dir,
        brokers=brokers or cores(),
        daemons=daemons,
        biz_types={
            "default": BizTypeIn(
                allow_callback_override=True,
                # It would make the clock wait for whatever endpoint a test has left behind.
                breaker=Breaker(enabled=not test_clock),
            )
        },
        test_clock=test_clock,
    )
    as_json = settings.log_format == "json"

    async def run() -> int:
        machine = Machine(settings, plan)

        async def work() -> int:
            with err.status("starting") as status:
                if as_json or not err.is_terminal:
                    status.stop()
                await machine.start(lambda step: status.update(f"starting: {step}"))
            (_greet_json if as_json else _greet)(machine)
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                if not as_json:
                    err.print("\nstopping (Ctrl-C again: at once)", style="dim")
            return DONE

        return await run_stoppable(machine, work)

    raise typer.Exit(asyncio.run(run()))


def cores() -> int:
    """How many cores this process may run on."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def curl_to_try(url: str, *, needs_key: bool) -> str:
    """A timer due in three seconds that calls the /demo/echo of the same server."""
    key = '-H "authorization: Bearer $WHEEL_TIMER_ADMIN_KEY" ' if needs_key else ""
    return (
        f"curl {url}/v1/tasks {key}-H 'content-type: application/json' -d "
        f"""'{{"biz_type": "default", "delay": 3, "biz_data": {{"hello": "wheel"}}, """
        f""""callback": {{"url": "{url}/demo/echo"}}}}'"""
    )


def _greet(machine: Machine) -> None:
    settings, shown = machine.settings, machine.settings.shown()
    curl = curl_to_try(machine.url, needs_key=settings.admin_key is not None)
    for name, value in (
        ("API", f"{machine.url}  (read about it at /docs)"),
        ("Postgres", shown["DATABASE_URL"]),
        ("Redis", shown["REDIS_URL"]),
    ):
        out.print(Text.assemble((f"  {name:<10}", "bold"), str(value)))
    if machine.has_test_clock:
        moved = f"a test's; PUT {machine.url}/v1/clock moves it"
        out.print(Text.assemble(("  Clock     ", "bold"), moved))
    out.print("\n  Try it: in another terminal, a timer due in 3 seconds that calls back here\n")
    out.print(Text(curl, style="cyan"))
    out.print("\n  Ctrl-C stops everything.\n", style="dim")


def _greet_json(machine: Machine) -> None:
    settings, shown = machine.settings, machine.settings.shown()
    print_json(
        {
            "event": "up",
            "url": machine.url,
            "database_url": shown["DATABASE_URL"],
            "redis_url": shown["REDIS_URL"],
            "try": curl_to_try(machine.url, needs_key=settings.admin_key is not None),
        }
    )
