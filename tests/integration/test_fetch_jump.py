"""While a jump of the database's clock is not accepted, nobody takes anything out of Postgres."""

from __future__ import annotations

import asyncio
from typing import Final

from tests.fix_audits import AuditsHold
from tests.fix_clock import DatabaseClock
from tests.fix_delivery import BIZ_TYPE, Delivery, Reached
from tests.fix_endpoint import Endpoint
from tests.fix_hands import task_at
from wheel_timer.store.submit import submit

HOUR_MS: Final = 3_600_000
ROWS: Final = "SELECT task_id, reason, due_at FROM timer_requeue ORDER BY 1"


async def in_line(delivery: Delivery, reason: str) -> list[tuple[object, ...]]:
    """Three tasks that are due, and none in a lane; their rows."""
    now_ms = int(delivery.clock.now_ms())
    await submit(delivery.db, 0, [task_at(now_ms, BIZ_TYPE) for _ in range(3)])
    await delivery.run("UPDATE timer_requeue SET reason = %s", [reason])
    return await delivery.rows(ROWS)


async def jumps(delivery: Delivery, clock: DatabaseClock, by_ms: int) -> None:
    clock.jump(by_ms)
    await delivery.clock.measure()
    assert (delivery.clock.jump_ms is not None) == (by_ms > 0)


async def test_who_stands_in_line_is_not_fetched_by_a_clock_that_nobody_believes(
    delivery: Delivery, endpoint: Endpoint, clock: DatabaseClock, audits_hold: AuditsHold
) -> None:
    lane = delivery.notifier.lane(BIZ_TYPE)
    await delivery.until(lambda: lane.fetchable(delivery.clock.now_ms()) > 0)
    await jumps(delivery, clock, HOUR_MS)
    rows = await in_line(delivery, "overflow")
    assert await delivery.notifier._direct.fetch() == 0
    assert await delivery.rows(ROWS) == rows
    await jumps(delivery, clock, 0)
    await endpoint.wait_for(3)
    await audits_hold()


async def test_what_is_held_stays_so_until_the_clock_is_believed(
    delivery: Delivery, endpoint: Endpoint, clock: DatabaseClock, audits_hold: AuditsHold
) -> None:
    fetched = Reached("delivery.unheld")
    lane = delivery.notifier.lane(BIZ_TYPE)
    await delivery.until(lambda: lane.refillable(delivery.clock.now_ms()) > 0)
    await jumps(delivery, clock, HOUR_MS)
    rows = await in_line(delivery, "held")
    holding = delivery.notifier._holding
    holding.fill(lane)
    # Longer than a fetch takes, and shorter than the wait for the clock.
    _, filling = await asyncio.wait(holding._filling.values(), timeout=0.3)
    assert filling
    assert fetched.count == 0
    assert await delivery.rows(ROWS) == rows
    await jumps(delivery, clock, 0)
    await endpoint.wait_for(3)
    await audits_hold()
