"""Who may enter the fence, and what happens to those who will not leave it."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any, Final

import psycopg
import pytest
from psycopg import AsyncConnection, pq
from psycopg.pq.abc import PGconn

from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands, NewHands, task_at
from tests.fix_lanes import Lanes
from tests.fix_sessions import Sessions
from wheel_timer.database import Database
from wheel_timer.errors import SchemaMismatch
from wheel_timer.queries import queries
from wheel_timer.store.due import NIL
from wheel_timer.store.submit import submit
from wheel_timer.wheel import new_task_id

LOOK_S: Final = 0.02

SUBMIT_COLUMNS: Final = (
    *("task_ids", "start_times", "biz_types", "biz_ids", "biz_data", "content_types"),
    *("callbacks", "retries", "max_ages", "traceparents"),
)
_PARAMETER: Final = re.compile(r"CAST\(%\((\w+)\)b AS ([\w ]+?)(\[\])?\)")
_NOTHING: Final[dict[str, Any]] = {"text": "{}", "uuid": NIL, "boolean": False, "jsonb": None}


async def call(session: AsyncConnection[Any], name: str, **params: Any) -> None:
    """Call a writer for nothing, but for what is given: empty arrays, shard 0."""
    query = queries()[name]
    nothing = {
        parameter: [] if is_array else _NOTHING.get(type_, 0 if parameter == "shard" else 1)
        for parameter, type_, is_array in _PARAMETER.findall(query)
    }
    await session.execute(query, nothing | params)


async def writers(sessions: Sessions) -> list[str]:
    """The named queries that enter the fence: they call a function that does, or whose callee."""
    cursor = await (await sessions.open()).execute(
        "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = CAST('public' AS regnamespace)"
    )
    bodies: dict[str, str] = dict(await cursor.fetchall())
    entering = {"wheel_fence_v1"}
    while True:
        more = {
            name
            for name, body in bodies.items()
            if any(f"{callee}(" in body for callee in entering)
        }
        if more <= entering:
            break
        entering |= more
    return [
        name
        for name, query in queries().items()
        if any(f"{callee}(" in query for callee in entering)
    ]


async def test_every_writer_refuses_a_snapshot_that_is_older_than_the_fence(
    sessions: Sessions,
) -> None:
    session = await sessions.open()
    found = await writers(sessions)
    assert {"submit", "change", "operate", "sweep", "settle_again", "hold"} < set(found)
    for level in ("REPEATABLE READ", "SERIALIZABLE"):
        for writer in found:
            await session.execute(f"BEGIN ISOLATION LEVEL {level}".encode())
            with pytest.raises(psycopg.Error) as refused:
                await call(session, writer)
            assert refused.value.sqlstate == "WT002", (level, writer)
            await session.execute("ROLLBACK")


async def test_every_writer_refuses_a_transaction_that_began_before_it(
    sessions: Sessions,
) -> None:
    session = await sessions.open()
    for writer in await writers(sessions):
        async with session.transaction(force_rollback=True):
            await session.execute("SELECT pg_sleep(0.11)")
            with pytest.raises(psycopg.Error) as refused:
                await call(session, writer)
            assert refused.value.sqlstate == "WT002", writer


async def test_what_is_written_in_the_fence_is_durable_whatever_the_session_says(
    sessions: Sessions,
) -> None:
    session = await sessions.open()
    await session.execute("SET synchronous_commit = off")
    async with session.transaction():
        await call(session, "submit")
        shown = await (await session.execute("SHOW synchronous_commit")).fetchone()
        assert shown == ("on",)
    shown = await (await session.execute("SHOW synchronous_commit")).fetchone()
    assert shown == ("off",)


async def test_a_shard_that_was_never_set_up_takes_nothing(
    db: Database, sessions: Sessions, clock: DatabaseClock
) -> None:
    task = task_at(clock.now_ms())
    with pytest.raises(SchemaMismatch):
        await submit(db, 1, [task])
    # As after logical replication, which copies the rows but not the sequences' values.
    await (await sessions.open()).execute("SELECT setval('timer_closed_to_0', 1, false)")
    with pytest.raises(SchemaMismatch):
        await submit(db, 0, [task])


@pytest.mark.timing
async def test_a_caller_who_idles_inside_the_fence_is_cut_off_after_a_second(
    sessions: Sessions, clock: DatabaseClock, audits_hold: AuditsHold
) -> None:
    session = await sessions.open()
    began_s = time.monotonic()
    await session.execute("BEGIN")
    await call(session, "submit", **columns_of(clock.now_ms()))
    assert not await sessions.value("SELECT wheel_barrier_try_v1(CAST(0 AS smallint))")
    await sessions.until("SELECT wheel_barrier_try_v1(CAST(0 AS smallint))", timeout_s=8)
    assert time.monotonic() - began_s > 0.9
    with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
        await session.execute("COMMIT")
    assert await sessions.value("SELECT count(*) FROM timer_task") == 0
    await audits_hold()


@pytest.mark.timing
async def test_frozen_submitters_hold_up_nobody_for_more_than_five_seconds(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    database_url: str,
    lanes: Lanes,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    """
    Two clients stop in the middle of a submit: one never asks for the rest of its reply and its
    commit, one does not read what is sent to it.
    """
    unsynced = pipelining_client(database_url, clock.now_ms() + 60_000)
    unread = flooded_client(database_url, clock.now_ms() + 60_000)
    await sessions.until(
        "SELECT count(*) = 2 FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock'"
    )
    began_s = time.monotonic()
    stands_at_ms = hands.due.current_ms
    slowest_s = 0.0
    due = []
    while hands.due.current_ms == stands_at_ms:
        elapsed_s = time.monotonic() - began_s
        assert elapsed_s < 8.0, "the hand is still held up"
        due.append(task_at(clock.now_ms()))
        submit_s = time.monotonic()
        await submit(db, 0, due[-1:])
        slowest_s = max(slowest_s, time.monotonic() - submit_s)
        await hands.serve()
        await asyncio.sleep(0.1)
    assert time.monotonic() - began_s > 4.9, "they were given less than their time"
    assert slowest_s < 2.0
    # The hand was never held up either: it published in the meantime, unfenced.
    assert {task.task_id for task in due[:-1]} <= set(await lanes.ids())
    for client in (unsynced, unread):
        assert ended_by_administrator(client)
    assert await sessions.value("SELECT count(*) FROM timer_task") == len(due)
    await audits_hold()


def columns_of(start_time_ms: int) -> dict[str, Any]:
    """One task as `submit` takes it."""
    columns: dict[str, Any] = {column: [None] for column in SUBMIT_COLUMNS}
    task_id = new_task_id(start_time_ms)
    return columns | {
        "task_ids": [task_id],
        "start_times": [start_time_ms],
        "biz_types": ["orders"],
    }


def submit_statement(start_time_ms: int) -> str:
    return (
        "SELECT wheel_submit_v1(CAST(0 AS smallint),"
        f" ARRAY[CAST('{new_task_id(start_time_ms)}' AS uuid)],"
        f" ARRAY[CAST({start_time_ms} AS bigint)], ARRAY['orders'], ARRAY[CAST(NULL AS text)],"
        " ARRAY[CAST(NULL AS bytea)], ARRAY[CAST(NULL AS text)], ARRAY[CAST(NULL AS text)],"
        " ARRAY[CAST(NULL AS text)], ARRAY[CAST(NULL AS bigint)], ARRAY[CAST(NULL AS text)], 1000)"
    )


def pipelining_client(url: str, start_time_ms: int) -> PGconn:
    """A client that has sent a submit, but not the Sync that would commit it."""
    client = pq.PGconn.connect(url.encode())
    assert client.status == pq.ConnStatus.OK
    client.enter_pipeline_mode()
    client.send_query_params(submit_statement(start_time_ms).encode(), None)
    client.send_flush_request()
    while client.flush():
        pass
    return client


def flooded_client(url: str, start_time_ms: int) -> PGconn:
    """A client that does not read a reply that is larger than every buffer on the way."""
    client = pq.PGconn.connect(url.encode())
    assert client.status == pq.ConnStatus.OK
    client.nonblocking = 1
    flood = (
        f"WITH s AS MATERIALIZED ({submit_statement(start_time_ms)})"
        " SELECT repeat('x', 1000) FROM s, generate_series(1, 1000000)"
    )
    client.send_query(flood.encode())
    while client.flush():
        pass
    return client


def ended_by_administrator(client: PGconn) -> bool:
    """Whether the server has closed this client's session; closes it here too."""
    client.nonblocking = 0
    try:
        while True:
            client.consume_input()
            while not client.is_busy():
                if client.get_result() is None:
                    break
    except psycopg.OperationalError:
        return True
    finally:
        client.finish()


@pytest.mark.timing
async def test_a_polling_standby_holds_no_snapshot_and_waits_for_no_lock(
    hands: Hands, new_hands: NewHands, sessions: Sessions
) -> None:
    """A snapshot held for long would stop vacuum in the whole database."""
    standby = new_hands()
    stop = asyncio.Event()

    async def stand_by() -> None:
        while not stop.is_set():
            assert await standby.poll() is None
            await asyncio.sleep(LOOK_S)

    standing_by = asyncio.create_task(stand_by())
    looks = held = waits = 0
    polls_before = await sessions.value(POLLS, f"{standby.name} lease")
    for _ in range(40):
        row = await sessions.row(STANDBY, f"{standby.name} lease")
        looks += 1
        held += row[0]
        waits += row[1]
        await asyncio.sleep(LOOK_S)
    stop.set()
    await standing_by
    assert (looks, held, waits) == (40, 0, 0)
    assert await sessions.value(POLLS, f"{standby.name} lease") != polls_before


# (between its statements it shows a snapshot or a transaction, it waits for a lock)
STANDBY: Final = """
SELECT
    coalesce(bool_or(state <> 'active' AND (backend_xmin IS NOT NULL OR xact_start IS NOT NULL)
        OR xact_start < clock_timestamp() - interval '500 ms'), false),
    coalesce(bool_or(wait_event_type = 'Lock'), false)
FROM pg_stat_activity WHERE application_name = %s
"""
POLLS: Final = "SELECT max(query_start) FROM pg_stat_activity WHERE application_name = %s"
