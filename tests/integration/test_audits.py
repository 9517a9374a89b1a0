"""The audits: each finds what was broken by hand and nothing else; what is safe is put right."""

from __future__ import annotations

import asyncio
import json
import subprocess
from typing import LiteralString
from uuid import UUID

import psycopg
import pytest

from tests.acceptance.fix_up import wheel_timer
from tests.fix_clock import DatabaseClock
from tests.fix_hands import task_at
from tests.fix_tasks import submit_all
from wheel_timer.database import Database, Rows
from wheel_timer.embedded import DataDirectory, EmbeddedPostgres
from wheel_timer.errors import DatabaseUnavailable, WheelTimerError
from wheel_timer.queries import sql_directory
from wheel_timer.store.audit import run_audits
from wheel_timer.store.repair import repair
from wheel_timer.task import NewTask
from wheel_timer.wheel import slot_of

MINUTE_MS = 60_000
SAFE = {"lost", "orphaned_requeue", "misplaced"}

# What a task is broken by: statements about %(id)s, whose home is at %(home)s.
NET: LiteralString = """
INSERT INTO timer_requeue (task_id, shard, start_time, due_at, biz_type, reason)
VALUES (%(id)s, 0, %(home)s, %(home)s + 3600000, 'orders', 'near');"""
BEHIND = """
UPDATE timer_pointer SET "current_time" = %(home)s + 20000, sweep_time = %(home)s + 10000,
    reap_time = %(home)s;
SELECT setval('timer_closed_to_0', %(home)s + 30000)"""
UNCOVERED = BEHIND + "; DELETE FROM timer_requeue WHERE task_id = %(id)s"
PASSED = BEHIND + "; UPDATE timer_requeue SET due_at = %(home)s + 20000 WHERE task_id = %(id)s"
GONE = """
DELETE FROM timer_task WHERE task_id = %(id)s; DELETE FROM timer_key WHERE task_id = %(id)s"""
KEYLESS = """
DELETE FROM timer_task WHERE task_id = %(id)s; DELETE FROM timer_requeue WHERE task_id = %(id)s"""
DEAD = """
INSERT INTO timer_dead (task_id, finish_time, biz_type) VALUES (%(id)s, %(home)s, 'orders')"""
FORWARD = (
    KEYLESS
    + """;
DELETE FROM timer_key WHERE task_id = %(id)s;
INSERT INTO timer_task (slot, shard, start_time, task_id, create_time, biz_type, status, moved_to)
VALUES (%(slot)s, 0, %(home)s, %(id)s, %(home)s, 'orders', 4, %(home)s + 5000)"""
)
ASTRAY = """
DELETE FROM timer_requeue WHERE task_id = %(id)s;
UPDATE timer_task SET start_time = %(home)s + 3600000, slot = (%(home)s / 1000 + 3600) %% 10000000
WHERE task_id = %(id)s"""
COPY = """
INSERT INTO timer_task (slot, shard, start_time, task_id, create_time, biz_type)
VALUES (
    (%(home)s / 1000 + {s}) %% 10000000, 0, %(home)s + {s} * 1000, %(id)s, %(home)s, 'orders'
)"""
TWICE: LiteralString = COPY.replace("{s}", "3600")
THRICE: LiteralString = (
    TWICE
    + ";"
    + COPY.replace("{s}", "7200")
    + """;
UPDATE timer_task SET status = 4, moved_to = %(home)s + 3600000
WHERE task_id = %(id)s AND start_time = %(home)s;
DELETE FROM timer_requeue WHERE task_id = %(id)s"""
)
STOLEN = """
UPDATE timer_key SET task_id = gen_random_uuid() WHERE task_id = %(id)s"""
SIDE_BY_SIDE = """
INSERT INTO timer_attempt (task_id, attempt, life, outcome, started_time, duration_ms)
VALUES (%(id)s, 1, 1, 'retry', %(home)s + 1000, 5000),
    (%(id)s, 2, 1, 'lost', NULL, NULL),
    (%(id)s, 3, 1, 'retry', %(home)s + 3000, 5000)"""
EARLY = "UPDATE timer_task SET started = %(home)s - 1 WHERE task_id = %(id)s"
EARLIER = """
INSERT INTO timer_attempt (task_id, attempt, life, outcome, due_time, started_time)
VALUES (%(id)s, 1, 1, 'retry', %(home)s, %(home)s - 1)"""


async def broken_by(db: Database, url: str, *breaks: LiteralString) -> list[NewTask]:
    """For each of these a task that has a biz_id and a requeue row, after its statements."""
    far = [task_at(1_900_000_000_000 + 60_000 * n, biz_id=f"order-{n}") for n in range(len(breaks))]
    tasks = await submit_all(db, far)
    with psycopg.connect(url, autocommit=True) as connection:
        for task, statements in zip(tasks, breaks, strict=True):
            home_ms = task.start_time_ms
            given = {"id": task.task_id, "home": home_ms, "slot": slot_of(home_ms)}
            for statement in (NET + statements).split(";"):
                connection.execute(statement.encode(), given)
    return tasks


async def violations(db: Database) -> dict[str, Rows]:
    """What the audits find, but for the ledger: it misses each row that is deleted by hand."""
    return {
        audit.name: audit.rows
        for audit in await run_audits(db)
        if audit.kind == "violation" and audit.rows and audit.name != "ledger_balance"
    }


@pytest.mark.parametrize(
    ("row", "is_overdue"),
    [
        (None, True),
        ("published", True),  # again and again, and nobody claims it
        ("held", False),
        ("overflow", False),
        ("held, and nobody brought it back", True),
    ],
)
async def test_overdue_is_what_nobody_is_at_and_nobody_put_aside(
    row: str | None, is_overdue: bool, db: Database, clock: DatabaseClock, database_url: str
) -> None:
    now_ms = clock.freeze()
    (task,) = await submit_all(db, [task_at(now_ms)])
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("DELETE FROM timer_requeue")
        if row is not None:
            away_ms = -MINUTE_MS if "nobody" in row else 10 * MINUTE_MS
            connection.execute(
                "INSERT INTO timer_requeue VALUES (%s, %s, %s, 0, 'orders', %s)",
                [task.task_id, now_ms + away_ms, now_ms, row.partition(",")[0]],
            )
    assert "overdue" not in await violations(db)
    clock.advance(6 * MINUTE_MS)
    assert ("overdue" in await violations(db)) == is_overdue


async def test_what_is_pulled_waits_for_its_workers_and_is_not_overdue(
    db: Database, clock: DatabaseClock, database_url: str
) -> None:
    await submit_all(db, [task_at(clock.freeze())])
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO timer_biz VALUES ('orders', 1, %s, '[]', 0, 0)", ['{"delivery": "pull"}']
        )
        clock.advance(6 * MINUTE_MS)
        assert "overdue" not in await violations(db)
        connection.execute("""UPDATE timer_biz SET config = '{"delivery": "callback"}'""")
        assert "overdue" in await violations(db)


async def test_they_say_which_of_them_runs_and_write_nothing(db: Database) -> None:
    told: list[str] = []
    audits = await run_audits(db, begun=told.append)
    assert told == [audit.name for audit in audits]
    await submit_all(db, [task_at(1_900_000_000_000)])
    with pytest.raises(WheelTimerError, match="read-only transaction"):
        await db.read("DELETE FROM timer_task RETURNING task_id", timeout_s=5)
    _, rows = await db.read("SELECT count(*) FROM timer_task", timeout_s=5)
    assert rows == [(1,)]


async def test_the_server_gives_up_what_takes_too_long(db: Database) -> None:
    with pytest.raises(DatabaseUnavailable, match="statement timeout"):
        await db.read("SELECT pg_sleep(60)", timeout_s=0.1)
    _, rows = await db.read("SELECT current_setting('statement_timeout')", timeout_s=5)
    assert rows == [("5s",)]
    assert (await db.fetch_one("is_replica")) == (False,)


async def test_a_replica_is_refused(own_directory: DataDirectory) -> None:
    """A cluster that waits for a primary, as a standby cut off from it does."""
    server = EmbeddedPostgres(own_directory)
    for is_standby in (False, True):
        if is_standby:
            (server.data / "standby.signal").touch()
        await asyncio.to_thread(server.start)
        try:
            await asyncio.to_thread(server.wait_ready, 60)
            if is_standby:
                db = Database(server.url, pool_size=1, name="replica")
                try:
                    with pytest.raises(DatabaseUnavailable, match="is a replica"):
                        await run_audits(db)
                finally:
                    await db.close()
        finally:
            await asyncio.to_thread(server.stop)


async def test_what_is_safe_to_put_right_is_put_right_and_recorded(
    db: Database, database_url: str
) -> None:
    did = {
        UNCOVERED: "given a requeue row",
        PASSED: "given a requeue row",
        GONE: "dropped: it led to no task",
        KEYLESS: "dropped: its biz_id led to no task",
        DEAD: "dropped: a dead letter of a task that is not failed",
        FORWARD: "dropped: a forwarding row to where no task is",
    }
    # The hands are put beyond all of them by the last.
    tasks = await broken_by(db, database_url, *did, UNCOVERED)
    assert set(await violations(db)) == SAFE
    environ = {"WHEEL_TIMER_DATABASE_URL": database_url}
    command = wheel_timer("audit", "--repair", "--json", environ=environ)
    assert command.returncode == 1  # of the ledger, see above
    lines = [json.loads(line) for line in command.stdout.splitlines()]
    done = [line["repaired"] for line in lines if "repaired" in line]
    put_right = {(UUID(one["task_id"]), one["did"]) for one in done}
    assert {(t.task_id, what) for t, what in zip(tasks, did.values(), strict=False)} <= put_right
    assert await violations(db) == {}
    _, rows = await db.read(
        "SELECT actor, action, object, new ->> 'audit' FROM timer_change", timeout_s=5
    )
    recorded = {("local", "audit.repair", one["task_id"], one["audit"]) for one in done}
    assert set(rows) == recorded
    # Nothing is left to do, and nothing is done twice.
    assert await repair(db, actor="local") == []


async def test_what_is_for_a_person_is_found_and_left_as_it_is(
    db: Database, database_url: str
) -> None:
    by = {
        TWICE: {"duplicated", "misplaced"},
        THRICE: {"duplicated", "misplaced"},
        STOLEN: {"duplicated", "misplaced"},
        SIDE_BY_SIDE: {"duplicated"},
        ASTRAY: {"misplaced"},
        EARLY: {"early"},
        EARLIER: {"early"},
    }
    tasks = await broken_by(db, database_url, *by)
    before = await violations(db)
    assert all("orders" in row for name in ("early", "duplicated") for row in before[name])
    for task, audits in zip(tasks, by.values(), strict=True):
        words = (str(task.task_id), f"order-{tasks.index(task)}")
        assert {name for name, rows in before.items() if any(w in str(rows) for w in words)} == (
            audits
        )
    # Of the biz_id that leads to another task the key is dropped: that one does not exist.
    assert [one.audit for one in await repair(db, actor="local")] == ["misplaced"]
    after = await violations(db)
    assert set(after) == set(before)


async def test_a_task_that_has_come_right_meanwhile_is_left_alone(
    db: Database, database_url: str
) -> None:
    """The functions judge again under the lock: what they are told may be old."""
    (task,) = await broken_by(db, database_url, BEHIND)
    place = {"shard": 0, "task_ids": [task.task_id], "actor": "local"}
    lost = place | {"start_times": [task.start_time_ms]}
    assert await db.fetch_one("repair_lost", lost) == ([],)
    assert await db.fetch_one("repair_orphans", place) == ([],)
    for what in ("key", "dead", "address"):
        params = {"what": what, "task_ids": [task.task_id], "actor": "local"}
        assert await db.fetch_one("repair_misplaced", params) == ([],)
    assert await violations(db) == {}


def test_psql_runs_every_audit_as_it_is(
    database_url: str, postgres_server: EmbeddedPostgres
) -> None:
    files = sorted((sql_directory() / "audit").glob("*.sql"))
    assert {path.stem for path in files} >= SAFE | {"early", "overdue", "duplicated"}
    psql = [str(postgres_server.program("psql")), "-X", "-v", "ON_ERROR_STOP=1", "-At"]
    named = [argument for path in files for argument in ("-f", str(path))]
    done = subprocess.run(
        [*psql, "-d", database_url, *named], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
