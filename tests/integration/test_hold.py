"""Hold, fetch of what is held, recall: in SQL."""

from __future__ import annotations

from functools import partial

from tests.fix_audits import AuditsHold
from tests.fix_delivery import BIZ_TYPE, Delivery
from tests.fix_hands import task_at
from wheel_timer.store.fetch import fetch
from wheel_timer.store.hold import hold, recall
from wheel_timer.store.submit import submit
from wheel_timer.task import Ref

HOUR_MS = 3_600_000
MINUTE_MS = 60_000


async def test_a_held_task_is_covered_and_comes_back_when_it_is_let_go(
    resting_delivery: Delivery, audits_hold: AuditsHold
) -> None:
    delivery, db = resting_delivery, resting_delivery.db
    now_ms = int(delivery.clock.now_ms())
    task = task_at(now_ms)
    await submit(db, 0, [task])
    ref = Ref(task.task_id, now_ms, now_ms, now_ms, BIZ_TYPE)
    await hold(db, 0, [ref], [now_ms + HOUR_MS])
    assert await delivery.held() == [(task.task_id, now_ms + HOUR_MS)]
    bring_back = partial(fetch, db, 0, visibility_ms=MINUTE_MS, lookahead_ms=1_000)
    assert await bring_back({"another": 9}, reason="held") == []
    assert await bring_back({BIZ_TYPE: 9}, reason="overflow") == []
    (back,) = await bring_back({BIZ_TYPE: 9}, reason="held")
    assert await bring_back({BIZ_TYPE: 9}, reason="held") == []
    assert (back.task_id, back.start_time_ms, back.biz_type) == (task.task_id, now_ms, BIZ_TYPE)
    # By it lateness is counted, whatever was the reason; its net is what a publish would leave.
    assert back.moment_ms == now_ms
    ((due_at, reason),) = await delivery.rows("SELECT due_at, reason FROM timer_requeue")
    assert reason == "published"
    assert due_at == back.published_ms + MINUTE_MS
    await audits_hold()


async def test_what_is_settled_or_leased_or_waits_for_its_retry_is_not_held(
    resting_delivery: Delivery,
) -> None:
    delivery, db = resting_delivery, resting_delivery.db
    now_ms = int(delivery.clock.now_ms())
    tasks = [task_at(now_ms) for _ in range(4)]
    await submit(db, 0, tasks)
    refs = [Ref(task.task_id, now_ms, now_ms, now_ms, BIZ_TYPE) for task in tasks]
    leased, waiting, settled, gone = (task.task_id for task in tasks)
    await delivery.run(
        "UPDATE timer_task SET lease_until = %s WHERE task_id = %s", [now_ms + HOUR_MS, leased]
    )
    await delivery.run("UPDATE timer_requeue SET reason = 'retry' WHERE task_id = %s", [waiting])
    await delivery.run(
        "UPDATE timer_task SET status = 1, finish_time = 1, expire_at = 1 WHERE task_id = %s",
        [settled],
    )
    await delivery.run("DELETE FROM timer_task WHERE task_id = %s", [gone])
    await hold(db, 0, refs, [now_ms + HOUR_MS] * 4)
    assert await delivery.held() == []


async def test_a_retry_that_the_hand_is_just_publishing_is_held(
    resting_delivery: Delivery,
) -> None:
    delivery, db = resting_delivery, resting_delivery.db
    now_ms = int(delivery.clock.now_ms())
    task = task_at(now_ms)
    await submit(db, 0, [task])
    # Published, and not yet re-armed: a re-arm leaves the later moment of a held row alone.
    ((closed_to,),) = await delivery.rows("SELECT wheel_closed_to_v1(0::smallint)")
    await delivery.run("UPDATE timer_requeue SET reason = 'release', due_at = %s", [closed_to])
    ref = Ref(task.task_id, now_ms, now_ms, now_ms, BIZ_TYPE)
    await hold(db, 0, [ref], [now_ms + HOUR_MS])
    assert await delivery.held() == [(task.task_id, now_ms + HOUR_MS)]


async def test_retries_are_recalled_into_a_minute_and_their_tasks_with_them(
    resting_delivery: Delivery,
) -> None:
    delivery, db = resting_delivery, resting_delivery.db
    now_ms = int(delivery.clock.now_ms())
    # On two partitions of the wheel, one of them due already in half a minute.
    tasks = [task_at(now_ms), task_at(now_ms), task_at(now_ms - 2 * 86_400_000), task_at(now_ms)]
    await submit(db, 0, tasks)
    for task, ahead_ms in zip(tasks, (HOUR_MS, 2 * HOUR_MS, HOUR_MS, 30_000), strict=True):
        await delivery.run(
            "UPDATE timer_task SET next_at = %s WHERE task_id = %s",
            [now_ms + ahead_ms, task.task_id],
        )
        await delivery.run(
            "UPDATE timer_requeue SET reason = 'retry', due_at = %s WHERE task_id = %s",
            [now_ms + ahead_ms, task.task_id],
        )
    assert await recall(db, 0, BIZ_TYPE, MINUTE_MS) == 3
    rows = await delivery.rows(
        "SELECT t.next_at, q.due_at FROM timer_task AS t JOIN timer_requeue AS q USING (task_id)"
    )
    assert len(rows) == 4
    assert all(next_at == due_at for next_at, due_at in rows)
    assert all(now_ms < due_at <= now_ms + MINUTE_MS + 5_000 for _, due_at in rows)
    assert await recall(db, 0, BIZ_TYPE, 2 * MINUTE_MS) == 0
