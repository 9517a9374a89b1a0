"""
Requeue rows are looked up by their primary key, also where the planner believes there are none.

An analyze beside an old snapshot finds a table of dead rows only and says that it is empty; and to
a planner an empty table's indexes are all alike. What is read is taken from Postgres' own counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from psycopg import AsyncConnection, IsolationLevel

from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands, task_at
from tests.fix_sessions import Sessions
from tests.integration.test_plans import (
    again_of,
    claim_of,
    in_place_order,
    rows_of,
    settle_of,
)
from wheel_timer.database import Database
from wheel_timer.store.due import NIL
from wheel_timer.store.submit import submit
from wheel_timer.task import NewTask

DEAD: Final = 3_000
FRESH: Final = 2
# A row is looked for some times, in indexes of two levels; it is in three of them.
BLOCKS_MAX: Final = 20 * FRESH

BLOCKS: Final = """
SELECT heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit
FROM pg_statio_user_tables WHERE relname = 'timer_requeue'
"""


@pytest.fixture
async def crowd(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions
) -> list[NewTask]:
    """Some tasks that wait, beside thousands of dead rows that no vacuum takes away, and analysed
    when only the dead were there."""
    session, old = await sessions.open(), await sessions.open()
    await session.execute("ALTER TABLE timer_requeue SET (autovacuum_enabled = off)")
    now_ms = clock.freeze()
    await old.set_autocommit(False)
    await old.set_isolation_level(IsolationLevel.REPEATABLE_READ)
    await old.execute("SELECT count(*) FROM timer_requeue")
    dead = [task_at(now_ms + n % 1000) for n in range(DEAD)]
    for first in range(0, DEAD, 1_000):
        await submit(db, 0, dead[first : first + 1_000])
    clock.advance(1_000)
    for first in range(0, DEAD, 500):
        tasks = in_place_order(dead[first : first + 500])
        await rows_of(session, "claim", claim_of(tasks))
        await rows_of(session, "settle_final", settle_of(tasks))
    await session.execute("VACUUM (ANALYZE) timer_requeue")
    counted = await sessions.row(
        "SELECT reltuples, relpages > 20 FROM pg_class WHERE relname = 'timer_requeue'"
    )
    assert counted == (0.0, True)
    fresh = in_place_order([task_at(clock.now_ms() + n) for n in range(FRESH)])
    await submit(db, 0, fresh)
    clock.advance(100)
    await rows_of(session, "claim", claim_of(fresh))
    return fresh


async def blocks_of(session: AsyncConnection[Any], name: str, params: Mapping[str, Any]) -> int:
    """How many blocks of the table and its indexes the statement looks at."""
    counts: list[int] = []
    for run in (False, True):
        if run:
            await rows_of(session, name, dict(params))
        await session.execute("SELECT pg_stat_force_next_flush()")
        row = await (await session.execute(BLOCKS)).fetchone()
        assert row is not None
        counts.append(row[0])
    return counts[1] - counts[0]


async def rows(session: AsyncConnection[Any]) -> set[Any]:
    return set(
        await (await session.execute("SELECT task_id, due_at FROM timer_requeue")).fetchall()
    )


def reserve_of(tasks: Sequence[NewTask]) -> dict[str, Any]:
    return claim_of(tasks) | {
        "shard": 0,
        "biz_type": tasks[0].biz_type,
        "reserved_max": 64,
        "ttrs": [60_000] * len(tasks),
        "published": [tasks[0].start_time_ms] * len(tasks),
        "shown_bytes": 65_536,
    }


def report_of(tasks: Sequence[NewTask], verb: str) -> dict[str, Any]:
    notices = ("ids", "times", "biz_types", "biz_ids", "data", "content_type")
    return (
        again_of(tasks)
        | {f"notice_{name}": None for name in notices}
        | {
            "biz_types": [task.biz_type for task in tasks],
            "verbs": [verb] * len(tasks),
            "delays": [3_600_000] * len(tasks),
            "reasons": None,
            "broker": "test",
            "config_versions": [1] * len(tasks),
            "erases": [False] * len(tasks),
        }
    )


@pytest.mark.parametrize(
    "name",
    [
        *("settle_final", "rearm", "unfetch", "rescue", "pull", "fetch", "fill"),
        *("reserve", "finish", "release", "touch"),
    ],
)
async def test_a_row_is_found_among_the_dead_by_its_key(
    name: str, crowd: list[NewTask], hands: Hands, clock: DatabaseClock, sessions: Sessions
) -> None:
    """With task_id in the index by due_at, each of them read all of that, or the whole table."""
    session = await sessions.open()
    ids = sorted(task.task_id for task in crowd)
    now_ms = clock.now_ms()
    states = {
        "unfetch": f"reason = 'published', due_at = {now_ms + 60_000}",
        "rescue": 'due_at = (SELECT p."current_time" FROM timer_pointer AS p)',
        "pull": f"reason = 'published', due_at = {now_ms + 60_000}",
        "fetch": f"reason = 'overflow', due_at = {now_ms + 30_000}",
        "fill": f"reason = 'overflow', due_at = {now_ms + 60_000}",
    }
    if name in states:
        await session.execute(f"UPDATE timer_requeue SET {states[name]}".encode())
    if name == "reserve":
        await session.execute("UPDATE timer_task SET lease_until = NULL")
    leads = {"shard": 0, "epoch": hands.leader.epoch}
    params: dict[str, dict[str, Any]] = {
        "settle_final": settle_of(crowd),
        "rearm": leads
        | {
            "to": now_ms + 100_000,
            "task_ids": ids,
            "again": [None, *[now_ms + 60_000] * (FRESH - 1)],
            "reasons": ["published"] * FRESH,
        },
        "unfetch": {"shard": 0, "task_ids": ids},
        "rescue": leads,
        "pull": leads | {"key_due": now_ms + 30_000, "key_id": NIL, "limit": FRESH},
        "fetch": {
            "shard": 0,
            "reason": "overflow",
            "biz_types": [crowd[0].biz_type],
            "limits": [FRESH],
            "visibility_ms": 60_000,
            "lookahead_ms": 1_000,
        },
        "fill": leads | {"biz_type": crowd[0].biz_type, "limit": FRESH},
        "reserve": reserve_of(crowd),
    }
    if name in ("finish", "release", "touch"):
        params["report"] = report_of(crowd, name)
        name = "report"
    before = await rows(session)
    assert len(before) == FRESH
    assert await blocks_of(session, name, params[name]) <= BLOCKS_MAX
    assert not before & await rows(session)
