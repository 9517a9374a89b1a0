"""The ledger: each edge of a task counted where it belongs, whether folded yet or not."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands, ref_to, task_at
from tests.fix_sessions import Sessions
from wheel_timer.database import Database
from wheel_timer.store.change import Change, Verb, change
from wheel_timer.store.claim import claim
from wheel_timer.store.ledger import fold, totals
from wheel_timer.store.settle import settle_again, settle_final, settle_noted
from wheel_timer.store.submit import submit
from wheel_timer.task import Claim, NewTask, Result
from wheel_timer.wheel import new_task_id

QUARTER_MS: Final = 900_000
DAY_MS: Final = 86_400_000
BEGAN_MS: Final = 1_790_000_000_000 // QUARTER_MS * QUARTER_MS
COLUMNS: Final = (
    *("submitted", "moved_in", "moved_out", "revived", "finished", "failed", "cancelled"),
    *("purged", "pending", "reaped_finished", "reaped_failed", "reaped_cancelled"),
)
LEDGER: Final = f"SELECT biz_type, quarter, {', '.join(COLUMNS)} FROM timer_ledger_view"
DAYS: Final = f"SELECT biz_type, day, {', '.join(COLUMNS)} FROM timer_ledger_day_view"
MARK: Final = "SELECT folded_to FROM timer_ledger_mark"
UNFOLDED: Final = "SELECT count(*) FROM timer_ledger_delta"


@pytest.fixture
def began_ms(clock: DatabaseClock) -> int:
    """The clock stands at the beginning of a quarter hour."""
    clock.freeze(BEGAN_MS)
    return BEGAN_MS


@pytest.fixture
async def task(db: Database, began_ms: int) -> NewTask:
    """A task that is due now."""
    made = task_at(began_ms, biz_id="one")
    await submit(db, 0, [made])
    return made


async def ledger(sessions: Sessions, query: str = LEDGER) -> dict[int, dict[str, int]]:
    """By quarter hours from BEGAN_MS on (by days: of it): what is not zero."""
    session = await sessions.open()
    found = {}
    for _, since, *counts in await (await session.execute(query.encode())).fetchall():
        after = 0 if query is DAYS else round((since.timestamp() * 1000 - BEGAN_MS) / QUARTER_MS)
        found[after] = {name: n for name, n in zip(COLUMNS, counts, strict=True) if n}
    return found


async def claimed(db: Database, task: NewTask) -> Claim:
    (mine,) = (await claim(db, [ref_to(task)], [10_000])).claims
    return mine


def result_of(mine: Claim, outcome: str, **facts: Any) -> Result:
    return Result(
        mine.task_id, mine.start_time_ms, mine.biz_type, mine.attempt, mine.revision, outcome,
        **{"retention_ms": DAY_MS, "started_ms": mine.first_attempt_ms, **facts},
    )  # fmt: skip


async def end(db: Database, task: NewTask, outcome: str) -> None:
    await settle_final(db, [result_of(await claimed(db, task), outcome)])


async def one(db: Database, task: NewTask, verb: Verb, **what: Any) -> None:
    await change(db, [Change(task.task_id, verb, **what)])


async def purge(sessions: Sessions, task: NewTask, revision: int = 1, after: int = 0) -> None:
    deleted = await sessions.value(
        "SELECT wheel_purge_v1(0::smallint, ARRAY[%s]::uuid[], ARRAY[%s]::bigint[], ARRAY[%s])",
        task.task_id, BEGAN_MS + after * QUARTER_MS, revision,
    )  # fmt: skip
    assert deleted == 1


async def both_ways(
    sessions: Sessions, db: Database, hands: Hands, expected: dict[int, dict[str, int]]
) -> None:
    """The same, by quarter hour and by day, before and after the fold."""
    day = {
        name: total
        for name in COLUMNS
        if (total := sum(counts.get(name, 0) for counts in expected.values()))
    }
    for _ in range(2):
        assert await ledger(sessions) == expected
        assert await ledger(sessions, DAYS) == {0: day}
        await fold(db, hands.leader.epoch, 100)
    assert await sessions.value(UNFOLDED) == 0
    found = {t.biz_type: (t.pending, t.dead) for t in await totals(db)}
    dead = await sessions.value("SELECT count(*) FROM timer_dead")
    assert found == {"orders": (day.get("pending", 0), dead)}


@pytest.mark.parametrize(
    ("outcome", "status"),
    [("finished", "finished"), ("failed", "failed"), ("cancelled", "cancelled")],
)
async def test_a_task_ends(
    outcome: str, status: str, task: NewTask, db: Database, sessions: Sessions, hands: Hands
) -> None:
    assert await ledger(sessions) == {0: {"submitted": 1, "pending": 1}}
    await end(db, task, outcome)
    # What is said twice counts once.
    await submit(db, 0, [task])
    await one(db, task, "cancel")
    await both_ways(sessions, db, hands, {0: {"submitted": 1, status: 1}})


async def test_an_attempt_that_fails_counts_for_nothing_but_a_stop_does(
    task: NewTask, db: Database, sessions: Sessions, hands: Hands
) -> None:
    other = task_at(BEGAN_MS)
    await submit(db, 0, [other])
    mine, theirs = await claimed(db, task), await claimed(db, other)
    await one(db, other, "cancel", stop=True)
    assert await ledger(sessions) == {0: {"submitted": 2, "pending": 2}}
    await settle_again(db, 0, [result_of(mine, "retry"), result_of(theirs, "retry")])
    await both_ways(sessions, db, hands, {0: {"submitted": 2, "pending": 1, "cancelled": 1}})


async def test_a_task_moves_about(
    task: NewTask, db: Database, sessions: Sessions, hands: Hands, audits_hold: AuditsHold
) -> None:
    await one(db, task, "patch", has_data=True, biz_data=b"1")
    assert await ledger(sessions) == {0: {"submitted": 1, "pending": 1}}
    for to in (BEGAN_MS + 5_000, BEGAN_MS + 3 * QUARTER_MS, BEGAN_MS + 4 * QUARTER_MS, BEGAN_MS):
        await one(db, task, "patch", to_time_ms=to)
    there_and_back = {"moved_in": 1, "moved_out": 1}
    await both_ways(sessions, db, hands, {
        0: {"submitted": 1, "moved_in": 2, "moved_out": 2, "pending": 1},
        3: there_and_back,
        4: there_and_back,
    })  # fmt: skip
    await audits_hold()


@pytest.mark.parametrize("outcome", ["finished", "failed", "cancelled"])
async def test_a_settled_task_is_replayed(
    outcome: str, task: NewTask, db: Database, sessions: Sessions, hands: Hands
) -> None:
    await end(db, task, outcome)
    await one(db, task, "replay")
    again = {"submitted": 1, outcome: 1, "revived": 1}
    await both_ways(sessions, db, hands, {0: {**again, "pending": 1}})


@pytest.mark.parametrize("outcome", ["finished", "failed", "cancelled"])
async def test_a_settled_task_is_started_anew_somewhere_else(
    outcome: str, task: NewTask, db: Database, sessions: Sessions, hands: Hands
) -> None:
    await end(db, task, outcome)
    await one(db, task, "replace", to_time_ms=BEGAN_MS + QUARTER_MS)
    await both_ways(sessions, db, hands, {
        0: {"submitted": 1, outcome: 1, "revived": 1, "moved_out": 1},
        1: {"moved_in": 1, "pending": 1},
    })  # fmt: skip


async def test_one_that_is_being_delivered_is_replaced(
    task: NewTask, db: Database, sessions: Sessions, hands: Hands
) -> None:
    """A new life, but nothing had ended."""
    await claimed(db, task)
    await one(db, task, "replace", to_time_ms=BEGAN_MS + QUARTER_MS)
    await both_ways(sessions, db, hands, {
        0: {"submitted": 1, "moved_out": 1},
        1: {"moved_in": 1, "pending": 1},
    })  # fmt: skip


async def test_a_dead_letter_is_discarded(
    task: NewTask, db: Database, sessions: Sessions, hands: Hands, audits_hold: AuditsHold
) -> None:
    await end(db, task, "failed")
    await one(db, task, "cancel", discard=True)
    gone = {"submitted": 1, "failed": 1, "revived": 1, "cancelled": 1}
    await both_ways(sessions, db, hands, {0: gone})
    await audits_hold()


async def test_a_task_is_purged(
    task: NewTask, db: Database, sessions: Sessions, hands: Hands, audits_hold: AuditsHold
) -> None:
    """A pending one, moved before, with the row at home that forwards to it."""
    await one(db, task, "patch", to_time_ms=BEGAN_MS + QUARTER_MS)
    await purge(sessions, task, revision=2, after=1)
    expected = {0: {"submitted": 1, "moved_out": 1}, 1: {"moved_in": 1, "purged": 1}}
    await both_ways(sessions, db, hands, expected)
    await audits_hold()


@pytest.mark.parametrize("outcome", ["finished", "failed", "cancelled"])
async def test_a_settled_task_is_purged(
    outcome: str, task: NewTask, db: Database, sessions: Sessions, hands: Hands
) -> None:
    await end(db, task, outcome)
    await purge(sessions, task)
    await both_ways(sessions, db, hands, {0: {"submitted": 1, outcome: 1, f"reaped_{outcome}": 1}})


async def test_a_notice_of_a_dead_task_is_a_task_like_any(
    task: NewTask, db: Database, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    notice = NewTask(new_task_id(BEGAN_MS), BEGAN_MS, "deaths", "one-1", b"{}", "text/plain")
    mine = await claimed(db, task)
    for _ in range(2):
        await settle_noted(db, 0, [result_of(mine, "failed", notice=notice)])
    rows = await (await sessions.open()).execute(
        "SELECT biz_type, submitted, failed, pending FROM timer_ledger_view ORDER BY 1"
    )
    assert await rows.fetchall() == [("deaths", 1, 0, 1), ("orders", 1, 1, 0)]
    await audits_hold()


async def test_a_batch_counts_by_biz_type_and_quarter_hour(
    db: Database, began_ms: int, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    """A duplicate, and a task that was there before, count for nothing."""
    tasks = [
        task_at(began_ms + n % 3 * QUARTER_MS, f"b{n % 2}", biz_id=f"{n // 2}") for n in range(60)
    ]
    await submit(db, 0, tasks[:40])
    await submit(db, 0, [*tasks, task_at(began_ms, "b0", biz_id="7")])
    rows = await (await sessions.open()).execute(
        "SELECT biz_type, submitted, pending FROM timer_ledger_view ORDER BY biz_type, quarter"
    )
    assert await rows.fetchall() == [(f"b{n // 3}", 10, 10) for n in range(6)]
    # Two transactions, of one row each for every biz_type and quarter hour they had anything of.
    assert await sessions.value(UNFOLDED) == 12
    await audits_hold()


async def test_the_day_is_that_of_the_submit(
    task: NewTask, db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    clock.freeze(BEGAN_MS + 2 * DAY_MS)
    await one(db, task, "patch", to_time_ms=BEGAN_MS + 3 * DAY_MS)
    await one(db, task, "cancel")
    days = await (await sessions.open()).execute("SELECT day, cancelled FROM timer_ledger_day_view")
    (row,) = await days.fetchall()
    assert (row[0].isoformat(), row[1]) == ("2026-09-21", 1)
