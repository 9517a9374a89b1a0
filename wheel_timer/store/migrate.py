"""
The schema: numbered SQL files, applied once each, in order, forward only.

sql/migrations/NNNN_name.sql. The first line of each says whether code of the release before still
runs on the new schema (`-- breaking: no`). What was applied stands in timer_migration with its
checksum; a file that was changed afterwards stops the run. One advisory lock lets any number of
machines start this at once.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg
from psycopg import sql

from wheel_timer.database import conninfo, translate
from wheel_timer.errors import DatabaseUnavailable, SchemaMismatch, StartRefused
from wheel_timer.queries import sql_directory
from wheel_timer.store.reader import let_read

LOCK_WAIT_S: Final = 60.0
LOCK_POLL_S: Final = 0.1


class Migration(NamedTuple):
    """One file. locks: what its header says it locks, and for how long."""

    number: int
    name: str
    text: str
    checksum: str
    breaking: bool
    locks: str


def migrations(directory: Path | None = None) -> list[Migration]:
    """All migration files, in order. Raises SchemaMismatch where one is misnamed or unheaded."""
    found: list[Migration] = []
    for path in sorted((directory or sql_directory() / "migrations").glob("*.sql")):
        text = path.read_text(encoding="utf-8")
        head = text.splitlines()[:3]
        number = path.name[:4]
        if not number.isdigit() or head[0] not in ("-- breaking: no", "-- breaking: yes"):
            raise SchemaMismatch(f"{path.name}: no number or no '-- breaking:' line")
        locks = head[1].removeprefix("-- Locks:").strip()
        checksum = hashlib.sha256(text.encode()).hexdigest()
        found.append(
            Migration(int(number), path.stem, text, checksum, head[0].endswith("yes"), locks)
        )
    if len({m.number for m in found}) != len(found):
        raise SchemaMismatch("two migrations have the same number")
    return found


def _connect(url: str, schema: str) -> psycopg.Connection[Any]:
    return psycopg.connect(conninfo(url, schema, "wheel-timer migrate"), autocommit=True)


def _applied(connection: psycopg.Connection[Any]) -> dict[int, tuple[str, str]]:
    """number -> (name, checksum) of what this database has; empty where it has nothing."""
    if connection.execute("SELECT to_regclass('timer_migration')").fetchone() == (None,):
        return {}
    rows = connection.execute("SELECT number, name, checksum FROM timer_migration").fetchall()
    return {number: (name, checksum) for number, name, checksum in rows}


def _pending(connection: psycopg.Connection[Any]) -> list[Migration]:
    applied = _applied(connection)
    pending: list[Migration] = []
    for migration in migrations():
        if migration.number not in applied:
            pending.append(migration)
        elif applied[migration.number][1] != migration.checksum:
            raise SchemaMismatch(
                f"{migration.name} was changed after it was applied to this database"
            )
    return pending


def pending(url: str, schema: str) -> list[Migration]:
    """What `migrate` would apply. Raises DatabaseUnavailable, SchemaMismatch."""
    try:
        with _connect(url, schema) as connection:
            return _pending(connection)
    except psycopg.Error as error:
        raise translate(error) from error


def migrate(url: str, schema: str, shards: int, instance: str = "default") -> list[str]:
    """
    Bring the database up to this code and give it `shards` shards. Returns the names applied.

    instance: whose it is from now on, where it is nobody's yet; `adopt` takes one over. Raises
    StartRefused where the database has more shards than asked for, SchemaMismatch where a
    file was changed after it was applied, DatabaseUnavailable.
    """
    try:
        with _connect(url, schema) as connection:
            _lock(connection, schema)
            if not _schema_exists(connection, schema):
                connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(schema)))
            names = [_apply(connection, migration) for migration in _pending(connection)]
            _set_up_shards(connection, shards)
            _set_up_ledger(connection)
            let_read(connection, schema)
            connection.execute(
                "UPDATE timer_meta SET instance = %s WHERE instance IS NULL", [instance]
            )
            return names
    except psycopg.Error as error:
        raise translate(error) from error


def _schema_exists(connection: psycopg.Connection[Any], schema: str) -> bool:
    found = connection.execute("SELECT to_regnamespace(%s) IS NOT NULL", [f'"{schema}"']).fetchone()
    return found == (True,)


def _lock(connection: psycopg.Connection[Any], schema: str) -> None:
    """One migrator at a time; held until the connection closes. Polls: a waiting session would
    hold a snapshot."""
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        row = connection.execute(
            "SELECT pg_try_advisory_lock(hashtextextended('wheel-timer migrate ' || %s, 0))",
            [schema],
        ).fetchone()
        if row == (True,):
            return
        if time.monotonic() > deadline:
            raise StartRefused("another migration has been running for a minute")
        time.sleep(LOCK_POLL_S)


def _apply(connection: psycopg.Connection[Any], migration: Migration) -> str:
    with connection.transaction():
        connection.execute(
            "CREATE TABLE IF NOT EXISTS timer_migration ("
            " number integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,"
            " breaking boolean NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
        )
        connection.execute(migration.text.encode())
        connection.execute(
            "INSERT INTO timer_migration (number, name, checksum, breaking)"
            " VALUES (%s, %s, %s, %s)",
            [migration.number, migration.name, migration.checksum, migration.breaking],
        )
    return migration.name


def _set_up_shards(connection: psycopg.Connection[Any], shards: int) -> None:
    """A pointer row and a closed_to sequence for each shard that has none; made once, only here."""
    with connection.transaction():
        connection.execute(
            "INSERT INTO timer_meta (shards) VALUES (%s) ON CONFLICT DO NOTHING", [shards]
        )
        row = connection.execute("SELECT shards FROM timer_meta FOR UPDATE").fetchone()
        assert row is not None
        if row[0] > shards:
            raise StartRefused(
                f"this database has {row[0]} shards; SHARDS={shards} would leave tasks unread"
            )
        connection.execute("UPDATE timer_meta SET shards = %s WHERE shards < %s", [shards, shards])
        for shard in range(shards):
            _set_up_shard(connection, shard)


def _set_up_shard(connection: psycopg.Connection[Any], shard: int) -> None:
    """What of a shard is missing; logical replication, for one, does not copy the sequence."""
    name = f"timer_closed_to_{shard}"
    connection.execute(
        sql.SQL("CREATE SEQUENCE IF NOT EXISTS {} MINVALUE 0").format(sql.Identifier(name))
    )
    connection.execute(
        'INSERT INTO timer_pointer (shard, "current_time", sweep_time, reap_time)'
        " SELECT %s, n, n, n FROM (SELECT wheel_now_ms()) AS c(n)"
        " ON CONFLICT (shard) DO NOTHING",
        [shard],
    )
    connection.execute(
        'SELECT setval(%(name)s::regclass, greatest(p."current_time", wheel_now_ms()))'
        " FROM timer_pointer AS p"
        " WHERE p.shard = %(shard)s AND pg_sequence_last_value(%(name)s::regclass) IS NULL",
        {"name": name, "shard": shard},
    )


def _set_up_ledger(connection: psycopg.Connection[Any]) -> None:
    """Ids go on behind those that are there, which logical replication does not see to either."""
    connection.execute(
        "SELECT setval(q.name, h.highest)"
        " FROM (SELECT 'timer_ledger_delta_delta_id_seq'::regclass AS name) AS q,"
        " (SELECT greatest((SELECT max(delta_id) FROM timer_ledger_delta), folded_to) AS highest"
        " FROM timer_ledger_mark) AS h"
        " WHERE h.highest > coalesce(pg_sequence_last_value(q.name), 0)"
    )


def check_schema(url: str, schema: str, shards: int, instance: str = "default") -> None:
    """
    Whether this code may run on that database; every process calls it at start.

    Raises SchemaMismatch: not migrated, older, newer with a breaking change, other SHARDS, or
    another INSTANCE's; DatabaseUnavailable, also where the server only follows another one.
    """
    try:
        with _connect(url, schema) as connection:
            if connection.execute("SELECT pg_is_in_recovery()").fetchone() == (True,):
                raise DatabaseUnavailable(
                    "this Postgres is a replica: name the primary in DATABASE_URL"
                )
            missing = _pending(connection)
            if missing:
                raise SchemaMismatch(
                    f"the database lacks {missing[0].name}: run wheel-timer migrate first"
                )
            known = migrations()[-1].number
            row = connection.execute(
                "SELECT name FROM timer_migration WHERE number > %s AND breaking LIMIT 1", [known]
            ).fetchone()
            if row is not None:
                raise SchemaMismatch(f"the database has {row[0]}, which this version cannot run on")
            row = connection.execute("SELECT shards, instance FROM timer_meta").fetchone()
            stored, owner = row or (0, None)
            if stored != shards:
                raise SchemaMismatch(
                    f"SHARDS is {shards} here and {stored} in the database (set by migrate)"
                )
            if owner not in (None, instance):
                raise SchemaMismatch(
                    f"this database belongs to INSTANCE {owner!r}, and INSTANCE is {instance!r} "
                    "here: `wheel-timer adopt --paused` takes it over"
                )
    except psycopg.Error as error:
        raise translate(error) from error
