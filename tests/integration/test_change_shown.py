"""Tasks that come along with the answer to a change: as they stand after it, and bounded."""

from __future__ import annotations

from typing import Final

from tests.fix_clock import DatabaseClock
from tests.fix_hands import ref_to, task_at
from tests.fix_tasks import submit_all
from wheel_timer.database import Database
from wheel_timer.store.change import Change, change
from wheel_timer.store.claim import claim
from wheel_timer.store.task import lookup
from wheel_timer.wheel import new_task_id

DAY_MS: Final = 86_400_000
AMPLE: Final = 1 << 20


async def test_what_is_shown_is_what_a_look_at_it_finds(db: Database, clock: DatabaseClock) -> None:
    """In its place and moved, once and on, cancelled, untouched since called, and not there."""
    now_ms = clock.freeze()
    far = [task_at(now_ms + DAY_MS, biz_data=b"1") for _ in range(4)]
    called = task_at(now_ms, biz_data=b"1")
    await submit_all(db, [*far, called])
    await claim(db, [ref_to(called)], [10_000])
    away, stays, moved, ended = (task.task_id for task in far)
    nobody = new_task_id(now_ms)
    await change(db, [Change(away, "patch", to_time_ms=now_ms + 2 * DAY_MS)])
    answers = await change(
        db,
        [
            Change(away, "patch", to_time_ms=now_ms + 3 * DAY_MS),
            Change(stays, "patch", has_data=True, biz_data=b"2"),
            Change(moved, "patch", to_time_ms=now_ms + 40 * DAY_MS),
            Change(ended, "cancel"),
            Change(called.task_id, "cancel"),
            Change(nobody, "cancel"),
        ],
        shown_bytes=AMPLE,
    )
    ids = [away, stays, moved, ended, called.task_id, nobody]
    found = await lookup(db, ids)
    verdicts = ["done"] * 4 + ["delivering", "missing"]
    assert [answer.verdict for answer in answers] == verdicts
    assert [answer.task for answer in answers] == [found.get(task_id) for task_id in ids]
    assert found[stays].biz_data == b"2"


async def test_no_more_is_shown_than_a_socket_holds(db: Database, clock: DatabaseClock) -> None:
    """Rows go out in the fence: a client that reads no more must not keep it."""
    now_ms = clock.freeze()
    tasks = [task_at(now_ms + DAY_MS + n, biz_data=b"x" * 10_000) for n in range(20)]
    await submit_all(db, tasks)
    cancels = [Change(task.task_id, "cancel") for task in tasks]
    answers = await change(db, cancels, shown_bytes=65_536)
    assert {answer.verdict for answer in answers} == {"done"}
    assert sum(answer.task is not None for answer in answers) == 6
    again = await change(db, cancels)
    assert [(answer.verdict, answer.task) for answer in again] == [("unchanged", None)] * 20
