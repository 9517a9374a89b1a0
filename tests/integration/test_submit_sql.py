"""wheel_submit_v1 on its own: what a batch writes, and that it writes all of it or nothing."""

from __future__ import annotations

import asyncio
import random
from typing import Any, Final

import pytest

from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import LOOKAHEAD_MS, Hands, ref_to, task_at
from tests.fix_sessions import Sessions
from wheel_timer.database import Database
from wheel_timer.errors import DataRejected
from wheel_timer.store.claim import claim
from wheel_timer.store.settle import settle_final
from wheel_timer.store.submit import BATCH_ROWS_MAX, Submitted, submit
from wheel_timer.store.task import lookup
from wheel_timer.task import NewTask, Result, Status
from wheel_timer.wheel import partition_of, slot_of

HOUR_MS: Final = 3_600_000
ROWS: Final = """
SELECT (SELECT count(*) FROM timer_task), (SELECT count(*) FROM timer_key),
    (SELECT count(*) FROM timer_requeue)
"""


@pytest.mark.parametrize(
    "bad",
    [
        {"callback": b"{"},
        {"callback": rb'{"url": "\u0000"}'},
        {"retry": b""},
        {"biz_id": "x" * 257},
        {"biz_id": ""},
        {"biz_id": "a\0b"},
        {"biz_type": "a\0b"},
        {"content_type": "a\0b"},
        {"start_time_ms": 0},
        {"start_time_ms": 253_402_300_800_000},
    ],
    ids=lambda bad: f"{next(iter(bad))}-{str(next(iter(bad.values())))[:12]!a}",
)
async def test_one_bad_row_fails_the_batch_with_nothing_written(
    bad: dict[str, Any], db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    now_ms = clock.now_ms()
    good = [task_at(now_ms, biz_id=f"good {number}") for number in range(3)]
    fields: dict[str, Any] = {"start_time_ms": now_ms, "biz_type": "orders", **bad}
    with pytest.raises(DataRejected):
        await submit(db, 0, [*good[:2], NewTask(task_at(now_ms).task_id, **fields), good[2]])
    assert await sessions.row(ROWS) == (0, 0, 0)
    # Halved down to single rows by the caller, the others get in.
    await submit(db, 0, good[:2])
    await submit(db, 0, good[2:])
    assert await sessions.row(ROWS) == (3, 3, 3)


async def test_a_slot_without_a_partition_takes_nothing_and_spoils_no_other(
    db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    now_ms = clock.now_ms()
    task, elsewhere = task_at(now_ms + HOUR_MS), task_at(now_ms + HOUR_MS + 200_000_000)
    partition = f"timer_task_{partition_of(slot_of(task.start_time_ms)):02}"
    session = await sessions.open()
    await session.execute(f"ALTER TABLE timer_task DETACH PARTITION {partition}".encode())
    with pytest.raises(DataRejected):
        await submit(db, 0, [elsewhere, task])
    assert await sessions.row(ROWS) == (0, 0, 0)
    await submit(db, 0, [elsewhere])
    assert await sessions.row(ROWS) == (1, 0, 0)


async def test_a_batch_of_more_than_a_thousand_is_refused_by_the_database_too(
    sessions: Sessions, clock: DatabaseClock, db: Database
) -> None:
    tasks = [task_at(clock.now_ms() + HOUR_MS) for _ in range(BATCH_ROWS_MAX)]
    assert await submit(db, 0, tasks) == [Submitted(False, None)] * BATCH_ROWS_MAX
    one_more = "SELECT near FROM wheel_submit_v1(CAST(0 AS smallint), %s, '{}', '{}', '{}', '{}',"
    with pytest.raises(Exception, match="at most 1000"):
        await (await sessions.open()).execute(
            (one_more + " '{}', '{}', '{}', '{}', '{}', 1000)").encode(),
            [[task.task_id for task in tasks] + [task_at(0).task_id]],
        )


async def test_the_same_batch_again_is_accepted_again_and_written_once(
    db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    """A reply that was lost: the same ids are sent again."""
    now_ms = clock.freeze()
    tasks = [task_at(now_ms, biz_id="near"), task_at(now_ms + HOUR_MS, biz_id="far")]
    first = await submit(db, 0, tasks)
    assert await submit(db, 0, tasks) == first == [Submitted(True, None), Submitted(False, None)]
    assert await sessions.row(ROWS) == (2, 2, 1)
    await audits_hold()


async def test_a_batch_that_is_sent_again_does_not_revive_what_is_finished(
    hands: Hands, db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    now_ms = clock.freeze()
    task = task_at(now_ms)
    await submit(db, 0, [task])
    (claimed,) = (await claim(db, [ref_to(task)], [1000])).claims
    await settle_final(
        db,
        [Result(task.task_id, now_ms, "orders", claimed.attempt, claimed.revision, "finished")],
    )
    await submit(db, 0, [task])
    assert (await lookup(db, [task.task_id]))[task.task_id].status is Status.FINISHED
    assert (await claim(db, [ref_to(task)], [1000])).claims == []
    await audits_hold()
    # The net that the second submit left is dropped by the hand.
    clock.advance(5_000)
    await hands.serve()
    assert await sessions.row(ROWS) == (1, 0, 0)


async def test_a_taken_biz_id_writes_nothing_and_names_its_holder(
    db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    now_ms = clock.now_ms()
    holder = task_at(now_ms + HOUR_MS, biz_id="7")
    await submit(db, 0, [holder])
    twin, other, inner = (task_at(now_ms, biz_id=biz_id) for biz_id in ("7", "8", "8"))
    elsewhere = task_at(now_ms, biz_type="refunds", biz_id="7")
    assert await submit(db, 0, [twin, other, inner, elsewhere]) == [
        Submitted(False, holder.task_id),
        Submitted(True, None),
        Submitted(False, other.task_id),
        Submitted(True, None),
    ]
    assert await sessions.row(ROWS) == (3, 3, 2)


async def test_submits_of_the_same_keys_in_any_order_never_deadlock(
    db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    start_ms = clock.now_ms()
    chance = random.Random(7)

    async def batch() -> list[Submitted]:
        tasks = [task_at(start_ms, biz_id=str(number)) for number in range(50)]
        chance.shuffle(tasks)
        return await submit(db, 0, tasks)

    answers = await asyncio.gather(*(batch() for _ in range(8)))
    assert sum(answer.existing is None for batch_ in answers for answer in batch_) == 50
    assert await sessions.row(ROWS) == (50, 50, 50)
    await audits_hold()


async def test_near_is_what_is_due_within_one_and_a_half_look_aheads(
    db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    now_ms = clock.freeze()
    near_to_ms = LOOKAHEAD_MS * 3 // 2
    near = [task_at(now_ms + ms) for ms in (-10 * 365 * 24 * HOUR_MS, -1, 0, 1, near_to_ms)]
    far = [task_at(now_ms + ms) for ms in (near_to_ms + 1, HOUR_MS)]
    answers = await submit(db, 0, near + far)
    assert answers == [Submitted(True, None)] * 5 + [Submitted(False, None)] * 2
    nets = await sessions.value("SELECT array_agg(due_at ORDER BY start_time) FROM timer_requeue")
    assert nets == [max(now_ms, task.start_time_ms) + 2_000 for task in near]
    await audits_hold()
