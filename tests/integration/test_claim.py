"""The claim: exclusive, expiring, never early, in the order of its verdicts."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import Final
from uuid import UUID

import pytest

from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import ref_to, task_at
from tests.fix_sessions import Sessions
from wheel_timer.database import Database
from wheel_timer.store import claim as store
from wheel_timer.store.claim import EARLY_MS, LEASE_MARGIN_MS, Claimed, claim
from wheel_timer.store.settle import settle_again, settle_final
from wheel_timer.store.submit import submit
from wheel_timer.store.task import attempts, lookup
from wheel_timer.task import Claim, NewTask, Result

TIMEOUT_MS: Final = 10_000
LEASE_MS: Final = TIMEOUT_MS + LEASE_MARGIN_MS
NOTHING: Final = Claimed([], [], [], [])


async def claim_all(db: Database, *tasks: NewTask, moment_ms: int | None = None) -> Claimed:
    return await claim(db, [ref_to(task, moment_ms) for task in tasks], [TIMEOUT_MS] * len(tasks))


def result_of(mine: Claim, outcome: str, delay_ms: int = 0) -> Result:
    return Result(
        mine.task_id, mine.start_time_ms, mine.biz_type, mine.attempt, mine.revision, outcome,
        delay_ms=delay_ms,
    )  # fmt: skip


async def test_a_claim_brings_all_that_an_attempt_takes(db: Database, clock: DatabaseClock) -> None:
    now_ms = clock.freeze()
    task = task_at(
        now_ms - 5,
        biz_id="order 7",
        biz_data=b"\x00\xff",
        content_type="application/octet-stream",
        callback=b'{"url": "http://127.0.0.1/x"}',
        retry=b'{"max_attempts": 3}',
        max_age_ms=60_000,
        traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    )
    await submit(db, 0, [task])
    clock.advance(100)
    assert await claim_all(db, task) == NOTHING._replace(
        claims=[
            Claim(
                task_id=task.task_id,
                start_time_ms=now_ms - 5,
                biz_type="orders",
                biz_id="order 7",
                attempt=1,
                failures=0,
                revision=1,
                life=1,
                stop=False,
                lease_until_ms=now_ms + 100 + LEASE_MS,
                create_time_ms=now_ms,
                first_attempt_ms=now_ms + 100,
                biz_data=b"\x00\xff",
                content_type="application/octet-stream",
                callback='{"url": "http://127.0.0.1/x"}',
                retry='{"max_attempts": 3}',
                max_age_ms=60_000,
                schedule_id=None,
                traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                was_lost=False,
            )
        ]
    )


@pytest.mark.parametrize("slots", [1, 40])
async def test_of_twenty_claimers_each_task_has_exactly_one(
    slots: int, db: Database, clock: DatabaseClock, audits_hold: AuditsHold
) -> None:
    """All want the same 500, each in an order of its own."""
    now_ms = clock.now_ms()
    tasks = [task_at(now_ms - 1_000 * (n % slots)) for n in range(500)]
    await submit(db, 0, tasks)
    chance = random.Random(20)
    orders = [chance.sample(tasks, len(tasks)) for _ in range(20)]
    answers = await asyncio.gather(*(claim_all(db, *order) for order in orders))
    winners = Counter(mine.task_id for answer in answers for mine in answer.claims)
    assert winners == {task.task_id: 1 for task in tasks}
    assert all(mine.attempt == 1 for answer in answers for mine in answer.claims)
    # Nobody was told nothing: to the losers each is leased.
    assert {len(answer.claims) + len(answer.leased) for answer in answers} == {500}
    await audits_hold()


async def test_claims_and_settles_of_the_same_rows_in_any_order_never_deadlock(
    db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    now_ms = clock.now_ms()
    tasks = [task_at(now_ms - n % 3) for n in range(120)]
    await submit(db, 0, tasks)
    chance = random.Random(3)

    async def broker() -> int:
        done = 0
        for _ in range(3):
            answer = await claim_all(db, *chance.sample(tasks, len(tasks)))
            chance.shuffle(answer.claims)
            await settle_final(db, [result_of(mine, "finished") for mine in answer.claims])
            done += len(answer.claims)
        return done

    assert sum(await asyncio.gather(*(broker() for _ in range(6)))) == len(tasks)
    assert await sessions.value("SELECT count(*) FROM timer_task WHERE status = 1") == len(tasks)
    await audits_hold()


async def test_a_lease_that_runs_out_costs_one_failure_and_leaves_one_row(
    db: Database, clock: DatabaseClock, audits_hold: AuditsHold
) -> None:
    now_ms = clock.freeze()
    task = task_at(now_ms)
    await submit(db, 0, [task])
    (first,) = (await claim_all(db, task)).claims
    clock.advance(LEASE_MS - 1)
    assert await claim_all(db, task) == NOTHING._replace(
        leased=[(task.task_id, first.lease_until_ms)]
    )
    clock.advance(1)
    (second,) = (await claim_all(db, task)).claims
    assert (second.attempt, second.failures, second.was_lost) == (2, 1, True)
    (lost,) = await attempts(db, task.task_id)
    assert (lost.attempt, lost.outcome, lost.error_class) == (1, "lost", "lost")
    clock.advance(LEASE_MS)
    (third,) = (await claim_all(db, task)).claims
    assert (third.attempt, third.failures, third.was_lost) == (3, 2, True)
    assert [row.attempt for row in await attempts(db, task.task_id)] == [1, 2]
    await audits_hold()


async def test_of_twenty_who_find_a_lease_run_out_one_counts_it(
    db: Database, clock: DatabaseClock
) -> None:
    now_ms = clock.freeze()
    task = task_at(now_ms)
    await submit(db, 0, [task])
    await claim_all(db, task)
    clock.advance(LEASE_MS)
    answers = await asyncio.gather(*(claim_all(db, task) for _ in range(20)))
    (mine,) = [mine for answer in answers for mine in answer.claims]
    assert (mine.attempt, mine.failures) == (2, 1)
    assert len(await attempts(db, task.task_id)) == 1


@pytest.mark.parametrize(
    ("ahead_ms", "verdict"), [(EARLY_MS, "claims"), (EARLY_MS + 1, "early"), (3_600_000, "early")]
)
async def test_what_lies_further_ahead_than_a_claim_may_be_is_early(
    ahead_ms: int, verdict: str, db: Database, clock: DatabaseClock
) -> None:
    """By the database's clock, whatever the caller's says."""
    now_ms = clock.freeze()
    task = task_at(now_ms + ahead_ms)
    await submit(db, 0, [task])
    answer = await claim_all(db, task, moment_ms=now_ms)
    assert [name for name, rows in answer._asdict().items() if rows] == [verdict]
    if verdict == "early":
        assert answer.early == [task.task_id]
        row = (await lookup(db, [task.task_id]))[task.task_id]
        assert (row.attempts, row.lease_until) == (0, None)


async def test_an_old_copy_of_an_entry_does_not_jump_a_backoff(
    db: Database, clock: DatabaseClock, audits_hold: AuditsHold
) -> None:
    """A second entry of the same task, with the first moment, waits for next_at like any other."""
    now_ms = clock.freeze()
    task = task_at(now_ms)
    await submit(db, 0, [task])
    (mine,) = (await claim_all(db, task)).claims
    await settle_again(db, 0, [result_of(mine, "retry", delay_ms=30_000)])
    for advance_ms in (0, 1_000, 28_979):
        clock.advance(advance_ms)
        assert await claim_all(db, task) == NOTHING._replace(
            leased=[(task.task_id, now_ms + 30_000)]
        )
        # The retry's own entry is early, and stays in its broker's heap.
        early = await claim_all(db, task, moment_ms=now_ms + 30_000)
        assert early == NOTHING._replace(early=[task.task_id])
    clock.advance(1)
    (again,) = (await claim_all(db, task, moment_ms=now_ms + 30_000)).claims
    assert (again.attempt, again.failures) == (2, 1)
    await audits_hold()


async def test_of_the_settled_and_the_unknown_nothing_is_said(
    db: Database, clock: DatabaseClock
) -> None:
    now_ms = clock.freeze()
    settled, unknown = task_at(now_ms), task_at(now_ms)
    await submit(db, 0, [settled])
    (mine,) = (await claim_all(db, settled)).claims
    await settle_final(db, [result_of(mine, "finished")])
    assert await claim_all(db, settled, unknown) == NOTHING
    # A reference to a place where the task is not.
    elsewhere = [ref_to(settled)._replace(start_time_ms=now_ms + 1_000)]
    assert await claim(db, elsewhere, [TIMEOUT_MS]) == NOTHING


async def test_the_tasks_own_timeout_makes_its_lease(db: Database, clock: DatabaseClock) -> None:
    now_ms = clock.freeze()
    task = task_at(now_ms, callback=b'{"timeout": 2.5}')
    await submit(db, 0, [task])
    (mine,) = (await claim_all(db, task)).claims
    assert mine.lease_until_ms == now_ms + 2_500 + LEASE_MARGIN_MS


async def test_the_bytes_of_one_answer_are_bounded_and_the_rest_is_claimed_next(
    db: Database, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "BATCH_BYTES_MAX", 25_000)
    now_ms = clock.freeze()
    tasks = sorted(
        (task_at(now_ms, biz_data=b"x" * 10_000) for _ in range(5)), key=lambda task: task.task_id
    )
    await submit(db, 0, tasks)
    left: set[UUID] = {task.task_id for task in tasks}
    rounds = 0
    while left:
        answer = await claim_all(db, *(task for task in tasks if task.task_id in left))
        taken = {mine.task_id for mine in answer.claims}
        assert 1 <= len(taken) <= 2
        assert set(answer.again) == left - taken
        left -= taken
        rounds += 1
    assert rounds == 3
    # One that is larger than the bound all by itself is still given out.
    (large,) = [task_at(now_ms, biz_data=b"x" * 30_000)]
    await submit(db, 0, [large])
    assert len((await claim_all(db, large)).claims) == 1


async def test_a_claim_waits_for_a_row_in_somebody_elses_hands_and_then_looks_again(
    db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    """It must not skip locked rows: they would count as settled, and their entries be dropped."""
    task = task_at(clock.now_ms())
    await submit(db, 0, [task])
    holder = await sessions.open()
    async with holder.transaction():
        await holder.execute("SELECT FROM timer_task WHERE task_id = %s FOR UPDATE", [task.task_id])
        claiming = asyncio.create_task(claim_all(db, task))
        await sessions.until_waiting("wheel_claim")
    assert len((await claiming).claims) == 1


async def test_a_batch_may_span_partitions_and_the_rings_end(
    db: Database, clock: DatabaseClock
) -> None:
    """Past moments of two partitions: one statement each, both claimed."""
    now_ms = clock.freeze(1_800_000_000_500)
    tasks = [task_at(now_ms - ms) for ms in (0, 499, 500, 501, 1_500, 100_000_000, 200_000_000)]
    await submit(db, 0, tasks)
    answer = await claim_all(db, *tasks)
    assert {mine.task_id for mine in answer.claims} == {task.task_id for task in tasks}
