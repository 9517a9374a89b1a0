"""A change whose reply was lost is sent again, and acts once: whatever came of it in between."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio

from broker import changer, replacer
from broker.changer import Changer, Wish
from broker.submission import Replaced, Submission
from broker.submitter import Submitter
from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_hands import BIZ_TYPE, ref_to, task_at
from wheel_timer.clock import Clock
from wheel_timer.database import Database
from wheel_timer.errors import DatabaseUnavailable
from wheel_timer.eventcenter import EventCenter
from wheel_timer.store.change import Change, Changed, Verb, change
from wheel_timer.store.claim import claim
from wheel_timer.store.settle import settle_final
from wheel_timer.store.submit import submit
from wheel_timer.store.task import lookup
from wheel_timer.task import NewTask, Result, Status

HOUR_MS = 3_600_000


async def deliver(db: Database, task: NewTask) -> None:
    """Call the task, successfully, at the place where it is."""
    row = (await lookup(db, [task.task_id]))[task.task_id]
    ref = ref_to(task)._replace(start_time_ms=row.start_time, moment_ms=row.start_time)
    (mine,) = (await claim(db, [ref], [10_000])).claims
    result = Result(
        mine.task_id, mine.start_time_ms, mine.biz_type, mine.attempt, mine.revision, "finished"
    )
    await settle_final(db, [result])


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch, db: Database) -> list[str]:
    """Of the first call the reply is lost, and the task is delivered before the second."""
    verdicts: list[str] = []

    async def lose(to: Database, changes: Sequence[Change], **more: Any) -> list[Changed]:
        outcomes = await change(to, changes, **more)
        verdicts.extend(outcome.verdict for outcome in outcomes)
        if len(verdicts) == 1:
            await deliver(db, NewTask(changes[0].task_id, 0, BIZ_TYPE))
            raise DatabaseUnavailable("the connection is lost")
        return outcomes

    monkeypatch.setattr(changer, "change", lose)
    monkeypatch.setattr(replacer, "change", lose)
    return verdicts


@pytest_asyncio.fixture
async def subject(db: Database, event_center: EventCenter) -> AsyncIterator[Changer]:
    clock = Clock(db)
    await clock.measure()
    made = Changer(db=db, event_center=event_center, clock=clock)
    yield made
    await made.stop()


@pytest.mark.parametrize(("verb", "life"), [("replay", 2), ("run", 1)])
async def test_a_run_or_replay_whose_task_was_delivered_meanwhile_is_done_once(
    verb: Verb,
    life: int,
    subject: Changer,
    losing: list[str],
    db: Database,
    clock: DatabaseClock,
    audits_hold: AuditsHold,
) -> None:
    now_ms = clock.now_ms()
    task = task_at(now_ms if verb == "replay" else now_ms + HOUR_MS)
    await submit(db, 0, [task])
    if verb == "replay":
        await deliver(db, task)
    granted = await subject.change(Wish(Change(task.task_id, verb)))
    assert losing == ["done", "changed"]
    assert granted.verdict == "done"
    assert granted.task is not None
    assert (granted.task.status, granted.task.life) == (Status.FINISHED, life)
    await audits_hold()


async def test_a_replace_whose_new_life_was_delivered_meanwhile_is_done_once(
    losing: list[str],
    db: Database,
    event_center: EventCenter,
    audits_hold: AuditsHold,
) -> None:
    clock = Clock(db)
    await clock.measure()
    subject = Submitter(db=db, event_center=event_center, clock=clock)
    now_ms = int(clock.now_ms())
    task = task_at(now_ms, biz_id="order 1")
    await submit(db, 0, [task])
    await deliver(db, task)
    again = Submission(
        biz_type=BIZ_TYPE, start_time_ms=now_ms + 5, biz_id="order 1", on_duplicate="replace"
    )
    (outcome,) = await subject.submit([again])
    assert losing == ["revived", "changed"]
    assert isinstance(outcome, Replaced)
    assert outcome.is_revived
    row = (await lookup(db, [task.task_id]))[task.task_id]
    assert (row.status, row.life) == (Status.FINISHED, 2)
    await subject.stop()
    await audits_hold()
