"""Settle: fenced by revision and attempt; said twice, it changes nothing."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import Hands, ref_to, task_at
from tests.fix_sessions import Sessions
from wheel_timer.database import Database
from wheel_timer.errors import DataRejected
from wheel_timer.store.claim import claim
from wheel_timer.store.settle import settle_again, settle_final
from wheel_timer.store.submit import submit
from wheel_timer.store.task import TaskRow, attempts, lookup
from wheel_timer.task import Claim, NewTask, Ref, Result, Status

TIMEOUT_MS: Final = 10_000
LEASE_MS: Final = TIMEOUT_MS + 5_000
REQUEUE: Final = "SELECT due_at, reason FROM timer_requeue"
ALL_ROWS: Final = """
SELECT
    (SELECT array_agg(t.* ORDER BY t.task_id)::text FROM timer_task AS t),
    (SELECT array_agg(q.* ORDER BY q.task_id)::text FROM timer_requeue AS q),
    (SELECT array_agg(a.* ORDER BY a.task_id, a.attempt)::text FROM timer_attempt AS a),
    (SELECT array_agg(d.* ORDER BY d.task_id)::text FROM timer_dead AS d)
"""


@pytest.fixture
async def task(db: Database, clock: DatabaseClock) -> NewTask:
    """A task that is due now; the clock stands."""
    made = task_at(clock.freeze())
    await submit(db, 0, [made])
    return made


async def claimed(db: Database, task: NewTask) -> Claim:
    (mine,) = (await claim(db, [ref_to(task)], [TIMEOUT_MS])).claims
    return mine


def result_of(mine: Claim, outcome: str, **facts: Any) -> Result:
    return Result(
        mine.task_id, mine.start_time_ms, mine.biz_type, mine.attempt, mine.revision, outcome,
        **{"retention_ms": 60_000, "started_ms": mine.first_attempt_ms, **facts},
    )  # fmt: skip


async def settle(db: Database, result: Result) -> list[Ref]:
    if result.outcome in ("finished", "failed", "cancelled"):
        await settle_final(db, [result])
        return []
    return await settle_again(db, 0, [result])


async def row_of(db: Database, task: NewTask) -> TaskRow:
    return (await lookup(db, [task.task_id]))[task.task_id]


@pytest.mark.parametrize(
    ("outcome", "status", "rows"),
    [
        ("finished", Status.FINISHED, []),
        ("failed", Status.FAILED, ["failed"]),
        ("cancelled", Status.CANCELLED, ["cancelled"]),
    ],
)
async def test_a_settled_task_has_its_end_its_facts_and_no_requeue_row(
    outcome: str,
    status: Status,
    rows: list[str],
    db: Database,
    clock: DatabaseClock,
    task: NewTask,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    mine = await claimed(db, task)
    now_ms = clock.advance(40)
    await settle(db, result_of(mine, outcome, http_status=200, error="e", duration_ms=40))
    row = await row_of(db, task)
    assert (row.status, row.finish_time, row.expire_at) == (status, now_ms, now_ms + 60_000)
    assert (row.lease_until, row.next_at, row.attempts) == (None, None, 1)
    assert (row.http_status, row.last_error, row.duration) == (200, "e", 40)
    assert row.failures == (1 if outcome == "failed" else 0)
    assert await sessions.value("SELECT count(*) FROM timer_requeue") == 0
    assert await sessions.value("SELECT count(*) FROM timer_dead") == int(outcome == "failed")
    assert [attempt.outcome for attempt in await attempts(db, task.task_id)] == rows
    await audits_hold()


@pytest.mark.parametrize(
    ("outcome", "failures", "reason", "rows"),
    [
        ("retry", 1, "retry", ["retry"]),
        ("released", 0, "release", ["released"]),
        ("unstarted", 0, "release", []),
    ],
)
async def test_an_attempt_that_ends_nothing_leaves_its_row_ahead_of_the_hand(
    outcome: str,
    failures: int,
    reason: str,
    rows: list[str],
    db: Database,
    clock: DatabaseClock,
    task: NewTask,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    mine = await claimed(db, task)
    now_ms = clock.advance(40)
    started_ms = None if outcome == "unstarted" else now_ms
    near = await settle(
        db, result_of(mine, outcome, delay_ms=9_000, started_ms=started_ms, error="e")
    )
    assert near == []
    row = await row_of(db, task)
    assert (row.status, row.lease_until, row.next_at) == (Status.PENDING, None, now_ms + 9_000)
    assert (row.attempts, row.failures, row.revision) == (1, failures, 1)
    assert await sessions.row(REQUEUE) == (now_ms + 9_000, reason)
    assert [attempt.outcome for attempt in await attempts(db, task.task_id)] == rows
    await audits_hold()


async def test_a_retry_goes_nowhere_with_a_clock_that_has_just_jumped_ahead(
    db: Database, clock: DatabaseClock, task: NewTask, sessions: Sessions
) -> None:
    """Back again, it would have to wait for as long as the clock was wrong."""
    mine, now_ms = await claimed(db, task), clock.now_ms()
    clock.advance(3_600_000)
    result = result_of(mine, "retry", delay_ms=30_000)
    assert await settle_again(db, 0, [result], latest_ms=now_ms) == []
    assert (await row_of(db, task)).next_at == now_ms + 30_000
    assert await sessions.value("SELECT due_at FROM timer_requeue") == now_ms + 30_000


async def test_a_retry_within_the_look_ahead_is_for_the_caller_to_publish_and_has_its_net(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    task: NewTask,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    await hands.serve()
    mine = await claimed(db, task)
    now_ms = clock.now_ms()
    (ref,) = await settle(db, result_of(mine, "retry", delay_ms=1_400))
    assert ref == Ref(task.task_id, task.start_time_ms, now_ms + 1_400, now_ms + 1_400, "orders")
    assert await sessions.row(REQUEUE) == (now_ms + 3_400, "retry")
    await audits_hold()
    clock.advance(1_400)
    (again,) = (await claim(db, [ref], [TIMEOUT_MS])).claims
    assert again.attempt == 2


@pytest.mark.parametrize(
    "outcome", ["finished", "failed", "cancelled", "retry", "released", "unstarted"]
)
async def test_a_settle_that_is_sent_again_changes_nothing(
    outcome: str, db: Database, clock: DatabaseClock, task: NewTask, sessions: Sessions
) -> None:
    """Its reply was lost. A moment later, and once more after the next claim has come and gone."""
    mine = await claimed(db, task)
    result = result_of(mine, outcome, delay_ms=5_000)
    await settle(db, result)
    before = await sessions.row(ALL_ROWS)
    clock.advance(1_000)
    assert await settle(db, result) == []
    assert await sessions.row(ALL_ROWS) == before
    if outcome not in ("retry", "released", "unstarted"):
        return
    clock.advance(5_000)
    await claimed(db, task)
    before = await sessions.row(ALL_ROWS)
    assert await settle(db, result) == []
    assert await sessions.row(ALL_ROWS) == before


@pytest.mark.parametrize(
    "outcome", ["failed", "cancelled", "retry", "released", "unstarted", "finished"]
)
async def test_only_a_success_of_an_attempt_whose_lease_was_lost_still_counts(
    outcome: str,
    db: Database,
    clock: DatabaseClock,
    task: NewTask,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    """A broker that was frozen in its call reports after another has claimed the task."""
    old = await claimed(db, task)
    clock.advance(LEASE_MS)
    new = await claimed(db, task)
    before = await sessions.row(ALL_ROWS)
    await settle(db, result_of(old, outcome, delay_ms=1_000))
    if outcome == "finished":
        assert (await row_of(db, task)).status is Status.FINISHED
    else:
        assert await sessions.row(ALL_ROWS) == before
        await settle(db, result_of(new, "finished"))
    await settle(db, result_of(new, "failed"))
    assert (await row_of(db, task)).status is Status.FINISHED
    assert await sessions.value("SELECT count(*) FROM timer_dead") == 0
    await audits_hold()


@pytest.mark.parametrize("outcome", ["finished", "failed", "retry", "released", "unstarted"])
async def test_a_result_of_an_older_revision_leaves_only_its_attempt_row(
    outcome: str,
    db: Database,
    clock: DatabaseClock,
    task: NewTask,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    """The task was changed while the call was under way: it is not done, it is another task."""
    mine = await claimed(db, task)
    await (await sessions.open()).execute(
        "UPDATE timer_task SET revision = revision + 1, lease_until = NULL"
    )
    before = await row_of(db, task)
    row = await sessions.row(REQUEUE)
    assert await settle(db, result_of(mine, outcome, http_status=200)) == []
    assert await row_of(db, task) == before
    assert await sessions.row(REQUEUE) == row
    kept = [(kept.outcome, kept.http_status) for kept in await attempts(db, task.task_id)]
    assert kept == ([] if outcome == "unstarted" else [("superseded", 200)])
    await audits_hold()


@pytest.mark.parametrize("outcome", ["retry", "released", "unstarted"])
async def test_a_stopped_task_is_cancelled_where_it_would_have_come_again(
    outcome: str,
    db: Database,
    clock: DatabaseClock,
    task: NewTask,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    mine = await claimed(db, task)
    await (await sessions.open()).execute("UPDATE timer_task SET stop = true")
    assert await settle(db, result_of(mine, outcome, delay_ms=100)) == []
    row = await row_of(db, task)
    assert (row.status, row.next_at, row.lease_until) == (Status.CANCELLED, None, None)
    assert (row.finish_time, row.expire_at) == (clock.now_ms(), clock.now_ms() + 60_000)
    assert await sessions.value("SELECT count(*) FROM timer_requeue") == 0
    await audits_hold()


async def test_a_mixed_batch_settles_each_row_by_its_own_outcome(
    db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    now_ms = clock.freeze()
    tasks = [task_at(now_ms - 1_000 * (n % 5)) for n in range(60)]
    await submit(db, 0, tasks)
    claims = (await claim(db, [ref_to(task) for task in tasks], [TIMEOUT_MS] * 60)).claims
    # Attempt 9 is nobody's: those rows are left alone among the others.
    outcomes = ["finished", "failed", "cancelled", "retry", "released", "unstarted"]
    results = [result_of(mine, outcomes[n % 6], delay_ms=n * 100) for n, mine in enumerate(claims)]
    stale = results[:6]
    for result in stale[1:]:
        result.attempt = 9
    await settle_final(db, [r for r in results if r.outcome in outcomes[:3]])
    near = await settle_again(db, 0, [r for r in results if r.outcome in outcomes[3:]])
    rows = await lookup(db, [task.task_id for task in tasks])
    expected = {
        "finished": Status.FINISHED,
        "failed": Status.FAILED,
        "cancelled": Status.CANCELLED,
    }
    for result in results:
        row = rows[result.task_id]
        if result in stale[1:]:
            assert (row.status, row.attempts) == (Status.PENDING, 1)
            assert row.lease_until is not None
        else:
            assert row.status is expected.get(result.outcome, Status.PENDING)
    due_soon = {
        result.task_id
        for result in results
        if result not in stale and result.outcome in outcomes[3:] and result.delay_ms <= 1_500
    }
    assert {ref.task_id for ref in near} == due_soon
    assert await sessions.value("SELECT count(*) FROM timer_dead") == 9
    await audits_hold()


@pytest.mark.parametrize("outcome", ["failed", "retry"])
async def test_a_batch_with_a_text_that_postgres_refuses_changes_nothing(
    outcome: str, db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    now_ms = clock.freeze()
    tasks = [task_at(now_ms), task_at(now_ms)]
    await submit(db, 0, tasks)
    claims = (await claim(db, [ref_to(task) for task in tasks], [TIMEOUT_MS] * 2)).claims
    good, bad = (result_of(mine, outcome, error="e") for mine in claims)
    bad.error = "a\0b"
    before = await sessions.row(ALL_ROWS)
    settling = (
        settle_again(db, 0, [good, bad]) if outcome == "retry" else settle_final(db, [good, bad])
    )
    with pytest.raises(DataRejected):
        await settling
    assert await sessions.row(ALL_ROWS) == before
