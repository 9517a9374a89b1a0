"""Change of mind in SQL: where the rows go when a task is put on the wheel anew."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fix_audits import AuditsHold
from tests.fix_change import DAY_MS, HOUR_MS, REQUEUED, claimed, one, result_of, row_of, task_in
from tests.fix_clock import DatabaseClock
from tests.fix_hands import task_at
from tests.fix_sessions import Sessions
from wheel_timer.database import Database
from wheel_timer.store.change import Verb
from wheel_timer.store.settle import settle_again
from wheel_timer.store.submit import submit
from wheel_timer.task import Status


async def test_a_task_goes_away_on_and_home_and_is_found_at_every_place(
    db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    """The home row forwards, alone; every other place is left without a trace."""
    home_ms = clock.freeze() + DAY_MS
    task = task_at(home_ms, biz_data=b"1", biz_id="a", callback=b'{"url":"http://a/"}')
    await submit(db, 0, [task])
    places = "SELECT array_agg(start_time ORDER BY start_time) FROM timer_task WHERE status = %s"
    for to_ms in (home_ms + 40 * DAY_MS, home_ms + 90 * DAY_MS, home_ms - HOUR_MS, home_ms):
        assert (await one(db, task, "patch", to_time_ms=to_ms)).verdict == "done"
        row = await row_of(db, task)
        assert (row.start_time, row.biz_data, row.biz_id) == (to_ms, b"1", "a")
        assert await sessions.value(places, 0) == [to_ms]
        assert await sessions.value(places, 4) == (None if to_ms == home_ms else [home_ms])
        await audits_hold()
    assert (await row_of(db, task)).revision == 5
    for to_ms in (home_ms + 40 * DAY_MS, home_ms + 90 * DAY_MS):
        await one(db, task, "patch", to_time_ms=to_ms)
    assert (await one(db, task, "cancel")).verdict == "done"
    assert (await row_of(db, task)).status == Status.CANCELLED
    await audits_hold()


async def test_a_move_into_what_is_closed_has_a_requeue_row_at_its_new_place(
    db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    now_ms = clock.freeze()
    task = task_at(now_ms + DAY_MS)
    await submit(db, 0, [task])
    assert (await one(db, task, "patch", to_time_ms=now_ms - HOUR_MS)).is_near
    place = (now_ms + 2_000, now_ms - HOUR_MS, "near")
    assert await sessions.row(REQUEUED, task.task_id) == place
    await audits_hold()
    assert not (await one(db, task, "patch", to_time_ms=now_ms + HOUR_MS)).is_near
    assert await sessions.value("SELECT count(*) FROM timer_requeue") == 0
    await audits_hold()


@pytest.mark.parametrize("verb", ["run", "replay"])
async def test_what_an_operation_makes_due_is_queued_and_not_published(
    verb: Verb, db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    task = await task_in("waiting" if verb == "run" else "failed", db, clock)
    now_ms = clock.now_ms()
    changed = await one(db, task, verb, due_ms=now_ms + 30_000)
    assert (changed.verdict, changed.is_near) == ("done", False)
    start_ms = min(task.start_time_ms, now_ms)
    assert await sessions.row(REQUEUED, task.task_id) == (now_ms + 30_000, start_ms, verb)
    await audits_hold()


async def test_a_task_that_waits_for_its_retry_keeps_waiting_when_only_its_data_change(
    db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    task = task_at(clock.freeze(), biz_data=b"1", max_age_ms=9)
    await submit(db, 0, [task])
    mine = await claimed(db, task)
    await settle_again(db, 0, [result_of(mine, "retry", delay_ms=60_000)])
    requeued = await sessions.row(REQUEUED, task.task_id)
    what: dict[str, Any] = {"has_data": True, "biz_data": b"2", "has_max_age": True}
    assert (await one(db, task, "patch", **what)).verdict == "done"
    row = await row_of(db, task)
    assert (row.biz_data, row.max_age, row.revision, row.failures) == (b"2", None, 2, 1)
    assert row.next_at == clock.now_ms() + 60_000
    assert await sessions.row(REQUEUED, task.task_id) == requeued
    assert (await one(db, task, "run")).is_near
    assert (await row_of(db, task)).next_at is None
    await audits_hold()
