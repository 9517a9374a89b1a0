"""`adopt`: take over a database that belongs to another INSTANCE, or that was restored."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from wheel_timer.cli.confirm import Yes, confirm
from wheel_timer.cli.exits import NO, Failure
from wheel_timer.cli.opened import LOCAL, opened
from wheel_timer.cli.options import AsJson, Config, load_settings
from wheel_timer.cli.output import err, print_json
from wheel_timer.settings import Settings


def adopt(
    paused: Annotated[
        bool, typer.Option("--paused", help="Put the brake on first: nothing is called.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Although processes seem to be alive on it.")
    ] = False,
    yes: Yes = False,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """
    Take over a database for this INSTANCE.

    For a copy that was made elsewhere, or a backup that was restored: what its tasks call may have
    been called already, or may not be yours to call. With --paused nothing is, until
    [bold]wheel-timer resume --all[/]; look at it first. Needs the setting DATABASE_URL; nothing
    else may be running on that database, and it is refused while something is. docs/backup.md goes
    through it step by step.

    [bold]Examples[/]

    $ WHEEL_TIMER_INSTANCE=staging wheel-timer adopt --paused

    $ wheel-timer adopt --yes
    """
    settings = load_settings(config)
    if not paused:
        confirm("As soon as brokers run, everything that is overdue in it is called. Go on?", yes)
    before = asyncio.run(_adopt(settings, paused=paused, force=force))
    if as_json:
        print_json({"instance": settings.instance, "before": before, "paused": paused})
        return
    err.print(f"the database belongs to {settings.instance!r} now (before: {before!r})")
    if paused:
        err.print("the brake is on; `wheel-timer resume --all` takes it off")


async def _adopt(settings: Settings, *, paused: bool, force: bool) -> str | None:
    from wheel_timer.store.instance import adopt as take_over
    from wheel_timer.store.node import nodes

    reason = f"adopted by {settings.instance}" if paused else None
    async with opened(settings, "adopt") as db:
        alive = [f"{one.role} {one.node}" for one in await nodes(db) if one.is_alive]
        if alive and not force:
            raise Failure(
                f"alive on this database: {', '.join(alive)}",
                NO,
                hint="stop them; one that was killed, or is only in a fresh copy, is forgotten"
                " after 50 s, or give --force",
            )
        return await take_over(db, settings.instance, reason=reason, actor=LOCAL)
