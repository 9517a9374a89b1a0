"""
The role for people and reports: `wheel_timer_reader` reads the views, but no payload, and no table.

A role belongs to the whole server, so a migration that may not make one leaves that to whoever may
(CREATE ROLE wheel_timer_reader NOLOGIN, then migrate again). Give it to a login:
GRANT wheel_timer_reader TO alice.
"""

from __future__ import annotations

from typing import Any, Final, LiteralString

import psycopg
from psycopg import sql

ROLE: Final = "wheel_timer_reader"
# timer_clock: what "now" is in a view depends on it, in a database with a test's clock.
READABLE: Final = (
    *("timer_task_view", "timer_attempt_view", "timer_change_view", "timer_schedule_view"),
    *("timer_ledger_view", "timer_ledger_day_view", "timer_clock"),
)
_MAKE: Final[LiteralString] = """
DO $$
BEGIN
    IF to_regrole('wheel_timer_reader') IS NULL THEN
        CREATE ROLE wheel_timer_reader NOLOGIN;
    END IF;
EXCEPTION
    -- Somebody else has just made it; or we may not.
    WHEN duplicate_object OR unique_violation OR insufficient_privilege THEN NULL;
END
$$
"""


def let_read(connection: psycopg.Connection[Any], schema: str) -> bool:
    """Make the role and let it read. False where it is not there and may not be made."""
    connection.execute(_MAKE)
    if connection.execute("SELECT to_regrole(%s)", [ROLE]).fetchone() == (None,):
        return False
    role, where = sql.Identifier(ROLE), sql.Identifier(schema)
    connection.execute(sql.SQL("GRANT USAGE ON SCHEMA {} TO {}").format(where, role))
    unread = connection.execute(
        "SELECT v FROM unnest(%s::text[]) AS v WHERE NOT has_table_privilege(%s, v, 'SELECT')",
        [list(READABLE), ROLE],
    )
    for (view,) in unread.fetchall():
        name = sql.Identifier(schema, view)
        connection.execute(sql.SQL("GRANT SELECT ON {} TO {}").format(name, role))
    return True
