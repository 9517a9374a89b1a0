"""The role that reads the views, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from tests.fix_clock import DatabaseClock
from tests.fix_hands import task_at
from wheel_timer.database import Database
from wheel_timer.embedded import EmbeddedPostgres
from wheel_timer.store.migrate import migrate
from wheel_timer.store.reader import READABLE, ROLE
from wheel_timer.store.submit import submit


@pytest.fixture
def poor_owner(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """A role that owns what it makes, but may make no roles."""
    with psycopg.connect(postgres_server.url_of("postgres"), autocommit=True) as admin:
        admin.execute("CREATE ROLE poor_owner LOGIN PASSWORD 'x'")
        yield "poor_owner"
        admin.execute("DROP ROLE poor_owner")


async def test_it_reads_the_views_and_neither_payloads_nor_tables(
    db: Database, clock: DatabaseClock, database_url: str
) -> None:
    task = task_at(clock.now_ms(), biz_data=b"secret", callback=b'{"headers": {"x-key": "secret"}}')
    await submit(db, 0, [task])
    with psycopg.connect(database_url, autocommit=True) as reader:
        views = reader.execute("SELECT relname FROM pg_class WHERE relname ~ '_view$'").fetchall()
        assert {name for (name,) in views} - set(READABLE) == {"timer_payload_view"}
        reader.execute(f"SET ROLE {ROLE}".encode())
        for view in READABLE:
            rows = reader.execute(f"SELECT * FROM {view}".encode()).fetchall()
            assert "secret" not in str(rows)
        (row,) = reader.execute("SELECT task_id, status FROM timer_task_view").fetchall()
        assert row == (task.task_id, "pending")
        (row,) = reader.execute("SELECT biz_type, submitted FROM timer_ledger_view").fetchall()
        assert row == ("orders", 1)
        for hidden in ("timer_payload_view", "timer_task", "timer_task_00", "timer_biz"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                reader.execute(f"SELECT * FROM {hidden}".encode())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute("UPDATE timer_clock SET frozen = true")


def test_an_owner_who_may_make_no_roles_can_migrate(
    empty_database_url: str, poor_owner: str
) -> None:
    with psycopg.connect(empty_database_url, autocommit=True) as admin:
        admin.execute(
            sql.SQL("CREATE SCHEMA poor AUTHORIZATION {}").format(sql.Identifier(poor_owner))
        )
        admin.execute(sql.SQL("ALTER ROLE {} RENAME TO hidden").format(sql.Identifier(ROLE)))
        try:
            migrate(psycopg.conninfo.make_conninfo(empty_database_url, user=poor_owner), "poor", 1)
        finally:
            admin.execute(sql.SQL("ALTER ROLE hidden RENAME TO {}").format(sql.Identifier(ROLE)))
            admin.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(poor_owner)))


def test_a_copy_without_its_sequences_goes_on_behind_what_is_there(database_url: str) -> None:
    """As logical replication leaves it."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO timer_ledger_delta OVERRIDING SYSTEM VALUE VALUES (41, 0, 0, 1, 1, 'b')"
        )
        migrate(database_url, "public", 1)
        connection.execute("SELECT wheel_ledger_v1(ARRAY[1], ARRAY['b'], ARRAY[0], ARRAY[0])")
        rows = connection.execute("SELECT delta_id FROM timer_ledger_delta ORDER BY 1").fetchall()
    assert rows == [(41,), (42,)]
