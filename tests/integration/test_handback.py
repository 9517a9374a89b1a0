"""A broker that stops gives back what it fetched from Postgres, too: others call it at once."""

from __future__ import annotations

from typing import Final

from tests.fix_audits import AuditsHold
from tests.fix_delivery import BIZ_TYPE, Delivery, Reached
from tests.fix_endpoint import Answer, Endpoint
from tests.fix_hands import task_at
from wheel_timer.store.fetch import unfetch
from wheel_timer.store.submit import submit

COUNT: Final = 40
# Those that would wait for a visibility time, of a minute.
LATER: Final = "SELECT task_id FROM timer_requeue WHERE due_at > wheel_now_ms() + 10000"


async def in_line(delivery: Delivery, reason: str = "overflow") -> None:
    """COUNT tasks that are due, with rows of this reason and none in a lane."""
    now_ms = int(delivery.clock.now_ms())
    await submit(delivery.db, 0, [task_at(now_ms, BIZ_TYPE) for _ in range(COUNT)])
    await delivery.run("UPDATE timer_requeue SET reason = %s", [reason])


async def test_what_was_fetched_and_not_called_comes_again_at_once(
    resting_delivery: Delivery, endpoint: Endpoint, audits_hold: AuditsHold
) -> None:
    delivery, fetched = resting_delivery, Reached("delivery.fetched")
    await delivery.configure(callback_url=endpoint.url, max_concurrency=1)
    endpoint.answer = Answer(delay_s=0.3)
    await delivery.start()
    await in_line(delivery)
    await fetched.next()
    await endpoint.wait_for(1)
    await delivery.until_row(LATER)
    await delivery.stop()
    called = len(endpoint.received)
    assert 1 <= called < 5
    rows = await delivery.rows("SELECT task_id FROM timer_requeue")
    assert len(rows) == COUNT - called
    assert await delivery.rows(LATER) == []
    await audits_hold()


async def test_only_what_a_fetch_has_armed_is_given_back(
    resting_delivery: Delivery, audits_hold: AuditsHold
) -> None:
    """A row that was held, or written for a retry meanwhile, keeps its moment."""
    await in_line(resting_delivery, "held")
    await resting_delivery.run("UPDATE timer_requeue SET due_at = due_at + %s", [60_000])
    ids = [task_id for (task_id,) in await resting_delivery.rows(LATER)]
    assert len(ids) == COUNT
    await unfetch(resting_delivery.db, 0, ids)
    assert len(await resting_delivery.rows(LATER)) == COUNT
    await resting_delivery.run("UPDATE timer_requeue SET reason = %s", ["published"])
    await unfetch(resting_delivery.db, 0, ids[:10])
    assert len(await resting_delivery.rows(LATER)) == COUNT - 10
    await audits_hold()
