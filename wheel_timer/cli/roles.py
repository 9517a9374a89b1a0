"""One role alone, on servers of your own: `migrate`, `broker`, `daemon`."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from wheel_timer import log
from wheel_timer.cli.exits import DONE, NO, USAGE, Failure
from wheel_timer.cli.options import AsJson, Config, load_settings
from wheel_timer.cli.output import out, print_ndjson
from wheel_timer.settings import Settings


class Role(StrEnum):
    """What a broker does: take in tasks, or call back. Default: both."""

    API = "api"
    NOTIFIER = "notifier"


def migrate(
    plan: Annotated[
        bool, typer.Option("--plan", help="Only show what would be applied, and what it locks.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Change nothing; exit 1 if something is pending.")
    ] = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Bring the database's schema up to this version.

    Safe to repeat, and from several machines at once. The order of an upgrade: migrate, daemons,
    brokers. Needs the setting DATABASE_URL.

    [bold]Examples[/]

    $ wheel-timer migrate --plan

    $ WHEEL_TIMER_DATABASE_URL=postgresql://app@db/app wheel-timer migrate
    """
    from wheel_timer.store.migrate import migrate as apply
    from wheel_timer.store.migrate import pending

    settings = load_settings(config)
    url = settings.database_direct_url or database_url(settings)
    if plan or check:
        rows = pending(url, settings.database_schema)
        if as_json:
            print_ndjson({"name": row.name, "locks": row.locks} for row in rows)
        else:
            for row in rows:
                out.print(Text.assemble((row.name, "bold"), f"  {row.locks}"))
            if not rows:
                out.print("nothing is pending")
        raise typer.Exit(NO if check and rows else DONE)
    names = apply(url, settings.database_schema, settings.shards, settings.instance)
    if as_json:
        print_ndjson({"name": name} for name in names)
    else:
        for name in names:
            out.print(Text.assemble(("applied  ", "green"), name))
        if not names:
            out.print(f"the schema is up to date (SHARDS {settings.shards})")


def broker(
    host: Annotated[str, typer.Option("--host", help="The address of the API.")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65_535, help="Its port.")] = 8080,
    workers: Annotated[
        int, typer.Option("--workers", min=1, max=64, metavar="N", help="Processes that share it.")
    ] = 1,
    role: Annotated[
        Role | None, typer.Option("--role", help="One half of it only.", show_default="both")
    ] = None,
    config: Config = None,
) -> None:
    """
    Run a broker: it takes in tasks and makes the callbacks.

    Run as many as you like, on as many machines. A broker needs the settings DATABASE_URL and
    REDIS_URL, a migrated database, and a daemon somewhere. Serves /healthz, /readyz and /metrics
    on its port, summed over its workers. SIGTERM drains.

    [bold]Examples[/]

    $ wheel-timer broker --config wheel-timer.toml --workers 4

    $ wheel-timer broker --role api --host 0.0.0.0 --port 80
    """
    settings = _server_settings(config)
    arguments = [] if role is None else ["--role", role.value]
    if workers == 1:
        _become("broker", ["--host", host, "--port", str(port), *arguments], settings)
    from wheel_timer.cli.interrupts import run_stoppable
    from wheel_timer.cli.workers import Workers

    log.set_up(settings.log_level, settings.log_format)

    async def run() -> int:
        parent = Workers(settings, host, port, workers, arguments)
        return await run_stoppable(parent, parent.run)

    raise typer.Exit(asyncio.run(run()))


def daemon(
    ops_port: Annotated[
        int,
        typer.Option("--ops-port", min=0, max=65_535, help="For /healthz, /readyz and /metrics."),
    ] = 8081,
    config: Config = None,
) -> None:
    """
    Run a daemon: it moves the hands of the wheel.

    One leads and the others wait to take over, within a second. A daemon needs the settings
    DATABASE_URL and REDIS_URL, and a migrated database.

    [bold]Examples[/]

    $ wheel-timer daemon --config wheel-timer.toml

    $ wheel-timer daemon --ops-port 9081
    """
    _become("daemon", ["--ops-port", str(ops_port)], _server_settings(config))


def database_url(settings: Settings) -> str:
    """The setting, for a command that cannot go without it."""
    if not settings.database_url:
        raise Failure(
            "this command needs a database",
            USAGE,
            hint="set WHEEL_TIMER_DATABASE_URL, or DATABASE_URL in the file of --config",
        )
    return settings.database_url


def _server_settings(config: Path | None) -> Settings:
    """The settings, where the server is installed and they name a database and a Redis."""
    for module in ("broker", "daemon"):
        if importlib.util.find_spec(module) is None:
            raise ModuleNotFoundError(module, name=module)
    settings = load_settings(config)
    database_url(settings)
    if not settings.redis_url:
        raise Failure(
            "this command needs a Redis",
            USAGE,
            hint="set WHEEL_TIMER_REDIS_URL, or REDIS_URL in the file of --config",
        )
    return settings


def _become(module: str, arguments: list[str], settings: Settings) -> None:
    """Replace this process: signals, exit code and pid are the program's own."""

    command = [sys.executable, "-P", "-m", module, *arguments]
    os.execve(sys.executable, command, settings.child_environment(os.environ))
