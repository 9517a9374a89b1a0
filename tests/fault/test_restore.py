"""
docs/backup.md, step by step: a database brought back to an earlier moment, a newer Redis; and a
copy for somewhere else. Every command of wheel-timer on that page is run here as it stands there.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import httpx
import psycopg
import pytest

from tests.acceptance.fix_up import beside
from tests.fault.harness import NewCluster
from tests.fix_audits import Auditor
from tests.fix_endpoint import Endpoint
from tests.fix_hands import task_at
from tests.fix_postgres import PREFIX
from tests.fix_sessions import until
from wheel_timer.cli.machine import free_ports
from wheel_timer.database import Database
from wheel_timer.embedded import DataDirectory, EmbeddedPostgres, EmbeddedRedis
from wheel_timer.errors import DatabaseUnavailable
from wheel_timer.store.audit import run_audits
from wheel_timer.store.migrate import check_schema, migrate
from wheel_timer.store.submit import submit
from wheel_timer.store.task import lookup

AHEAD_MS = 3_000
MAX_AGE_MS = 1_500
PAGE: Final = (Path(__file__).parents[2] / "docs" / "backup.md").read_text()
ADOPT: Final = "wheel-timer adopt --paused"
AUDIT: Final = "wheel-timer audit"
CANCEL: Final = (
    "wheel-timer ops start cancel --biz-type orders"
    " --from 2026-11-21T11:00:00Z --to 2026-11-21T12:00:00Z"
)
RESUME: Final = "wheel-timer resume --all"
MIGRATE: Final = "wheel-timer migrate"


class Archived:
    """A Postgres that archives its WAL, and what is restored from its backup."""

    def __init__(self, directory: DataDirectory) -> None:
        self._archive = directory.path / "archive"
        self._archive.mkdir()
        self._archive.chmod(0o777)
        self.server = EmbeddedPostgres(
            directory,
            settings={
                "wal_level": "replica",
                "archive_mode": "on",
                "archive_command": f"cp %p {self._archive}/%f",
            },
        )

    def back_up(self, into: EmbeddedPostgres) -> None:
        """A base backup."""
        into.own_data_directory(into.data)
        host = self.server.url.partition("?host=")[2].replace("%2F", "/")
        program = str(self.server.program("pg_basebackup"))
        command = [program, "-h", host, "-U", "postgres", "-D", str(into.data), "-c", "fast"]
        done = self.server.child(command, subprocess.PIPE)
        output, _ = done.communicate(timeout=60)
        assert done.returncode == 0, output

    def archive_all(self) -> None:
        """Return when all that was written by now is in the archive."""
        with psycopg.connect(self.server.url, autocommit=True) as connection:
            row = connection.execute("SELECT pg_walfile_name(pg_switch_wal())").fetchone()
        assert row is not None
        deadline_s = time.monotonic() + 20
        while not (self._archive / row[0]).exists():
            assert time.monotonic() < deadline_s
            time.sleep(0.05)

    def recovery(self, moment: str) -> dict[str, str]:
        """The settings that bring a backup to that moment, and hold it there."""
        return {
            "restore_command": f"cp {self._archive}/%f %p",
            "recovery_target_time": moment,
            "recovery_target_action": "pause",
        }


def test_these_are_the_commands_of_the_page() -> None:
    found = re.findall(r"(?:^ *|`)(wheel-timer [a-z][^`\n]*)", PAGE, re.MULTILINE)
    assert set(found) == {ADOPT, AUDIT, CANCEL, RESUME, MIGRATE}


async def run(
    command: str, *more: str, answers: int = 0, environ: Mapping[str, str] | None = None
) -> str:
    """A command of the page, with what a script needs beside; what it printed."""
    done = await beside(*command.split()[1:], *more, environ=environ)
    assert done.returncode == answers, (command, done.stdout, done.stderr)
    return done.stdout


@pytest.fixture
def other_directory() -> Iterator[DataDirectory]:
    with tempfile.TemporaryDirectory(prefix=PREFIX) as path, DataDirectory(Path(path)) as locked:
        yield locked


@pytest.mark.slow
@pytest.mark.timing
async def test_a_restored_database_loses_nothing_and_calls_nobody_before_it_is_released(
    own_directory: DataDirectory,
    other_directory: DataDirectory,
    own_redis: EmbeddedRedis,
    new_cluster: NewCluster,
    endpoint: Endpoint,
) -> None:
    archived = Archived(own_directory)
    archived.server.start()
    restored = EmbeddedPostgres(other_directory)
    try:
        await asyncio.to_thread(archived.server.wait_ready, 60)
        await asyncio.to_thread(migrate, archived.server.url, "public", 1)
        cluster = await new_cluster(archived.server.url, own_redis.url, "wt")
        processes = [await cluster.daemon(), await cluster.broker()]
        await processes[1].comes_to("clock.measured", 2)
        done = await cluster.submit_at(*[0] * 10)
        await endpoint.wait_for(10)
        await asyncio.to_thread(archived.back_up, restored)

        # Accepted before the moment that is restored, called after it.
        repeated = await cluster.submit_at(*[AHEAD_MS] * 20)
        now_ms = time.time_ns() // 1_000_000
        aged = [task_at(now_ms + AHEAD_MS, max_age_ms=MAX_AGE_MS) for _ in range(5)]
        await cluster.submit(aged)
        far = await cluster.submit_at(*[120_000] * 5)
        # By themselves in their second, so that a window of time tells them from the others.
        apart_ms = (now_ms + 2 * AHEAD_MS) // 1_000 * 1_000
        unwanted = [task_at(apart_ms) for _ in range(5)]
        await cluster.submit(unwanted)
        with psycopg.connect(cluster.database_url, autocommit=True) as connection:
            row = connection.execute("SELECT CAST(clock_timestamp() AS text)").fetchone()
        assert row is not None
        gone = await cluster.submit_at(100)
        await endpoint.wait_for(41, timeout_s=20)
        for process in processes:
            process.stop()
            assert await process.gone() == 0
        await asyncio.to_thread(archived.archive_all)
        await asyncio.to_thread(archived.server.stop)

        restored.settings.update(archived.recovery(row[0]))
        (restored.data / "recovery.signal").touch()
        restored.start()
        await asyncio.to_thread(restored.wait_ready, 60)
        db = Database(restored.url, name="restorer")
        await until(lambda: _is_paused(db), 30)
        with pytest.raises(DatabaseUnavailable, match="is a replica"):
            check_schema(restored.url, "public", 1)
        with pytest.raises(DatabaseUnavailable, match="want the primary"):
            await run_audits(db)
        await db.read("SELECT pg_wal_replay_resume()", timeout_s=5)
        await until(lambda: _is_primary(db), 30)

        # The brake was off at the moment that is restored: it is put on before anything runs. That
        # moment is but seconds ago, so the processes of then seem to be alive.
        environ = {"WHEEL_TIMER_DATABASE_URL": restored.url}
        await run(ADOPT, answers=1, environ=environ)
        await run(ADOPT, "--force", environ=environ)
        audits = [
            json.loads(line) for line in (await run(AUDIT, "--json", environ=environ)).splitlines()
        ]
        assert {one["name"] for one in audits if not one["holds"]} <= {"overdue"}
        due = [("orders", len(repeated) + len(aged) + len(unwanted))]
        await until(lambda: _is_due(db, due), 20)
        again = await new_cluster(restored.url, own_redis.url, "wt")
        (port,) = free_ports(1)
        url = f"http://127.0.0.1:{port}"
        daemon = await again.daemon()
        await again.broker(port=port, role="both")
        await daemon.comes_to("leader.elected")
        await until(lambda: _is_held(db, due[0][1]), 20)
        assert len(endpoint.received) == 41
        cancel = re.sub(r"--from \S+", f"--from {_shown(apart_ms)}", CANCEL)
        cancel = re.sub(r"--to \S+", f"--to {_shown(apart_ms + 1_000)}", cancel)
        await run(cancel, "--yes", "--url", url)
        await until(lambda: _is_cancelled(db, len(unwanted)), 20)
        await run(RESUME, "--url", url)
        await endpoint.wait_for(41 + len(repeated), timeout_s=15)
        await until(lambda: _is_settled(db, len(far)), 20)

        calls = Counter(call.task_id for call in endpoint.received)
        assert {calls[str(task_id)] for task_id in repeated} == {2}
        assert {calls[str(task_id)] for task_id in (*done, *gone)} == {1}
        assert {calls[str(task.task_id)] for task in (*aged, *unwanted)} == {1}
        assert {calls[str(task_id)] for task_id in far} == {0}
        _, rows = await db.read(
            "SELECT last_error, count(*) FROM timer_task WHERE status = 2 GROUP BY 1", timeout_s=5
        )
        assert rows == [("expired", len(aged))]
        async with httpx.AsyncClient() as client:
            text = (await client.get(f"{url}/metrics")).text
        counted = [line for line in text.splitlines() if line.startswith("wheel_timer_repeats")]
        assert counted == [f'wheel_timer_repeats_total{{reason="restored"}} {len(repeated)}.0']
        await again.audits_hold()
        await db.close()
    finally:
        restored.stop()
        archived.server.stop()


@pytest.mark.slow
async def test_a_dump_restored_on_a_server_that_lacks_the_reader_is_whole_after_migrate(
    database_url: str, db: Database, own_postgres: EmbeddedPostgres, tmp_path: Path
) -> None:
    dump, options = str(tmp_path / "wheel.dump"), ("--no-owner", "--no-privileges")
    tasks = [task_at(time.time_ns() // 1_000_000 + 86_400_000) for _ in range(3)]
    await submit(db, 0, tasks)
    for command in (
        ("pg_dump", "-Fc", "-f", dump, database_url),
        ("pg_restore", *options, "--exit-on-error", "-d", own_postgres.url, dump),
    ):
        program = str(own_postgres.program(command[0]))
        await asyncio.to_thread(subprocess.run, [program, *command[1:]], check=True, timeout=60)
    environ = {
        "WHEEL_TIMER_DATABASE_URL": own_postgres.url,
        "WHEEL_TIMER_INSTANCE": "staging",
    }
    await run(MIGRATE, environ=environ)
    await run(ADOPT, environ=environ)
    copy = Database(own_postgres.url, name="copy")
    reads = "SELECT has_table_privilege('wheel_timer_reader', 'timer_task_view', 'SELECT')"
    assert await _one(copy, reads) is True
    assert set(await lookup(copy, [task.task_id for task in tasks])) == {t.task_id for t in tasks}
    assert await _one(copy, "SELECT instance FROM timer_meta") == "staging"
    assert await _one(copy, "SELECT count(*) FROM timer_brake") == 1
    await submit(copy, 0, [task_at(tasks[0].start_time_ms)])
    await copy.close()
    auditor = Auditor(own_postgres.url)
    await auditor.hold()
    await auditor.close()


async def _one(db: Database, query: str) -> object:
    _, rows = await db.read(query, timeout_s=10)
    return rows[0][0]


async def _is_paused(db: Database) -> bool:
    try:
        return await _one(db, "SELECT pg_get_wal_replay_pause_state()") == "paused"
    except DatabaseUnavailable:
        return False


async def _is_primary(db: Database) -> bool:
    return await _one(db, "SELECT pg_is_in_recovery()") is False


async def _is_held(db: Database, count: int) -> bool:
    held = "SELECT count(*) FROM timer_requeue WHERE reason = 'held'"
    return await _one(db, held) == count


async def _is_settled(db: Database, but: int) -> bool:
    return await _one(db, "SELECT count(*) FROM timer_task WHERE status = 0") == but


async def _is_due(db: Database, expected: list[tuple[str, int]]) -> bool:
    """By the query of the page."""
    query = PAGE.partition("```sql")[2].partition("```")[0].strip().rstrip(";")
    _, rows = await db.read(f"SELECT biz_type, count FROM ({query}) AS q", timeout_s=10)
    return rows == expected


async def _is_cancelled(db: Database, count: int) -> bool:
    return await _one(db, "SELECT count(*) FROM timer_task WHERE status = 3") == count


def _shown(moment_ms: int) -> str:
    return f"{datetime.fromtimestamp(moment_ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
