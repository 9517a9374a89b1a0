"""The audit `lateness`: where the time between a task's moment and its call went."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from psycopg import AsyncConnection

from tests.fix_clock import DatabaseClock
from tests.fix_hands import task_at
from tests.fix_sessions import Sessions
from tests.fix_tasks import submit_all
from wheel_timer.database import Database
from wheel_timer.store import lanetime
from wheel_timer.store.audit import run_audits
from wheel_timer.task import NewTask


async def finished(
    session: AsyncConnection[Any], task: NewTask, attempts: int, **facts: int | None
) -> None:
    """As a broker would have left it. Times in ms after the task's moment."""
    columns = {"started": 0, "published": -1_000, "duration": 0} | facts
    at_ms = task.start_time_ms
    await session.execute(
        "UPDATE timer_task SET status = 1, attempts = %s, started = %s, published = %s,"
        " duration = %s, create_time = %s, finish_time = %s, expire_at = %s WHERE task_id = %s",
        [
            attempts,
            at_ms + (columns["started"] or 0),
            at_ms + (columns["published"] or 0),
            columns["duration"],
            at_ms - 60_000,
            at_ms,
            at_ms + 86_400_000,
            task.task_id,
        ],
    )


async def report(db: Database) -> dict[str, dict[str, Any]]:
    (audit,) = [one for one in await run_audits(db) if one.name == "lateness"]
    rows = [dict(zip(audit.columns, row, strict=True)) for row in audit.rows]
    return {row.pop("biz_type"): row for row in rows}


async def test_lateness_is_summed_by_whose_it_was(
    db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    now_ms = clock.now_ms()
    session = await sessions.open()
    prompt, unpublished, waiting, retried, old = await submit_all(
        db,
        [
            task_at(now_ms + n, name)
            for n, name in enumerate(("prompt", "ours", "lane", "retried", "old"))
        ],
    )
    await finished(session, prompt, 1, started=1, duration=12)
    # Published three seconds late, and a second in its lane after that.
    await finished(session, unpublished, 1, started=4_000, published=3_000, duration=100)
    await finished(session, waiting, 1, started=5_000)
    # A first attempt two seconds late that took 1.5 s and failed; the last, ten seconds later.
    await session.execute(
        "INSERT INTO timer_attempt (task_id, attempt, life, outcome, started_time, published_time,"
        " duration_ms) VALUES (%s, 1, 1, 'retry', %s, %s, 1500)",
        [retried.task_id, retried.start_time_ms + 2_000, retried.start_time_ms - 1_000],
    )
    await finished(session, retried, 2, started=12_000, published=11_000, duration=500)
    await finished(session, old, 1, started=9_000)
    await session.execute(
        "UPDATE timer_task SET finish_time = finish_time - 90000000 WHERE biz_type = 'old'"
    )
    found = await report(db)
    sums = ("retried", "max_ms", "ours_s", "lane_s", "retries_s", "receiver_s")
    assert {name: [row[key] for key in sums] for name, row in found.items()} == {
        "prompt": [0, 1, Decimal("0.0"), Decimal("0.0"), Decimal("0.0"), Decimal("0.0")],
        "ours": [0, 4_000, Decimal("3.0"), Decimal("1.0"), Decimal("0.0"), Decimal("0.1")],
        "lane": [0, 5_000, Decimal("0.0"), Decimal("5.0"), Decimal("0.0"), Decimal("0.0")],
        "retried": [1, 2_000, Decimal("0.0"), Decimal("2.0"), Decimal("10.0"), Decimal("2.0")],
    }


async def test_why_lanes_held_back_is_summed_over_brokers_for_two_days(
    db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    now_ms = clock.freeze()
    (task,) = await submit_all(db, [task_at(now_ms, "limited")])
    await finished(await sessions.open(), task, 1, started=5_000)
    await lanetime.add(db, {("limited", "rate_limited"): 4_000.4, ("other", "paused"): 1_000})
    await lanetime.add(db, {("limited", "rate_limited"): 500, ("limited", "breaker_open"): 2_000})
    found = await report(db)
    sums = ("tasks", "lane_s", "rate_limited_s", "concurrency_s", "breaker_open_s", "paused_s")
    assert {name: [row[key] for key in sums] for name, row in found.items()} == {
        "limited": [1, *map(Decimal, ("5.0", "4.5", "0.0", "2.0", "0.0"))],
        # Nothing of it is settled yet.
        "other": [0, None, *map(Decimal, ("0.0", "0.0", "0.0", "1.0"))],
    }
    clock.advance(3 * 86_400_000)
    await lanetime.add(db, {("limited", "paused"): 1})
    assert await sessions.value("SELECT count(*) FROM timer_lane_time") == 1
