"""Occurrences on their way: what their callbacks say, and which of them are not called."""

from __future__ import annotations

import math
from typing import Any, Final
from uuid import UUID

import msgspec
import pytest

from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_delivery import Delivery
from tests.fix_endpoint import Answer, Endpoint
from wheel_timer.schedule import Schedule, occurrence
from wheel_timer.store import schedule as store
from wheel_timer.store.schedule import Put, Wheel
from wheel_timer.task import Ref

NOON: Final = 1_800_014_400_000  # 2027-01-15T12:00:00Z
HOUR: Final = 3_600_000


async def scheduled(delivery: Delivery, now_ms: int, **fields: Any) -> Put:
    """A schedule of `orders` that begins now."""
    made = Schedule(
        schedule_id=UUID(int=0), biz_type="orders", name="s", shard=0, version=0, cron="* * * * *",
        timezone="UTC", enabled=True, misfire="once", misfire_after=60_000, overlap="allow",
        jitter=0, start_after=None, end_before=None, next_time=None, content_type=None,
        callback=None, biz_data=b"[7]", create_time=0, update_time=0,
    )  # fmt: skip
    made = msgspec.structs.replace(made, **fields)
    wheel = Wheel(1, lambda: now_ms, HOUR, 1000)
    return await store.change(
        delivery.db, "orders", "s", lambda _: made, wheel, actor="test", action="schedule.put"
    )


async def publish(delivery: Delivery, made: Schedule, *moments: int) -> list[UUID]:
    """What the due hand does with the occurrences of these moments."""
    found = [occurrence(made, moment) for moment in moments]
    refs = [Ref(one.task_id, one.start, one.start, one.start, "orders") for one in found]
    await delivery.event_center.publish_direct(refs)
    return [one.task_id for one in found]


async def test_an_occurrence_says_whose_it_is_and_when_it_was_meant(
    clock: DatabaseClock, resting_delivery: Delivery, endpoint: Endpoint, audits_hold: AuditsHold
) -> None:
    clock.set(NOON)
    made = (await scheduled(resting_delivery, NOON, jitter=20_000)).schedule
    await publish(resting_delivery, made, NOON + 60_000)
    clock.set(NOON + 100_000)
    await resting_delivery.start()
    (received,) = await endpoint.wait_for(1)
    headers = received.headers
    assert headers["wheel-timer-schedule-id"] == str(made.schedule_id)
    assert headers["wheel-timer-scheduled-time"] == "2027-01-15T12:01:00.000Z"
    assert headers["wheel-timer-start-time"] > headers["wheel-timer-scheduled-time"]
    assert received.body == b"[7]"
    assert await resting_delivery.settled([UUID(received.task_id)]) == ["finished"]
    await audits_hold()


@pytest.mark.parametrize(
    ("misfire", "came"),
    [("skip", []), ("once", [59]), ("all", list(range(1, 60)))],
)
async def test_after_an_outage_those_are_called_that_the_schedule_wants(
    clock: DatabaseClock,
    resting_delivery: Delivery,
    endpoint: Endpoint,
    audits_hold: AuditsHold,
    misfire: str,
    came: list[int],
) -> None:
    """All of an hour is on the wheel, and nobody has called for two."""
    clock.set(NOON)
    end = NOON + HOUR
    made = (await scheduled(resting_delivery, NOON, misfire=misfire, end_before=end)).schedule
    clock.set(NOON + 2 * HOUR)
    ids = await publish(resting_delivery, made, *range(NOON + 60_000, end, 60_000))
    await resting_delivery.start()
    statuses = await resting_delivery.settled(ids)
    assert [n for n, status in enumerate(statuses, 1) if status == "finished"] == came
    assert set(statuses) <= {"finished", "cancelled"}
    assert len(endpoint.received) == len(came)
    if misfire != "all":
        passed_over = await resting_delivery.task(ids[0])
        assert passed_over.last_error.startswith("skipped: 7140 s late (misfire ")
    await audits_hold()


async def test_none_is_called_while_the_last_one_is_not_settled(
    clock: DatabaseClock, resting_delivery: Delivery, endpoint: Endpoint, audits_hold: AuditsHold
) -> None:
    clock.set(NOON)
    made = (
        await scheduled(resting_delivery, NOON, overlap="skip", misfire_after=HOUR, misfire="all")
    ).schedule
    clock.set(NOON + 121_000)
    endpoint.answer = Answer(500)
    await resting_delivery.start()
    (first,) = await publish(resting_delivery, made, NOON + 60_000)
    await endpoint.wait_for(1)
    (second,) = await publish(resting_delivery, made, NOON + 120_000)
    assert await resting_delivery.settled([second]) == ["cancelled"]
    task = await resting_delivery.task(second)
    assert task.last_error == "skipped: another occurrence of its schedule is not settled"
    # It is tried again, as any task; then there is room for the next one.
    endpoint.answer = Answer()
    clock.set(NOON + 181_000)
    retry = Ref(first, NOON + 60_000, NOON + 180_000, NOON + 180_000, "orders")
    await resting_delivery.event_center.publish_direct([retry])
    assert await resting_delivery.settled([first]) == ["finished"]
    (third,) = await publish(resting_delivery, made, NOON + 180_000)
    assert await resting_delivery.settled([third]) == ["finished"]
    assert [call.task_id for call in endpoint.received] == [str(first), str(first), str(third)]
    await audits_hold()


async def test_what_was_called_is_an_ordinary_task(
    clock: DatabaseClock, resting_delivery: Delivery, endpoint: Endpoint
) -> None:
    """Its endpoint asks to be called again, later than any occurrence may be."""
    clock.set(NOON)
    made = (await scheduled(resting_delivery, NOON, misfire="skip", overlap="skip")).schedule
    clock.set(NOON + 61_000)
    endpoint.answer = Answer(200, headers=(("wheel-timer-release", "600"),))
    await resting_delivery.start()
    (task_id,) = await publish(resting_delivery, made, NOON + 60_000)
    await endpoint.wait_for(1)
    await resting_delivery.until_row("SELECT 1 FROM timer_task WHERE next_at IS NOT NULL")
    endpoint.answer = Answer()
    clock.set(NOON + 700_000)
    again = Ref(task_id, NOON + 60_000, NOON + 662_000, NOON + 662_000, "orders")
    await resting_delivery.event_center.publish_direct([again])
    assert await resting_delivery.settled([task_id]) == ["finished"]


async def test_what_somebody_runs_is_called_however_late(
    clock: DatabaseClock, resting_delivery: Delivery, endpoint: Endpoint
) -> None:
    clock.set(NOON)
    made = (await scheduled(resting_delivery, NOON, misfire="skip")).schedule
    clock.set(NOON + HOUR)
    ids = await publish(resting_delivery, made, NOON + 60_000)
    await resting_delivery.run("UPDATE timer_task SET revision = 2 WHERE task_id = %s", ids)
    await resting_delivery.start()
    assert await resting_delivery.settled(ids) == ["finished"]


@pytest.mark.timing
async def test_disabled_a_tenth_of_a_second_before_it_is_due_by_somebody_else(
    delivery: Delivery, endpoint: Endpoint, audits_hold: AuditsHold
) -> None:
    """The broker has read it, and holds it for its moment; the change is another process' doing."""
    now = math.ceil(delivery.clock.now_ms())
    put = await scheduled(delivery, now, cron="* * * * * *")
    await delivery.event_center.publish_direct(put.near)
    due = [ref.start_time_ms for ref in put.near]
    await delivery.until(lambda: delivery.clock.now_ms() >= due[-1] - 100)
    other = Wheel(1, delivery.clock.now_ms, HOUR, 1000)
    disabled = await store.change(
        delivery.db,
        "orders",
        "s",
        lambda _: msgspec.structs.replace(put.schedule, enabled=False),
        other,
        actor="test",
        action="schedule.disable",
    )
    assert disabled.under_way == 0
    await delivery.until(lambda: delivery.clock.now_ms() >= due[-1] + 300)
    assert len(endpoint.received) == len(due) - 1
    await audits_hold()
