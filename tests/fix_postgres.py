"""
One embedded Postgres a session; each test gets a copy of a database that was migrated once.

The server's watchdog stops it when pytest dies, however it dies; the directory that stays behind
then is removed by the next session.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final

import psycopg
import pytest
import pytest_asyncio
from psycopg import sql

from wheel_timer.database import Database
from wheel_timer.embedded import DataDirectory, EmbeddedPostgres
from wheel_timer.errors import StartRefused
from wheel_timer.store.migrate import migrate

SCHEMA: Final = "public"
SHARDS: Final = 1
TEMPLATE: Final = "template_migrated"
PREFIX: Final = "wheel-timer-tests-"
# Nothing here outlives a power cut: a test that stops a server stops the process only.
FAST: Final = {"fsync": "off", "full_page_writes": "off", "wal_level": "minimal"}
NO_REPLICAS: Final = {"max_wal_senders": "0", "max_connections": "300"}

# Databases are made and dropped by the hundred: in memory that takes a tenth of the time, measured.
MEMORY: Final = Path("/dev/shm")
MEMORY_BYTES_MIN: Final = 4 * 1024**3

NewDatabase = Callable[[str | None], str]


@pytest.fixture(scope="session")
def server_directory() -> Iterator[DataDirectory]:
    """The locked data directory of this session's servers."""
    temporary = Path(tempfile.gettempdir())
    for left in (*temporary.glob(f"{PREFIX}*"), *MEMORY.glob(f"{PREFIX}*")):
        try:
            with DataDirectory(left):
                shutil.rmtree(left, ignore_errors=True)
        except StartRefused:
            continue  # another session is using it
    has_memory = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN
    yield from _directory(MEMORY if has_memory else temporary)


@pytest.fixture
def own_directory() -> Iterator[DataDirectory]:
    """
    A locked data directory for servers of one test's own.

    Not in tmp_path: each pytest that starts closes that to other accounts, and as root the servers
    run under one.
    """
    yield from _directory()


@pytest.fixture(scope="session")
def postgres_server(server_directory: DataDirectory) -> Iterator[EmbeddedPostgres]:
    """The session's Postgres. Not to be stopped: see `own_postgres`."""
    server = EmbeddedPostgres(server_directory, settings={**FAST, **NO_REPLICAS})
    server.start()
    try:
        server.wait_ready(60)
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def new_database(postgres_server: EmbeddedPostgres) -> Iterator[NewDatabase]:
    """`new_database(template)` -> URL of a new database; template None is an empty one."""
    numbers = itertools.count(1)
    with psycopg.connect(postgres_server.url_of("postgres"), autocommit=True) as admin:

        def create(template: str | None) -> str:
            name = f"test_{next(numbers)}"
            admin.execute(
                sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY FILE_COPY").format(
                    sql.Identifier(name), sql.Identifier(template or "template0")
                )
            )
            return postgres_server.url_of(name)

        yield create


@pytest.fixture(scope="session")
def template_database(postgres_server: EmbeddedPostgres) -> str:
    """The name of a migrated database that nobody is connected to."""
    with psycopg.connect(postgres_server.url_of("postgres"), autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(TEMPLATE)))
    migrate(postgres_server.url_of(TEMPLATE), SCHEMA, SHARDS)
    return TEMPLATE


@pytest.fixture
def empty_database_url(
    postgres_server: EmbeddedPostgres, new_database: NewDatabase
) -> Iterator[str]:
    """A database with nothing in it."""
    url = new_database(None)
    yield url
    _drop(postgres_server, url)


@pytest.fixture
def database_url(
    postgres_server: EmbeddedPostgres, new_database: NewDatabase, template_database: str
) -> Iterator[str]:
    """A migrated database with no task in it."""
    url = new_database(template_database)
    yield url
    _drop(postgres_server, url)


@pytest_asyncio.fixture
async def db(database_url: str) -> AsyncIterator[Database]:
    """The test's database, as the programs use it."""
    database = Database(database_url, schema=SCHEMA, pool_size=8, name="test")
    yield database
    await database.close()


@pytest.fixture
def own_postgres(own_directory: DataDirectory) -> Iterator[EmbeddedPostgres]:
    """A running server for one test to stop, kill and start again; fsync is on."""
    server = EmbeddedPostgres(own_directory)
    server.start()
    try:
        server.wait_ready(60)
        yield server
    finally:
        server.stop()


def _directory(parent: Path | None = None) -> Iterator[DataDirectory]:
    path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    with DataDirectory(path) as locked:
        yield locked
        # Locked still: another session that begins would remove it as well. That one may come to it
        # all the same, once the lock's own file is gone.
        shutil.rmtree(path, ignore_errors=True)


def _drop(server: EmbeddedPostgres, url: str) -> None:
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    with psycopg.connect(server.url_of("postgres"), autocommit=True) as admin:
        admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(str(name))))
