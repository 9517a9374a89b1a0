"""The database itself, for a command that works on it without a server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from wheel_timer.cli.roles import database_url
from wheel_timer.settings import Settings

if TYPE_CHECKING:
    from wheel_timer.database import Database

LOCAL: Final = "local"  # who changes something at the database itself, in timer_change


@asynccontextmanager
async def opened(settings: Settings, command: str) -> AsyncIterator[Database]:
    """
    One connection, for as long as the block lasts. Raises Failure where there is no DATABASE_URL.
    """
    from wheel_timer.database import Database

    db = Database(
        database_url(settings),
        schema=settings.database_schema,
        pool_size=1,
        name=f"wheel-timer {command}",
    )
    try:
        yield db
    finally:
        await db.close()
