"""Faults of Postgres: what it has answered must hold, and nobody may fall over while it is away."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Final

import psycopg

from tests.chaos.case import Case
from tests.chaos.load import BIZ_TYPE
from tests.chaos.servers import crash, freeze, processes, start, thaw
from tests.chaos.world import World
from tests.fix_hands import task_at
from wheel_timer.wheel import slot_of

CONCURRENCY: Final = 64
AWAY_S: Final = 4.0
# Longer than any lock_timeout, and any timeout of a statement.
LOCKED_S: Final = 30.0
AUDITS: Final = 6
AUDIT_EACH_S: Final = 1.0
CONNECTIONS: Final = 40
# What closes and advances had not reached the disk is forgotten.
BACK_MS: Final = 700
BACKENDS: Final = """
SELECT pid FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'
    AND (starts_with(application_name, 'broker') OR starts_with(application_name, 'daemon'))
"""
ERRORS: Final = """
CREATE FUNCTION chaos_error() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF random() < 0.01 THEN
        RAISE EXCEPTION 'chaos' USING ERRCODE = CASE
            WHEN random() < 0.5 THEN '40001' ELSE '40P01' END;
    END IF;
    RETURN new;
END
$$;
CREATE TRIGGER chaos BEFORE INSERT OR UPDATE ON timer_task
FOR EACH ROW EXECUTE FUNCTION chaos_error();
CREATE TRIGGER chaos BEFORE INSERT OR UPDATE ON timer_requeue
FOR EACH ROW EXECUTE FUNCTION chaos_error();
"""
NO_ERRORS: Final = "DROP FUNCTION chaos_error CASCADE"
FENCE: Final = "SELECT wheel_fence_v1(CAST(0 AS smallint))"
# A caller that idles with the fence in hand for a second is cut off.
FENCED_S: Final = 0.8
BEHIND: Final = """
INSERT INTO timer_task (slot, shard, start_time, task_id, create_time, biz_type, biz_id)
VALUES (%s, 0, %s, %s, %s, 'chaos', %s)
"""
BEHIND_ROWS: Final = 20
LEDGER: Final = """
SELECT wheel_ledger_v1(
    ARRAY[1], ARRAY['chaos'], ARRAY[CAST(%s AS bigint)], ARRAY[CAST(%s AS bigint)]
)
"""


async def restart(world: World) -> None:
    """pg_ctl restart -m fast."""
    await asyncio.to_thread(world.postgres.stop)
    await start(world.postgres)


async def kill(world: World) -> None:
    """kill -9 of the postmaster and all its children."""
    await crash(world.postgres)
    await start(world.postgres)


async def kill_backend(world: World) -> None:
    """kill -9 of one backend, after which the server starts all others anew."""
    ((pid,), *_) = await world.sql(BACKENDS)
    for process in processes(world.postgres):
        if process.pid == pid:
            process.kill()

    async def answers() -> bool:
        try:
            return bool(await world.sql("SELECT 1"))
        except psycopg.Error:
            return False

    await asyncio.sleep(0.3)
    await world.until(answers, "Postgres answers")


async def end_sessions(world: World) -> None:
    """pg_terminate_backend of every session we have."""
    assert await world.sql(f"SELECT pg_terminate_backend(pid) FROM ({BACKENDS}) AS ours")


async def stand_still(world: World) -> None:
    """SIGSTOP to all of it."""
    freeze(world.postgres)
    await asyncio.sleep(AWAY_S)
    thaw(world.postgres)


async def lock_table(world: World) -> None:
    """ACCESS EXCLUSIVE on the wheel."""
    async with world.session(autocommit=False) as other:
        await other.execute("LOCK TABLE timer_task IN ACCESS EXCLUSIVE MODE")
        await asyncio.sleep(LOCKED_S)
        await other.rollback()


async def long_transaction(world: World) -> None:
    """A snapshot that stays open, which no row that dies meanwhile can be cleaned from."""
    async with world.session(autocommit=False) as other:
        await other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await other.execute("SELECT count(*) FROM timer_task")
        await asyncio.sleep(world.case.load_s - world.case.at_s)


async def _write_behind(world: World, name: str, *, fenced: bool, open_s: float) -> None:
    """Rows due within a second, committed after open_s."""
    now_ms = time.time_ns() // 1_000_000
    async with world.session(autocommit=False) as other:
        if fenced:
            await other.execute(FENCE)
        for number in range(BEHIND_ROWS):
            task = task_at(now_ms + 500 + 20 * number, biz_type=BIZ_TYPE)
            due_ms, biz_id = task.start_time_ms, f"plain-{name}-{number}"
            values = (slot_of(due_ms), due_ms, task.task_id, now_ms, biz_id)
            await other.execute(BEHIND, values)
            await other.execute(LEDGER, (due_ms, now_ms))
            world.load.expect(biz_id, due_ms)
        await asyncio.sleep(open_s)
        await other.commit()


async def commit_late(world: World) -> None:
    """Rows committed once their moment is closed: inside the fence, which makes the hand wait; and
    past it, where only the sweep can find them."""
    await _write_behind(world, "fenced", fenced=True, open_s=FENCED_S)
    await _write_behind(world, "unfenced", fenced=False, open_s=2.5)


async def refuse_now_and_then(world: World) -> None:
    """Serialization failures and deadlocks, in one of a hundred writes of a row."""
    await _alter(world, ERRORS)
    await asyncio.sleep(AWAY_S)
    await _alter(world, NO_ERRORS)


async def _alter(world: World, statement: str) -> None:
    """It locks all partitions beside those who work in them: one of the two may be the victim."""
    while True:
        try:
            await world.sql(statement)
        except psycopg.errors.DeadlockDetected:
            continue
        return


async def exhaust_connections(world: World) -> None:
    """Somebody else takes every connection; ours are ended, and find no other."""
    async with AsyncExitStack() as hogs:
        admin = await hogs.enter_async_context(world.session())
        for _ in range(CONNECTIONS):
            try:
                await hogs.enter_async_context(world.session())
            except psycopg.OperationalError:
                break
        await admin.execute(f"SELECT pg_terminate_backend(pid) FROM ({BACKENDS}) AS ours".encode())
        until_s = time.monotonic() + AWAY_S
        while time.monotonic() < until_s:
            try:
                await hogs.enter_async_context(world.session())
            except psycopg.OperationalError:
                await asyncio.sleep(0.05)


async def audit(world: World) -> None:
    """No fault at all: the audits run beside the load, again and again, and raise no alarm."""
    for _ in range(AUDITS):
        found = await world.audits()
        assert found is None, found
        await asyncio.sleep(AUDIT_EACH_S)


CASES: Final = (
    Case(name="postgres-restarted", what="a fast restart", fault=restart, back_ms=BACK_MS),
    Case(
        name="postgres-killed",
        what="kill -9 of all its processes",
        fault=kill,
        back_ms=BACK_MS,
    ),
    Case(
        name="postgres-backend-killed",
        what="kill -9 of one backend",
        fault=kill_backend,
        back_ms=BACK_MS,
    ),
    Case(
        name="postgres-sessions-ended",
        what="pg_terminate_backend of all our sessions",
        fault=end_sessions,
    ),
    Case(
        name="postgres-frozen",
        what=f"SIGSTOP for {AWAY_S:g} s",
        fault=stand_still,
        load_s=11,
        duplicates=None,
        lost_max=CONCURRENCY,
    ),
    Case(
        name="postgres-locked",
        what=f"the wheel locked for {LOCKED_S:g} s",
        fault=lock_table,
        load_s=LOCKED_S + 9,
        # Thousands of clients that wait would take the machine for themselves once it is over.
        rate_s=60,
        duplicates=None,
        lost_max=CONCURRENCY,
    ),
    Case(
        name="postgres-old-snapshot",
        what="a transaction open beside the load",
        fault=long_transaction,
        at_s=1,
    ),
    Case(
        name="postgres-audited",
        what="no fault: the audits once a second beside the load",
        fault=audit,
        load_s=12,
    ),
    Case(
        name="postgres-late-commit",
        what="rows committed behind the hand, with the fence and past it",
        fault=commit_late,
        # As late as the sweep, which alone can find them.
        recovery_s=8,
    ),
    Case(
        name="postgres-refuses",
        what="serialization failures and deadlocks in 1% of writes",
        fault=refuse_now_and_then,
        duplicates=None,
        lost_max=CONCURRENCY,
        load_s=11,
    ),
    Case(
        name="postgres-full",
        what=f"no connection to be had for {AWAY_S:g} s",
        fault=exhaust_connections,
        postgres={"max_connections": str(CONNECTIONS)},
        load_s=11,
        duplicates=None,
        lost_max=CONCURRENCY,
    ),
)
