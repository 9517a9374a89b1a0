"""Requeue rows under the due hand: published, re-armed, dropped; never against a newer row."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final
from uuid import UUID

import pytest

from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import VISIBILITY_S, Hands, ref_to, task_at
from tests.fix_lanes import Lanes
from tests.fix_sessions import Sessions
from wheel_timer import metrics
from wheel_timer.database import Database
from wheel_timer.store.claim import LEASE_MARGIN_MS, claim
from wheel_timer.store.requeue import Again, rearm, rescue
from wheel_timer.store.settle import settle_again, settle_final
from wheel_timer.store.submit import submit
from wheel_timer.task import Claim, NewTask, Result

ROW: Final = "SELECT due_at, reason FROM timer_requeue"
ROWS: Final = "SELECT count(*) FROM timer_requeue"
VISIBILITY_MS: Final = round(VISIBILITY_S * 1000)


def result_of(claim: Claim, outcome: str, delay_ms: int = 0) -> Result:
    return Result(
        claim.task_id, claim.start_time_ms, claim.biz_type, claim.attempt, claim.revision, outcome,
        delay_ms=delay_ms,
    )  # fmt: skip


async def claimed(db: Database, task: NewTask, moment_ms: int | None = None) -> Claim:
    (found,) = (await claim(db, [ref_to(task, moment_ms)], [1000])).claims
    return found


# What POST /tasks/{id}/replay does to a settled task, under the fence: pending again, and a row.
REPLAY: Final = """
WITH fence AS MATERIALIZED (SELECT wheel_fence_v1(CAST(0 AS smallint)) AS closed), task AS (
    UPDATE timer_task SET status = 0, finish_time = NULL, expire_at = NULL, failures = 0,
        revision = revision + 1, next_at = NULL
    WHERE task_id = %(id)s
)
INSERT INTO timer_requeue (task_id, shard, start_time, due_at, biz_type, reason)
SELECT %(id)s, 0, %(start)s, fence.closed + 1, 'orders', 'replay' FROM fence
ON CONFLICT (task_id) DO UPDATE SET due_at = EXCLUDED.due_at, reason = EXCLUDED.reason
"""


async def replay(sessions: Sessions, task: NewTask) -> None:
    session = await sessions.open()
    await session.execute(REPLAY, {"id": task.task_id, "start": task.start_time_ms})


async def test_a_row_whose_task_is_settled_is_dropped_and_not_published(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    now_ms = clock.freeze()
    task = task_at(now_ms)
    await submit(db, 0, [task])
    await settle_final(db, [result_of(await claimed(db, task), "finished")])
    # A sweep page that began before the settle leaves such a row.
    await replay(sessions, task_at(now_ms))
    clock.advance(5_000)
    await hands.serve()
    assert await lanes.ids() == []
    assert await sessions.value(ROWS) == 0
    await audits_hold()


async def test_a_drop_leaves_the_newer_row_of_a_replay_alone(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    """The hand read the row while its task was settled; a replay comes before the drop."""
    now_ms = clock.freeze()
    await hands.serve()
    task = task_at(now_ms)
    await submit(db, 0, [task])
    session = await sessions.open()
    await session.execute(
        "UPDATE timer_task SET status = 1, finish_time = %s, expire_at = %s", [now_ms, now_ms]
    )
    clock.advance(5_000)
    await hands.clock.measure()
    with hands.db.gate("rearm") as gate:
        ticking = asyncio.create_task(hands.due.serve())
        await gate.arrived()
        await replay(sessions, task)
        await audits_hold()
    await ticking
    assert await sessions.row(ROW) == (now_ms + 6_001, "replay")
    await audits_hold()
    assert await lanes.ids() == []
    clock.advance(2_000)
    await hands.serve()
    assert await lanes.ids() == [task.task_id]
    await audits_hold()


async def test_a_rearm_leaves_a_later_moment_alone(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    """A failure's retry, written between the hand's read and its re-arm, keeps its moment."""
    now_ms = clock.freeze()
    task = task_at(now_ms)
    await submit(db, 0, [task])
    mine = await claimed(db, task)
    clock.advance(10_000)
    await hands.clock.measure()
    with hands.db.gate("rearm") as gate:
        ticking = asyncio.create_task(hands.due.serve())
        await gate.arrived()
        await settle_again(db, 0, [result_of(mine, "retry", delay_ms=7_200_000)])
    await ticking
    assert await sessions.row(ROW) == (now_ms + 7_210_000, "retry")
    await audits_hold()


async def test_a_rearm_that_waits_for_a_row_looks_at_it_again(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    """The newer row is not yet committed when the re-arm meets it."""
    now_ms = clock.freeze()
    task = task_at(now_ms)
    await submit(db, 0, [task])
    to_ms = now_ms + 4_000
    writer = await sessions.open()
    async with writer.transaction():
        await writer.execute(
            "UPDATE timer_requeue SET due_at = %s, reason = 'run'", [now_ms + 4_001]
        )
        rearming = asyncio.create_task(
            rearm(db, 0, hands.leader.epoch, to_ms, [Again(task.task_id, None)])
        )
        await sessions.until_waiting("wheel_rearm")
    assert await rearming == 0
    assert await sessions.row(ROW) == (now_ms + 4_001, "run")
    await audits_hold()


async def test_a_row_is_published_once_and_rearmed_at_the_visibility_time(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    now_ms = clock.freeze()
    await hands.serve()
    task = task_at(now_ms)
    await submit(db, 0, [task])
    for _ in range(8):
        clock.advance(1_000)
        await hands.serve()
        await audits_hold()
    assert await lanes.ids() == [task.task_id]
    due_at_ms, reason = await sessions.row(ROW)
    assert reason == "published"
    # The net lay at now + 3 s, two seconds beyond closed_to; the tick at now + 2 s closed that.
    assert due_at_ms == now_ms + 2_000 + VISIBILITY_MS
    clock.freeze(due_at_ms)
    await hands.serve()
    assert await lanes.ids() == [task.task_id] * 2
    await audits_hold()


async def test_a_leased_task_is_looked_at_again_when_its_lease_ends(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    now_ms = clock.freeze()
    task = task_at(now_ms)
    await submit(db, 0, [task])
    (held,) = (await claim(db, [ref_to(task)], [20_000])).claims
    clock.advance(4_000)
    await hands.serve()
    assert await lanes.ids() == []
    assert await sessions.row(ROW) == (held.lease_until_ms, "near")
    assert held.lease_until_ms == now_ms + 20_000 + LEASE_MARGIN_MS
    await audits_hold()


async def test_a_retry_waits_for_its_moment_and_is_published_once(
    hands: Hands, db: Database, clock: DatabaseClock, lanes: Lanes, audits_hold: AuditsHold
) -> None:
    now_ms = clock.freeze()
    task = task_at(now_ms)
    await submit(db, 0, [task])
    await settle_again(db, 0, [result_of(await claimed(db, task), "retry", delay_ms=30_000)])
    for _ in range(32):
        clock.advance(1_000)
        await hands.serve()
    (ref,) = await lanes.refs()
    assert (ref.task_id, ref.moment_ms) == (task.task_id, now_ms + 30_000)
    await audits_hold()


async def test_the_hand_alone_publishes_no_due_moment_twice(
    hands: Hands, db: Database, clock: DatabaseClock, lanes: Lanes, audits_hold: AuditsHold
) -> None:
    """
    Ten seconds of ticks with submits between them, at all distances. A near task that still lay
    ahead of the hand has two due moments, its own and its net's; everything else has one.
    """
    now_ms = clock.freeze()
    await hands.serve()
    expected: Counter[UUID] = Counter()
    for tick in range(40):
        batch = [task_at(clock.now_ms() + (tick * 337 + 211 * n) % 5_000) for n in range(7)]
        for task, answer in zip(batch, await submit(db, 0, batch), strict=True):
            is_ahead = task.start_time_ms > hands.due.current_ms
            expected[task.task_id] = answer.near + is_ahead
        clock.advance(250)
        await hands.serve()
    await audits_hold()
    clock.freeze(now_ms + 20_000)
    await hands.serve()
    assert Counter(await lanes.ids()) == expected
    assert set(expected.values()) == {1, 2}
    await audits_hold()


async def test_a_row_behind_the_hand_is_put_ahead_of_it_again(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    lanes: Lanes,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    """There are none; somebody who writes one by hand gets it served within a minute."""
    now_ms = clock.freeze()
    await hands.serve()
    task = task_at(now_ms)
    await submit(db, 0, [task])
    await (await sessions.open()).execute("UPDATE timer_requeue SET due_at = %s", [now_ms - 1])
    assert await rescue(db, 0, hands.leader.epoch) == 1
    await audits_hold()
    clock.advance(2_000)
    await hands.serve()
    assert await lanes.ids() == [task.task_id]
    assert await rescue(db, 0, hands.leader.epoch) == 0


@pytest.mark.parametrize("rows", [999, 1_000, 1_001, 2_300])
async def test_many_rows_of_one_moment_are_all_published_once(
    rows: int, hands: Hands, db: Database, clock: DatabaseClock, lanes: Lanes
) -> None:
    """Pages end in the middle of a millisecond, on the wheel and among the requeue rows."""
    now_ms = clock.freeze()
    await hands.serve()
    near = [task_at(now_ms) for _ in range(rows)]
    plain = [task_at(now_ms + 5_000) for _ in range(rows)]
    for first in range(0, rows, 1_000):
        await submit(db, 0, near[first : first + 1_000])
        await submit(db, 0, plain[first : first + 1_000])
    clock.advance(4_000)
    await hands.serve()
    ids = await lanes.ids()
    assert len(ids) == 2 * rows
    assert set(ids) == {task.task_id for task in near + plain}


@pytest.mark.parametrize(
    ("reason", "late_ms"), [("sweep", 100_000), ("near", 2_700), ("overflow", 700), ("retry", 700)]
)
async def test_what_was_held_back_on_purpose_is_no_lateness_of_ours(
    hands: Hands,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    monkeypatch: pytest.MonkeyPatch,
    reason: str,
    late_ms: int,
) -> None:
    reported: list[float] = []
    monkeypatch.setattr(metrics, "published", lambda _, latenesses: reported.extend(latenesses))
    now_ms = clock.freeze()
    await submit(db, 0, [task_at(now_ms + 5_000)])
    session = await sessions.open()
    clock.advance(94_300)
    await hands.clock.measure()
    await hands.due.tick()
    await session.execute(
        "INSERT INTO timer_requeue (task_id, shard, start_time, due_at, biz_type, reason)"
        " SELECT task_id, shard, start_time, wheel_now_ms() + 10_000, biz_type, %s FROM timer_task",
        (reason,),
    )
    reported.clear()
    clock.advance(10_700)
    await hands.clock.measure()
    await hands.due.tick()
    assert [round(one * 1000) for one in reported] == [late_ms]
