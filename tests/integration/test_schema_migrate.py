"""Migrations: from several machines at once, again, changed, and by the wrong version."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from wheel_timer.errors import SchemaMismatch, StartRefused
from wheel_timer.queries import sql_directory
from wheel_timer.store import migrate as module
from wheel_timer.store.migrate import check_schema, migrate, migrations, pending

NAMES = [migration.name for migration in migrations()]
LAST = migrations()[-1].number


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return connection.execute(query.encode()).fetchall()


def run(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


def test_several_machines_at_once_migrate_once(empty_database_url: str) -> None:
    with ThreadPoolExecutor(5) as machines:
        answers = list(machines.map(lambda _: migrate(empty_database_url, "public", 2), range(5)))
    assert sorted(answers) == [[]] * 4 + [NAMES]
    assert rows(empty_database_url, "SELECT name FROM timer_migration ORDER BY number") == [
        (name,) for name in NAMES
    ]
    assert rows(empty_database_url, "SELECT shard FROM timer_pointer ORDER BY shard") == [
        (0,),
        (1,),
    ]


def test_a_migrated_database_is_left_alone(database_url: str) -> None:
    before = rows(database_url, "SELECT * FROM timer_pointer")
    assert pending(database_url, "public") == []
    assert migrate(database_url, "public", 1) == []
    assert rows(database_url, "SELECT * FROM timer_pointer") == before
    check_schema(database_url, "public", 1)


def test_two_schemas_of_one_database_are_two_wheels(empty_database_url: str) -> None:
    for schema in ("one", "two"):
        migrate(empty_database_url, schema, 1)
        check_schema(empty_database_url, schema, 1)
    clusters = rows(
        empty_database_url,
        "SELECT cluster_id FROM one.timer_meta UNION SELECT cluster_id FROM two.timer_meta",
    )
    assert len(clusters) == 2
    # Their fences, too: the lock's class is the oid of each schema's own table.
    with psycopg.connect(empty_database_url) as connection:
        connection.execute("SET search_path TO one")
        connection.execute("SELECT wheel_fence_v1(CAST(0 AS smallint))")
        other = "SET search_path TO two; SELECT wheel_barrier_try_v1(CAST(0 AS smallint))"
        with psycopg.connect(empty_database_url) as second:
            cursor = second.execute(other)
            cursor.nextset()
            assert cursor.fetchone() == (True,)


def test_a_migration_changed_after_it_was_applied_stops_the_run(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "sql"
    shutil.copytree(sql_directory(), copy)
    changed = copy / "migrations" / f"{NAMES[-1]}.sql"
    changed.write_text(changed.read_text() + "-- one more thought\n")
    monkeypatch.setattr(module, "sql_directory", lambda: copy)
    for attempt in (migrate, check_schema):
        with pytest.raises(SchemaMismatch, match="was changed after it was applied"):
            attempt(database_url, "public", 1)


def test_a_migration_that_fails_leaves_nothing_of_itself(
    empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "sql"
    shutil.copytree(sql_directory(), copy)
    number = LAST + 1
    broken = copy / "migrations" / f"{number:04}_broken.sql"
    broken.write_text("-- breaking: no\n-- Locks: none.\nCREATE TABLE half (); SELECT 1 / 0;\n")
    monkeypatch.setattr(module, "sql_directory", lambda: copy)
    with pytest.raises(Exception, match="division by zero"):
        migrate(empty_database_url, "public", 1)
    assert rows(empty_database_url, "SELECT max(number) FROM timer_migration") == [(LAST,)]
    assert rows(empty_database_url, "SELECT to_regclass('half')") == [(None,)]
    # Mended, the next run goes on from there.
    broken.write_text("-- breaking: no\n-- Locks: none.\nCREATE TABLE half ();\n")
    assert migrate(empty_database_url, "public", 1) == [f"{number:04}_broken"]


def test_two_migrations_of_one_number_stop_the_run(
    empty_database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two branches that took the same number: which of them came first nobody could say."""
    copy = tmp_path / "sql"
    shutil.copytree(sql_directory(), copy)
    (copy / "migrations" / f"{LAST:04}_twin.sql").write_text("-- breaking: no\n-- Locks: none.\n")
    monkeypatch.setattr(module, "sql_directory", lambda: copy)
    with pytest.raises(SchemaMismatch, match="the same number"):
        migrate(empty_database_url, "public", 1)


def test_who_does_not_fit_the_database_does_not_start(
    empty_database_url: str, database_url: str
) -> None:
    with pytest.raises(SchemaMismatch, match="run wheel-timer migrate"):
        check_schema(empty_database_url, "public", 1)
    with pytest.raises(SchemaMismatch, match="SHARDS is 2 here and 1"):
        check_schema(database_url, "public", 2)
    later = "INSERT INTO timer_migration (number, name, checksum, breaking) VALUES "
    run(database_url, later + "(900, '0900_later', 'x', false)")
    check_schema(database_url, "public", 1)
    run(database_url, later + "(901, '0901_other_world', 'x', true)")
    with pytest.raises(SchemaMismatch, match="0901_other_world"):
        check_schema(database_url, "public", 1)


def test_shards_are_added_and_never_taken_away(database_url: str) -> None:
    migrate(database_url, "public", 3)
    assert (
        rows(database_url, "SELECT wheel_closed_to_v1(shard) > 0 FROM timer_pointer")
        == [(True,)] * 3
    )
    with pytest.raises(StartRefused, match="would leave tasks unread"):
        migrate(database_url, "public", 2)


def test_a_copy_without_its_sequences_values_is_made_whole(database_url: str) -> None:
    """What logical replication leaves behind: rows, and a sequence that was never set."""
    run(database_url, "SELECT setval('timer_closed_to_0', 1, false)")
    migrate(database_url, "public", 1)
    ((is_ahead,),) = rows(
        database_url, 'SELECT wheel_closed_to_v1(shard) >= "current_time" FROM timer_pointer'
    )
    assert is_ahead
