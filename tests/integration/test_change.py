"""Change of mind in SQL: every verb in every state, and what is left behind."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.fix_audits import AuditsHold
from tests.fix_change import (
    DAY_MS,
    EVERYTHING,
    HOUR_MS,
    STATES,
    TIMEOUT_MS,
    claimed,
    one,
    result_of,
    row_of,
    task_in,
    task_like,
)
from tests.fix_clock import DatabaseClock
from tests.fix_hands import ref_to, task_at
from tests.fix_sessions import Sessions
from wheel_timer.database import Database
from wheel_timer.errors import DataRejected
from wheel_timer.store.change import BATCH_ROWS_MAX, Change, Verb, change
from wheel_timer.store.claim import claim
from wheel_timer.store.settle import settle_again, settle_final
from wheel_timer.store.submit import submit
from wheel_timer.store.task import attempts
from wheel_timer.task import Status
from wheel_timer.wheel import new_task_id

CANCELS: Final = {
    # state: (verdict of a plain cancel, with stop, with discard)
    "waiting": ("done", "done", "done"),
    "due": ("done", "done", "done"),
    "delivering": ("delivering", "stopping", "delivering"),
    "expired": ("done", "done", "done"),
    "finished": ("settled", "settled", "settled"),
    "failed": ("settled", "settled", "done"),
    "cancelled": ("unchanged", "unchanged", "unchanged"),
}


@pytest.mark.parametrize("flag", ["", "stop", "discard"])
@pytest.mark.parametrize("state", STATES)
async def test_what_a_cancel_does_in_each_state(
    state: str,
    flag: str,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    task = await task_in(state, db, clock)
    before = await sessions.row(EVERYTHING)
    verdict = CANCELS[state][["", "stop", "discard"].index(flag)]
    changed = await one(db, task, "cancel", **{flag: True} if flag else {})
    assert (changed.verdict, changed.is_near) == (verdict, False)
    row = await row_of(db, task)
    match verdict:
        case "done":
            now_ms = clock.now_ms()
            assert (row.status, row.finish_time) == (Status.CANCELLED, now_ms)
            assert (row.expire_at, row.lease_until) == (now_ms + DAY_MS, None)
            assert await sessions.value("SELECT count(*) FROM timer_requeue") == 0
            assert await sessions.value("SELECT count(*) FROM timer_dead") == 0
        case "stopping":
            assert (row.status, row.stop, row.revision) == (Status.PENDING, True, 1)
            assert row.lease_until is not None
        case _:
            assert await sessions.row(EVERYTHING) == before
    assert (await claim(db, [ref_to(task)], [TIMEOUT_MS])).claims == []
    # Said again, it is answered the same and changes nothing more.
    before = await sessions.row(EVERYTHING)
    again = await one(db, task, "cancel", **{flag: True} if flag else {})
    assert again.verdict == ("unchanged" if verdict == "done" else verdict)
    assert await sessions.row(EVERYTHING) == before
    await audits_hold()


async def test_a_cancel_is_kept_as_long_as_the_biz_type_says(
    db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    task = await task_in("waiting", db, clock)
    await sessions.row(
        "INSERT INTO timer_biz (biz_type, version, config, create_time, update_time)"
        ' VALUES (%s, 1, \'{"retention": {"cancelled": 7}}\', 0, 0) RETURNING 1',
        task.biz_type,
    )
    await one(db, task, "cancel")
    assert (await row_of(db, task)).expire_at == clock.now_ms() + 7_000


async def test_erase_data_takes_the_payload_of_a_cancelled_task_and_its_replay(
    db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    task = await task_in("waiting", db, clock)
    await sessions.row(
        "INSERT INTO timer_biz (biz_type, version, config, create_time, update_time)"
        " VALUES (%s, 1, '{\"erase_data\": true}', 0, 0) RETURNING 1",
        task.biz_type,
    )
    assert (await one(db, task, "cancel")).verdict == "done"
    row = await row_of(db, task)
    assert (row.biz_data, row.content_type) == (None, "erased")
    assert (await one(db, task, "replay")).verdict == "settled"
    what: dict[str, Any] = {"has_data": True, "biz_data": b"2", "has_content_type": True}
    what |= {"to_time_ms": task.start_time_ms, "has_traceparent": True}
    assert (await one(db, task, "replace", **what)).verdict == "revived"
    assert (await row_of(db, task)).content_type is None
    assert (await one(db, task, "cancel")).verdict == "done"
    await audits_hold()


async def test_a_stopped_task_ends_with_the_attempt_that_is_under_way(
    db: Database, clock: DatabaseClock, audits_hold: AuditsHold
) -> None:
    task = task_at(clock.freeze())
    await submit(db, 0, [task])
    mine = await claimed(db, task)
    assert (await one(db, task, "cancel", stop=True)).verdict == "stopping"
    assert await settle_again(db, 0, [result_of(mine, "retry", delay_ms=5_000)]) == []
    assert (await row_of(db, task)).status == Status.CANCELLED
    await audits_hold()


PUTS: Final = {
    # state: (patch, run, replay, replace, earliest with an earlier time)
    "waiting": ("done", "done", "unchanged", "done", "done"),
    "due": ("done", "done", "unchanged", "done", "done"),
    "delivering": ("delivering", "delivering", "unchanged", "done", "kept"),
    "expired": ("done", "done", "unchanged", "done", "done"),
    "finished": ("settled", "settled", "done", "revived", "kept"),
    "failed": ("settled", "settled", "done", "revived", "kept"),
    "cancelled": ("settled", "settled", "done", "revived", "kept"),
}
VERBS: Final[tuple[Verb, ...]] = ("patch", "run", "replay", "replace", "earliest")


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("state", STATES)
async def test_what_puts_a_task_on_the_wheel_anew_in_each_state(
    state: str,
    verb: Verb,
    db: Database,
    clock: DatabaseClock,
    sessions: Sessions,
    audits_hold: AuditsHold,
) -> None:
    task = await task_in(state, db, clock)
    old = await row_of(db, task)
    before = await sessions.row(EVERYTHING)
    now_ms = clock.now_ms()
    wanted = {
        "patch": task.start_time_ms + HOUR_MS,
        "replace": task.start_time_ms + HOUR_MS,
        "earliest": task.start_time_ms - HOUR_MS,
    }
    what: dict[str, Any] = {"to_time_ms": wanted[verb]} if verb in wanted else {}
    if verb in wanted:
        what |= {"has_data": True, "biz_data": b"2", "has_traceparent": verb != "patch"}
    verdict = PUTS[state][VERBS.index(verb)]
    changed = await one(db, task, verb, **what)
    assert changed.verdict == verdict
    new = await row_of(db, task)
    if verdict not in ("done", "revived"):
        assert await sessions.row(EVERYTHING) == before
        await audits_hold()
        return
    start_ms = wanted.get(verb, min(task.start_time_ms, now_ms))
    assert (new.status, new.start_time, new.revision) == (Status.PENDING, start_ms, 2)
    assert changed.start_time_ms == start_ms
    assert changed.is_near == (start_ms <= now_ms + 1_500)
    assert (new.lease_until, new.next_at, new.finish_time, new.expire_at) == (None,) * 4
    assert new.attempts == old.attempts
    assert new.biz_data == (b"2" if verb in wanted else b"1")
    is_new_life = (
        verdict == "revived"
        or (verb == "replay" and state != "failed")
        or (verb == "replace" and state == "delivering")
    )
    assert new.life == (2 if is_new_life else 1)
    is_fresh = verb in ("replay", "replace", "earliest")
    assert new.failures == (0 if is_fresh or state != "expired" else 1)
    assert new.renew_time == now_ms
    assert await sessions.value("SELECT count(*) FROM timer_dead") == 0
    lost = [a.outcome for a in await attempts(db, task.task_id) if a.outcome == "lost"]
    assert lost == (["lost"] if state == "expired" else [])
    await audits_hold()
    if start_ms > now_ms:
        clock.set(start_ms)
        clock.freeze()
    mine = await claimed(db, task_like(task, start_ms))
    assert (mine.revision, mine.attempt) == (2, old.attempts + 1)


@pytest.mark.parametrize("outcome", ["finished", "failed", "retry"])
@pytest.mark.parametrize("to_ms", [0, HOUR_MS])
async def test_a_late_result_of_an_old_body_leaves_only_its_attempt(
    outcome: str, to_ms: int, db: Database, clock: DatabaseClock, audits_hold: AuditsHold
) -> None:
    """Frozen in the call, replaced meanwhile, thawed: wherever the task has gone to since."""
    task = task_at(clock.freeze(), biz_data=b"old")
    await submit(db, 0, [task])
    mine = await claimed(db, task)
    for step in (1, 2):
        place_ms = task.start_time_ms + to_ms * step
        changed = await one(
            db, task, "replace", to_time_ms=place_ms, has_data=True, biz_data=b"new"
        )
        assert changed.verdict == "done"
    result = result_of(mine, outcome, life=mine.life, delay_ms=1)
    if outcome == "retry":
        assert await settle_again(db, 0, [result]) == []
    else:
        await settle_final(db, [result])
    row = await row_of(db, task)
    assert (row.status, row.life, row.revision, row.failures) == (Status.PENDING, 2, 3, 0)
    assert row.biz_data == b"new"
    (past,) = await attempts(db, task.task_id)
    assert (past.outcome, past.attempt, past.life) == ("superseded", 1, 1)
    await audits_hold()


async def test_a_change_can_insist_on_a_revision(
    db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    task = await task_in("waiting", db, clock)
    before = await sessions.row(EVERYTHING)
    assert (await one(db, task, "cancel", revision=2)).verdict == "changed"
    assert await sessions.row(EVERYTHING) == before
    assert (await one(db, task, "cancel", revision=1)).verdict == "done"


async def test_every_change_is_written_down_without_its_payload(
    db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    task = await task_in("waiting", db, clock)
    to_ms = task.start_time_ms + HOUR_MS
    await one(db, task, "patch", to_time_ms=to_ms, has_data=True, biz_data=b"secret")
    await one(db, task, "cancel")
    await one(db, task, "cancel")
    await one(db, task, "replay", actor="key:7")
    kept = await sessions.value(
        "SELECT array_agg(array[actor, action, object, old->>'status', new->>'status',"
        " coalesce(new->>'fields', '')] ORDER BY change_id) FROM timer_change"
    )
    task_id = str(task.task_id)
    assert kept == [
        ["local", "task.patch", task_id, "pending", "pending", '["biz_data"]'],
        ["local", "task.cancel", task_id, "pending", "cancelled", ""],
        ["key:7", "task.replay", task_id, "cancelled", "pending", "[]"],
    ]


async def test_a_full_batch_over_all_partitions_and_every_fate(
    db: Database, clock: DatabaseClock, sessions: Sessions, audits_hold: AuditsHold
) -> None:
    now_ms = clock.freeze()
    tasks = [task_at(now_ms + (n + 1) * 9_000_000) for n in range(BATCH_ROWS_MAX)]
    await submit(db, 0, tasks)
    back = tasks[0].start_time_ms
    for step_ms in (HOUR_MS, 2 * HOUR_MS, 0):
        changed = await change(
            db, [Change(t.task_id, "patch", to_time_ms=t.start_time_ms + step_ms) for t in tasks]
        )
        assert {c.verdict for c in changed} == {"done"}
    assert changed[0].start_time_ms == back
    gone = Change(new_task_id(back), "cancel")
    half = [Change(t.task_id, "cancel") for t in tasks[: BATCH_ROWS_MAX - 1]]
    changed = await change(db, [*half, gone])
    assert [c.verdict for c in changed] == ["done"] * (BATCH_ROWS_MAX - 1) + ["missing"]
    counts = "SELECT array_agg(array[status, n] ORDER BY status) FROM (SELECT status, count(*) AS n"
    assert await sessions.value(f"{counts} FROM timer_task GROUP BY 1) AS c") == [[0, 1], [3, 999]]
    await audits_hold()


async def test_a_bad_value_changes_nothing(
    db: Database, clock: DatabaseClock, sessions: Sessions
) -> None:
    task = await task_in("waiting", db, clock)
    other = task_at(task.start_time_ms)
    await submit(db, 0, [other])
    before = await sessions.row(EVERYTHING)
    bad = Change(other.task_id, "patch", has_callback=True, callback=b"{")
    with pytest.raises(DataRejected):
        await change(db, [Change(task.task_id, "cancel"), bad])
    assert await sessions.row(EVERYTHING) == before
