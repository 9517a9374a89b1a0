"""INSTANCE: a copy of a database calls nobody before somebody has taken it over."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

import pytest

from tests.acceptance.fix_up import wheel_timer
from tests.fix_sessions import Sessions
from wheel_timer.database import Database
from wheel_timer.errors import SchemaMismatch
from wheel_timer.store.instance import adopt
from wheel_timer.store.migrate import check_schema, migrate
from wheel_timer.store.node import beat, nodes

OWNER = "SELECT instance FROM timer_meta"
BRAKE = "SELECT reason FROM timer_brake"


async def test_a_database_is_its_first_migrators_until_it_is_taken_over(
    empty_database_url: str,
) -> None:
    migrate(empty_database_url, "public", 1, "production")
    # Another one may bring the schema up to date, and takes nothing over by it.
    migrate(empty_database_url, "public", 1, "staging")
    check_schema(empty_database_url, "public", 1, "production")
    with pytest.raises(SchemaMismatch, match=r"INSTANCE 'production'.*adopt --paused"):
        check_schema(empty_database_url, "public", 1, "staging")
    db = Database(empty_database_url, name="test")
    await beat(db, "broker-of-production", "broker", "1", None)
    taken = await adopt(db, "staging", reason="a look", actor="local")
    assert taken == "production"
    assert await nodes(db) == []
    check_schema(empty_database_url, "public", 1, "staging")
    with pytest.raises(SchemaMismatch, match="INSTANCE 'staging'"):
        check_schema(empty_database_url, "public", 1, "production")
    await db.close()


async def test_a_brake_that_is_on_keeps_its_reason(db: Database, sessions: Sessions) -> None:
    await adopt(db, "default", reason=None, actor="local")
    assert await sessions.value("SELECT count(*) FROM timer_brake") == 0
    await adopt(db, "default", reason="first", actor="local")
    await adopt(db, "default", reason="second", actor="local")
    assert await sessions.value(BRAKE) == "first"
    changes = "SELECT array_agg(action || ' ' || actor ORDER BY change_id) FROM timer_change"
    assert await sessions.value(changes) == [
        "wheel.adopt local",
        "wheel.pause local",
        "wheel.adopt local",
        "wheel.adopt local",
    ]


async def test_the_commands_say_so(
    database_url: str, redis_url: str, db: Database, sessions: Sessions
) -> None:
    def run(*command: str) -> subprocess.CompletedProcess[str]:
        environ: Mapping[str, str] = {
            "WHEEL_TIMER_DATABASE_URL": database_url,
            "WHEEL_TIMER_REDIS_URL": redis_url,
            "WHEEL_TIMER_INSTANCE": "staging",
        }
        return wheel_timer(*command, environ=environ)

    refused = run("daemon", "--ops-port", "0")
    assert refused.returncode == 1
    assert refused.stderr.startswith("wheel-timer: this database belongs to INSTANCE 'default'")
    assert len(refused.stderr.splitlines()) == 1
    assert run("adopt").returncode == 2
    assert await sessions.value(OWNER) == "default"
    await beat(db, "web-1", "broker", "1", None)
    busy = run("adopt", "--paused")
    assert busy.returncode == 1
    assert "alive on this database: broker web-1" in busy.stderr
    assert "--force" in busy.stderr
    assert await sessions.value(OWNER) == "default"
    adopted = run("adopt", "--paused", "--force", "--json")
    assert adopted.returncode == 0, adopted.stderr
    assert adopted.stdout == '{"instance":"staging","before":"default","paused":true}\n'
    assert await sessions.row(f"{OWNER}") == ("staging",)
    assert await sessions.value(BRAKE) == "adopted by staging"
