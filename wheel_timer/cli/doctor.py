"""`doctor`: are the servers and their settings what wheel-timer needs?"""

from __future__ import annotations

import asyncio
from typing import Final
from uuid import UUID

import typer
from rich.text import Text

from wheel_timer.cli.diagnosis import (
    Finding,
    Verdict,
    of_clock,
    of_nodes,
    of_postgres,
    of_redis,
)
from wheel_timer.cli.exits import DONE, NO
from wheel_timer.cli.opened import opened
from wheel_timer.cli.options import AsJson, Config, load_settings
from wheel_timer.cli.output import out, print_ndjson
from wheel_timer.errors import EventCenterUnavailable, SchemaMismatch
from wheel_timer.settings import Settings
from wheel_timer.version import __version__

MARKS: Final[dict[Verdict, tuple[str, str]]] = {
    "ok": ("✓ ", "green"),
    "warning": ("! ", "yellow"),
    "bad": ("✗ ", "bold red"),
}
MEASUREMENTS: Final = 3


def doctor(config: Config = None, as_json: AsJson = False) -> None:
    """
    Check the servers: versions, durability, clocks, vacuum, eviction.

    Looks at the Postgres and the Redis that the settings name, and changes nothing. Exits 1 where
    something is bad: tasks could be lost, late, or refused. A warning (!) is worth a look. Needs
    the setting DATABASE_URL.

    [bold]Examples[/]

    $ wheel-timer doctor --config wheel-timer.toml

    $ wheel-timer doctor --json | jq 'select(.verdict != "ok")'
    """
    findings = asyncio.run(_look(load_settings(config)))
    if as_json:
        print_ndjson(finding._asdict() for finding in findings)
    else:
        for finding in findings:
            out.print(Text.assemble(MARKS[finding.verdict], f"{finding.what:<28}", finding.told))
    raise typer.Exit(NO if any(finding.verdict == "bad" for finding in findings) else DONE)


async def _look(settings: Settings) -> list[Finding]:
    """Raises Failure without DATABASE_URL, DatabaseUnavailable."""
    from wheel_timer.clock import Clock
    from wheel_timer.store.migrate import check_schema
    from wheel_timer.store.node import nodes
    from wheel_timer.store.server import server_facts

    async with opened(settings, "doctor") as db:
        facts = await server_facts(db)
        findings = list(of_postgres(facts))
        if facts.is_replica:
            return findings
        try:
            await asyncio.to_thread(
                check_schema,
                settings.database_url,
                settings.database_schema,
                settings.shards,
                settings.instance,
            )
        except SchemaMismatch as error:
            return [*findings, Finding("schema", "bad", str(error))]
        findings.append(Finding("schema", "ok", f"INSTANCE {settings.instance!r}"))
        clock = Clock(db, jump_max_s=settings.clock_jump_max)
        await clock.measure()
        trips_s = []
        for _ in range(MEASUREMENTS):
            _, sent_s, came_s = await db.fetch_timed("cluster_id")
            trips_s.append(came_s - sent_s)
        findings += of_clock(clock.offset_ms, 1000 * min(trips_s), settings.clock_jump_max)
        findings += of_nodes(await nodes(db), __version__)
    return [*findings, *await _redis(settings)]


async def _redis(settings: Settings) -> list[Finding]:
    from wheel_timer.eventcenter import EventCenter

    if not settings.redis_url:
        return [Finding("redis", "warning", "not looked at: REDIS_URL is not set")]
    center = EventCenter(
        settings.redis_url,
        prefix=settings.redis_prefix,
        consumer="doctor",
        cluster_id=UUID(int=0),  # of no wheel: it only asks
    )
    try:
        return list(of_redis(await center.facts()))
    except EventCenterUnavailable as error:
        told = f"{error}: submits are taken, callbacks go straight from Postgres"
        return [Finding("redis", "bad", told)]
    finally:
        await center.close()
