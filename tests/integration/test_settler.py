"""The settler's batches: what is written together, and what may not be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from broker.settler import TEXT_REFUSED, Settler
from tests.fix_delivery import BIZ_TYPE, Delivery
from wheel_timer import signal
from wheel_timer.store.claim import claim
from wheel_timer.task import Claim, Ref, Result


@pytest.fixture
def acknowledged() -> list[Ref]:
    """The references that were given up."""
    return []


@pytest.fixture
def settler(resting_delivery: Delivery, acknowledged: list[Ref]) -> Iterator[Settler]:
    yield Settler(
        db=resting_delivery.db,
        event_center=resting_delivery.event_center,
        lookahead_ms=1_000,
        acknowledged=acknowledged.extend,
        reread=lambda: None,
    )
    signal.clear()


async def claimed(delivery: Delivery, tasks: int) -> tuple[list[Claim], list[Ref]]:
    """Tasks that were submitted and claimed, and the references to them."""
    await delivery.submit(tasks)
    refs = await delivery.event_center.read([BIZ_TYPE], 100, 100)
    return (await claim(delivery.db, refs, [10_000] * tasks)).claims, refs


def result_of(mine: Claim, outcome: str, **facts: Any) -> Result:
    return Result(
        mine.task_id, mine.start_time_ms, mine.biz_type, mine.attempt, mine.revision, outcome,
        **{"started_ms": mine.start_time_ms, "retention_ms": 60_000, **facts},
    )  # fmt: skip


async def test_a_value_that_is_refused_spoils_no_other_result(
    resting_delivery: Delivery, settler: Settler, acknowledged: list[Ref]
) -> None:
    claims, refs = await claimed(resting_delivery, 7)
    for number, one in enumerate(claims):
        error = "a NUL \x00" if number == 3 else "plain"
        settler.add(result_of(one, "retry", error=error, delay_ms=60_000), refs[number])
    await settler.drain()
    errors = await resting_delivery.rows("SELECT last_error FROM timer_task ORDER BY last_error")
    assert errors == [*[("plain",)] * 6, (TEXT_REFUSED,)]
    assert len(acknowledged) == 7


async def test_the_late_success_of_an_old_revision_hides_no_result_of_the_new_one(
    resting_delivery: Delivery, settler: Settler, acknowledged: list[Ref]
) -> None:
    """Both come in at once, at the broker that made both calls."""
    (old,), (ref,) = await claimed(resting_delivery, 1)
    await resting_delivery.run(
        "UPDATE timer_task SET revision = revision + 1, lease_until = NULL WHERE task_id = %s",
        [old.task_id],
    )
    (new,) = (await claim(resting_delivery.db, [ref], [10_000])).claims
    settler.add(result_of(old, "finished", http_status=200), ref)
    settler.add(result_of(new, "failed", http_status=410), ref)
    await settler.drain()
    assert await resting_delivery.statuses([old.task_id]) == ["failed"]
    story = [(one.outcome, one.http_status) for one in await resting_delivery.attempts(old.task_id)]
    assert story == [("superseded", 200), ("failed", 410)]
    assert len(acknowledged) == 2


async def test_a_clock_that_jumps_ahead_before_a_result_is_written_delays_no_retry(
    resting_delivery: Delivery,
) -> None:
    (mine,), (ref,) = await claimed(resting_delivery, 1)
    settler = Settler(
        db=resting_delivery.db,
        event_center=resting_delivery.event_center,
        lookahead_ms=1_000,
        acknowledged=lambda _: None,
        reread=lambda: None,
        # What the database says is an hour more.
        latest_ms=lambda: mine.start_time_ms - 3_600_000,
    )
    settler.add(result_of(mine, "retry", delay_ms=7_200_000), ref)
    await settler.drain()
    assert (await resting_delivery.task(mine.task_id)).next_at == mine.start_time_ms + 3_600_000
