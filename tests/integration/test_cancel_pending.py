"""An operation's cancel leaves just what a cancel of each task by itself would leave."""

from __future__ import annotations

from typing import Any, Final, LiteralString

import pytest
from psycopg import AsyncConnection

from tests.fix_change import DAY_MS, EVERYTHING, STATES, one, row_of, task_in
from tests.fix_clock import DatabaseClock
from tests.fix_hands import BIZ_TYPE, task_at
from tests.fix_sessions import Sessions
from wheel_timer.database import Database
from wheel_timer.store.submit import submit

ALL_BY_ITSELF: Final = """
SELECT verdicts FROM wheel_change_v1(
    0::smallint, %(ids)s, %(places)s, array_fill('cancel'::text, ARRAY[cardinality(%(places)s)]),
    %(revisions)s, NULL, NULL, array_fill(0, ARRAY[cardinality(%(places)s)]),
    NULL, NULL, NULL, NULL, NULL, NULL, NULL, 60000, 1000
)
"""
AT_ONCE: Final = (
    "SELECT wheel_cancel_pending_v1(0::smallint, %(ids)s, %(places)s, %(revisions)s, 60000)"
)
# Summed up: into how many deltas it is written depends on how many partitions the tasks lie in.
LEDGER: Final = """
SELECT array_agg(s::text ORDER BY s.biz_type, s.quarter, s.day, s.edges)
FROM (
    SELECT d.biz_type, d.quarter, d.day, d.edges, sum(d.tasks) AS tasks
    FROM timer_ledger_delta AS d
    GROUP BY d.biz_type, d.quarter, d.day, d.edges
) AS s
"""


async def left_by(
    session: AsyncConnection[Any], query: LiteralString, params: dict[str, Any]
) -> list[Any]:
    """The answer to it, and all that is there then; it is undone."""
    await session.execute("BEGIN")
    cursors = [await session.execute(query, params)]
    cursors += [await session.execute(look) for look in (EVERYTHING, LEDGER)]
    found = [await cursor.fetchone() for cursor in cursors]
    await session.execute("ROLLBACK")
    return found


@pytest.mark.parametrize("config", [None, '{"erase_data": true, "retention": {"cancelled": 7}}'])
async def test_what_an_operation_cancels_it_cancels_like_anybody(
    config: str | None, db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    # Last the one whose lease is to run: others let the clock go on.
    states = sorted(STATES, key=lambda state: (state == "delivering", state != "expired"))
    tasks = [await task_in(state, db, clock) for state in states]
    moved = task_at(clock.freeze() + DAY_MS, biz_data=b"2")
    elsewhere = task_at(clock.freeze() + DAY_MS, "elsewhere", biz_data=b"3")
    changed = task_at(clock.freeze() + DAY_MS)
    await submit(db, 0, [moved, elsewhere, changed])
    await one(db, moved, "patch", to_time_ms=clock.freeze() + 3 * DAY_MS)
    tasks += [moved, elsewhere, changed]
    rows = [await row_of(db, task) for task in tasks]
    await one(db, changed, "patch", has_data=True, biz_data=b"newer")
    params = {
        "ids": [task.task_id for task in tasks],
        "places": [row.start_time for row in rows],
        "revisions": [row.revision for row in rows],
    }
    session = await sessions.open()
    if config is not None:
        await session.execute(
            "INSERT INTO timer_biz (biz_type, version, config, create_time, update_time)"
            " VALUES (%s, 1, %s, 0, 0)",
            [BIZ_TYPE, config],
        )
    (verdicts,), *by_itself = await left_by(session, ALL_BY_ITSELF, params)
    (count,), *at_once = await left_by(session, AT_ONCE, params)
    assert by_itself == at_once
    # Waiting, due, a lease that had run out; the moved one, the one of another biz_type.
    assert count == verdicts.count("done") == 5
